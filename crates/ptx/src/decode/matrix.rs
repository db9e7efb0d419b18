//! `mma`, `wgmma`, `ldmatrix` and `stmatrix`.

use super::{Context, Decoder, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{Class, Mma, Op, Operand, Type, Wgmma},
    syntax::tree,
};

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn matrix(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        match modifiers.name() {
            "ldmatrix" | "stmatrix" => self.matrix_access(context, modifiers)?,
            "mma" => self.mma(context, modifiers)?,
            "wgmma" => {
                modifiers.take("sync");
                modifiers.take("aligned");
                if modifiers.take("fence") {
                    self.emit(Op::WgmmaFence, &[], &[])?;
                } else if modifiers.take("commit_group") {
                    self.emit(Op::WgmmaCommit, &[], &[])?;
                } else if modifiers.take("wait_group") {
                    let pending = self.number(context, 0)?;
                    self.emit(Op::WgmmaWait { pending }, &[], &[])?;
                } else if modifiers.take("mma_async") {
                    self.wgmma(context, modifiers)?;
                } else {
                    return Err(context.unsupported("this form of wgmma"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn matrix_access(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        for part in ["sync", "aligned", "m8n8", "shared", "shared::cta"] {
            modifiers.take(part);
        }
        if !modifiers.take("b16") {
            return Err(context.unsupported("matrix elements other than 16 bits"));
        }
        let count = modifiers.take_any(&[("x1", 1), ("x2", 2), ("x4", 4)]).unwrap_or(1);
        let transposed = modifiers.take("trans");
        context.expect(2)?;
        if modifiers.name() == "ldmatrix" {
            let results = self.result_list(context, 0, Class::Word)?;
            let address = self.address(context, 1)?;
            self.matrices(context, &results, count)?;
            let op = Op::LoadMatrix { count: count as u8, transposed, offset: address.offset };
            return self.emit(op, &results, &[address.base]);
        }
        let address = self.address(context, 0)?;
        let mut operands = vec![address.base];
        operands.extend(self.word_list(context, 1)?);
        self.matrices(context, &operands[1..], count)?;
        let op = Op::StoreMatrix { count: count as u8, transposed, offset: address.offset };
        self.emit(op, &[], &operands)
    }

    fn matrices(
        &self,
        context: Context<'_, 'a>,
        registers: &[Operand],
        count: usize,
    ) -> Result<(), PtxError> {
        if registers.len() == count && registers.iter().all(|register| !register.is_none()) {
            return Ok(());
        }
        Err(context.wrong(format!("expected {count} registers")))
    }

    fn word_list(&mut self, context: Context<'_, 'a>, index: usize) -> Result<Vec<Operand>, PtxError> {
        let parts = self.list(context, index)?;
        parts.iter().map(|part| self.value_of(context, part, Type::B32)).collect()
    }

    fn mma(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        for part in ["sync", "aligned", "row", "col"] {
            modifiers.take(part);
        }
        let saturate = modifiers.take("satfinite");
        let shape = take_shape(modifiers);
        let types = modifiers.take_types();
        let ([d, a, b, c], Some((m, n, k))) = (<[Type; 4]>::try_from(types).unwrap_or([Type::B8; 4]), shape)
        else {
            return Err(context.unsupported("an mma of this shape"));
        };
        let sixteen = |kind| matches!(kind, Type::F16 | Type::Bf16);
        let eight = |kind| matches!(kind, Type::E4m3 | Type::E5m2);
        let bytes = |kind| matches!(kind, Type::S8 | Type::U8);
        let known = match (m, n, k) {
            (16, 8, 8 | 16) if sixteen(a) => a == b && (d == Type::F32 || a == Type::F16 && d == Type::F16),
            (16, 8, 4 | 8) if a == Type::Tf32 => b == Type::Tf32 && d == Type::F32,
            (16, 8, 16 | 32) | (8, 8, 16) if bytes(a) => bytes(b) && d == Type::S32,
            (16, 8, 16 | 32) if eight(a) => eight(b) && d == Type::F32,
            _ => false,
        };
        if !known || c != d {
            return Err(context.unsupported(format!("mma m{m}n{n}k{k} of these types")));
        }
        context.expect(4)?;
        let results = self.result_list(context, 0, Class::Word)?;
        let (a_list, b_list, c_list) =
            (self.word_list(context, 1)?, self.word_list(context, 2)?, self.word_list(context, 3)?);
        let words = |elements: usize, kind: Type| elements * kind.bytes() / 4 / 32;
        let sums = words(m * n, d);
        let right = results.len() == sums
            && c_list.len() == sums
            && a_list.len() == words(m * k, a)
            && b_list.len() == words(n * k, b)
            && results.iter().all(|result| !result.is_none());
        if !right {
            return Err(context.wrong("the number of registers does not match the shape"));
        }
        let operands = [a_list, b_list, c_list].concat();
        let mma = Mma { m: m as u8, n: n as u8, k: k as u16, a, b, sum: d, saturate };
        self.emit(Op::Mma(mma), &results, &operands)
    }

    fn wgmma(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let shape = take_shape(modifiers);
        let types = modifiers.take_types();
        let ([sum, a, b], Some((64, n, k))) = (<[Type; 3]>::try_from(types).unwrap_or([Type::B8; 3]), shape)
        else {
            return Err(context.unsupported("a wgmma of this shape"));
        };
        let eight = |kind| matches!(kind, Type::E4m3 | Type::E5m2);
        let bytes = |kind| matches!(kind, Type::S8 | Type::U8);
        let known = match k {
            16 => {
                matches!(a, Type::F16 | Type::Bf16)
                    && a == b
                    && (sum == Type::F32 || sum == Type::F16 && a == Type::F16)
            }
            8 => a == Type::Tf32 && b == Type::Tf32 && sum == Type::F32,
            32 => eight(a) && eight(b) && sum == Type::F32 || bytes(a) && bytes(b) && sum == Type::S32,
            _ => false,
        };
        if !known || n % 8 != 0 || !(8..=256).contains(&n) {
            return Err(context.unsupported(format!("wgmma m64n{n}k{k} of these types")));
        }
        let results = self.result_list(context, 0, Class::Word)?;
        if results.len() != n / 2 * sum.bytes() / 4 || results.iter().any(|result| result.is_none()) {
            return Err(context.wrong("the number of accumulators does not match the shape"));
        }
        let a_in_registers = matches!(context.operand(1)?, tree::Operand::Vector(_));
        let mut operands = Vec::new();
        if a_in_registers {
            operands.extend(self.word_list(context, 1)?);
            if operands.len() != 4 {
                return Err(context.wrong("operand a must have four registers"));
            }
        } else {
            operands.push(self.value(context, 1, Type::B64)?);
        }
        operands.push(self.value(context, 2, Type::B64)?);
        operands.push(self.value(context, 3, Type::Pred)?);
        // The signs of floating-point operands, then whether 16-bit operands are transposed.
        let flag = |index: usize| match context.instruction.operands.get(index) {
            None => Ok(1),
            Some(tree::Operand::Integer(value)) => Ok(*value as i64),
            Some(_) => Err(context.wrong("the scale and transpose operands must be constants")),
        };
        let (negate_a, negate_b) = (flag(4)? == -1, flag(5)? == -1);
        let transposes = context.count() > 6;
        let transpose_a = transposes && !a_in_registers && flag(6)? == 1;
        let transpose_b = transposes && flag(if a_in_registers { 6 } else { 7 })? == 1;
        if (transpose_a || transpose_b) && k != 16 {
            return Err(context.wrong("only 16-bit operands can be transposed"));
        }
        // The accumulators are read and written.
        operands.extend(&results);
        let wgmma = Wgmma {
            n: n as u16,
            k: k as u8,
            element: a,
            b_element: b,
            sum,
            a_in_registers,
            negate_a,
            negate_b,
            transpose_a,
            transpose_b,
        };
        self.emit(Op::Wgmma(wgmma), &results, &operands)
    }
}

/// Takes the shape of a product.
pub(super) fn take_shape(modifiers: &mut Modifiers<'_>) -> Option<(usize, usize, usize)> {
    let part = modifiers.parts().iter().copied().find(|part| shape(part).is_some())?;
    modifiers.take(part);
    shape(part)
}

/// The three numbers of `m16n8k16`.
fn shape(text: &str) -> Option<(usize, usize, usize)> {
    let (m, rest) = text.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
}
