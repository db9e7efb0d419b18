//! Asynchronous copies and mbarriers.

use super::{Context, Decoder, memory::ATOMICS, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{Alu, BulkDirection, Class, Mbarrier, Op, Operand, TensorCopy, Type},
    syntax::tree,
};

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn asynchronous(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        match modifiers.name() {
            "cp" => self.copy(context, modifiers)?,
            "mbarrier" => self.mbarrier(context, modifiers)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A constant.
    pub(super) fn number(&self, context: Context<'_, 'a>, index: usize) -> Result<u32, PtxError> {
        match context.operand(index)? {
            tree::Operand::Integer(value) => u32::try_from(*value)
                .map_err(|_| context.wrong(format!("operand {} is too large", index + 1))),
            _ => Err(context.wrong(format!("operand {} must be a constant", index + 1))),
        }
    }

    fn copy(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let reduce = modifiers.take("reduce");
        if !modifiers.take("async") {
            return Err(context.unsupported("this form of cp"));
        }
        if modifiers.take("bulk") {
            return self.bulk(context, modifiers, reduce);
        }
        if modifiers.take("commit_group") {
            return self.emit(Op::AsyncCommit, &[], &[]);
        }
        if modifiers.take("wait_all") {
            return self.emit(Op::AsyncWait { pending: 0 }, &[], &[]);
        }
        if modifiers.take("wait_group") {
            let pending = self.number(context, 0)?;
            return self.emit(Op::AsyncWait { pending }, &[], &[]);
        }
        if modifiers.take("mbarrier") {
            modifiers.take("arrive");
            modifiers.take("shared");
            modifiers.take("shared::cta");
            modifiers.take("b64");
            let increment = !modifiers.take("noinc");
            let address = self.address(context, 0)?;
            return self.emit(Op::AsyncArrive { increment, offset: address.offset }, &[], &[address.base]);
        }
        modifiers.take("shared");
        modifiers.take("shared::cta");
        modifiers.take("global");
        modifiers.take_hints();
        let to = self.address(context, 0)?;
        let from = self.address(context, 1)?;
        let bytes = self.number(context, 2)?;
        if !matches!(bytes, 4 | 8 | 16) {
            return Err(context.wrong("cp.async copies 4, 8 or 16 bytes"));
        }
        let whole = self.word_constant(bytes);
        // The fourth operand is the number of bytes to read, or a predicate that skips the read.
        let read = match context.instruction.operands.get(3) {
            None => whole,
            Some(tree::Operand::Name(name)) => match self.register(context, name, Class::Predicate) {
                Ok(ignore) => {
                    let (size, none) = (self.new_register(Class::Word), self.word_constant(0));
                    self.emit(Op::Alu(Alu::Select32), &[size], &[none, whole, ignore])?;
                    size
                }
                Err(_) => self.value(context, 3, Type::U32)?,
            },
            Some(_) => self.value(context, 3, Type::U32)?,
        };
        let op = Op::AsyncCopy { bytes: bytes as u8, to: to.offset, from: from.offset };
        self.emit(op, &[], &[to.base, from.base, read])
    }

    /// An address with its offset added, for instructions with several addresses, which have no room for offsets.
    pub(super) fn whole_address(
        &mut self,
        context: Context<'_, 'a>,
        index: usize,
    ) -> Result<Operand, PtxError> {
        let address = self.address(context, index)?;
        if address.offset == 0 {
            return Ok(address.base);
        }
        let class = address.base.class();
        let sum = self.new_register(class);
        let offset = self.constant(class, address.offset as u64);
        let alu = if class == Class::Long {
            Alu::I64(crate::isa::Int::Add)
        } else {
            Alu::I32(crate::isa::Int::Add)
        };
        self.emit(Op::Alu(alu), &[sum], &[address.base, offset])?;
        Ok(sum)
    }

    fn bulk(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
        reduce: bool,
    ) -> Result<(), PtxError> {
        if modifiers.take("commit_group") {
            return self.emit(Op::BulkCommit, &[], &[]);
        }
        if modifiers.take("wait_group") {
            let read = modifiers.take("read");
            let pending = self.number(context, 0)?;
            return self.emit(Op::BulkWait { pending, read }, &[], &[]);
        }
        if modifiers.take("prefetch") {
            modifiers.take_all();
            return self.emit(Op::Nothing, &[], &[]);
        }
        let tensor = modifiers.take("tensor");
        modifiers.take_hints();
        modifiers.take("bulk_group");
        modifiers.take("mbarrier::complete_tx::bytes");
        let multicast = modifiers.take("multicast::cluster");
        let spaces: Vec<&str> = modifiers
            .parts()
            .iter()
            .copied()
            .filter(|part| matches!(*part, "global" | "shared::cta" | "shared::cluster"))
            .collect();
        let direction = match spaces[..] {
            ["shared::cluster" | "shared::cta", "global"] => BulkDirection::GlobalToShared,
            ["global", "shared::cta"] => BulkDirection::SharedToGlobal,
            ["shared::cluster", "shared::cta"] => BulkDirection::SharedToCluster,
            _ => return Err(context.unsupported("a bulk copy between these state spaces")),
        };
        for space in spaces {
            modifiers.take(space);
        }
        let direction = if reduce {
            let Some(op) = modifiers.take_any(&ATOMICS) else {
                return Err(context.unsupported("this cp.reduce operation"));
            };
            if direction != BulkDirection::SharedToGlobal {
                return Err(context.unsupported("cp.reduce to shared memory"));
            }
            modifiers.take("noftz");
            // The element type comes from the tensor map.
            let kind = modifiers.take_type().unwrap_or(Type::B8);
            BulkDirection::ReduceToGlobal(op, kind)
        } else {
            direction
        };
        if tensor {
            return self.tensor_copy(context, modifiers, direction, multicast);
        }
        let to = self.whole_address(context, 0)?;
        let from = self.whole_address(context, 1)?;
        let bytes = self.value(context, 2, Type::U32)?;
        let mut operands = vec![to, from, bytes];
        if matches!(direction, BulkDirection::GlobalToShared | BulkDirection::SharedToCluster) {
            operands.push(self.whole_address(context, 3)?);
            if multicast {
                operands.push(self.value(context, 4, Type::U16)?);
            }
        }
        self.emit(Op::BulkCopy { direction, multicast }, &[], &operands)
    }

    /// Operands: shared memory, the tensor map, the mbarrier of a copy to shared memory, coordinates, im2col offsets, the multicast mask.
    fn tensor_copy(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
        direction: BulkDirection,
        multicast: bool,
    ) -> Result<(), PtxError> {
        let ranks = [("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)];
        let Some(rank) = modifiers.take_any(&ranks) else {
            return Err(context.wrong("a tensor copy needs a rank"));
        };
        let no_offsets = modifiers.take("im2col_no_offs");
        let im2col = modifiers.take("im2col") || no_offsets;
        modifiers.take("tile");
        if im2col && rank < 3 {
            return Err(context.wrong("im2col needs a rank of at least 3"));
        }
        let loads = direction == BulkDirection::GlobalToShared;
        let (shared_at, map_at) = if loads { (0, 1) } else { (1, 0) };
        let shared = self.whole_address(context, shared_at)?;
        let map = self.whole_address(context, map_at)?;
        let tree::Operand::Address { coordinates, .. } = context.operand(map_at)?.clone() else {
            return Err(context.wrong("coordinates are missing"));
        };
        if coordinates.len() != usize::from(rank) {
            return Err(context.wrong(format!("expected {rank} coordinates")));
        }
        let mut operands = vec![shared, map];
        let mut next = 2;
        if loads {
            operands.push(self.whole_address(context, next)?);
            next += 1;
        }
        for coordinate in &coordinates {
            operands.push(self.value_of(context, coordinate, Type::S32)?);
        }
        if loads && im2col && !no_offsets {
            for offset in self.list(context, next)? {
                operands.push(self.value_of(context, &offset, Type::U16)?);
            }
            next += 1;
        }
        if multicast {
            operands.push(self.value(context, next, Type::U16)?);
        }
        self.emit(Op::TensorCopy(TensorCopy { rank, im2col, multicast, direction }), &[], &operands)
    }

    fn mbarrier(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        for part in ["shared", "shared::cta", "cta", "relaxed", "release", "acquire", "b64"] {
            modifiers.take(part);
        }
        let cluster = modifiers.take("shared::cluster");
        // `.cluster` is a scope here, apart from the state space `shared::cluster`.
        modifiers.take("cluster");
        let emit = |decoder: &mut Self, op, results: &[Operand], at, more: &[(usize, Type)]| {
            let address = decoder.address(context, at)?;
            let mut operands = vec![address.base];
            for &(index, kind) in more {
                operands.push(decoder.value(context, index, kind)?);
            }
            decoder.emit(Op::Mbarrier { op, cluster, offset: address.offset }, results, &operands)
        };
        let name = modifiers.parts().first().copied().unwrap_or("");
        modifiers.take(name);
        match name {
            "init" => emit(self, Mbarrier::Init, &[], 0, &[(1, Type::U32)]),
            "inval" => emit(self, Mbarrier::Invalidate, &[], 0, &[]),
            "expect_tx" => emit(self, Mbarrier::ExpectTx, &[], 0, &[(1, Type::U32)]),
            "complete_tx" => emit(self, Mbarrier::CompleteTx, &[], 0, &[(1, Type::U32)]),
            "arrive" | "arrive_drop" => {
                let drop = name == "arrive_drop";
                let expect = modifiers.take("expect_tx");
                let no_complete = modifiers.take("noComplete");
                // A remote arrival has no result, and may omit the `_`.
                let has_state = !matches!(context.operand(0)?, tree::Operand::Address { .. });
                let at = usize::from(has_state);
                let results =
                    if has_state { vec![self.result(context, 0, Class::Long)?] } else { Vec::new() };
                let more: &[_] = if context.count() > at + 1 { &[(at + 1, Type::U32)] } else { &[] };
                emit(self, Mbarrier::Arrive { expect, drop, no_complete }, &results, at, more)
            }
            "test_wait" | "try_wait" => {
                let parity = modifiers.take("parity");
                let sleeps = name == "try_wait";
                let result = self.result(context, 0, Class::Predicate)?;
                let kind = if parity { Type::U32 } else { Type::B64 };
                emit(self, Mbarrier::Wait { parity, sleeps }, &[result], 1, &[(2, kind)])
            }
            "pending_count" => {
                context.expect(2)?;
                let result = self.result(context, 0, Class::Word)?;
                let state = self.value(context, 1, Type::B64)?;
                let op = Op::Mbarrier { op: Mbarrier::PendingCount, cluster, offset: 0 };
                self.emit(op, &[result], &[state])
            }
            _ => Err(context.unsupported(format!("mbarrier.{name}"))),
        }
    }
}
