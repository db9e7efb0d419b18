//! Instructions on packed numbers, and others that are some simpler ones in a row.

use super::{Context, Decoder, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{Alu, Class, Compare, Conversion, Float, Int, Logic, Mode, Op, Operand, Type, Video, VideoOp},
    syntax::tree,
};

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn packed(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        match modifiers.name() {
            "add" | "min" | "max" if modifiers.has("s16x2") || modifiers.has("u16x2") => {
                self.integer_pairs(context, modifiers)?;
            }
            "add" | "sub" | "mul" | "fma" if modifiers.has("f32x2") => {
                self.float_pairs(context, modifiers)?
            }
            "min" | "max" if modifiers.has("xorsign") => self.signed_extreme(context, modifiers)?,
            "min" | "max" if modifiers.has("relu") && modifiers.has("s32") => {
                let name = modifiers.name();
                modifiers.take("relu");
                modifiers.take("s32");
                context.expect(3)?;
                let d = self.result(context, 0, Class::Word)?;
                let operands = self.values(context, 1, &[Type::S32; 2])?;
                let op = if name == "min" { Int::MinS } else { Int::MaxS };
                let zero = self.word_constant(0);
                let extreme = self.word(Alu::I32(op), &operands)?;
                self.put(d, Alu::I32(Int::MaxS), &[extreme, zero])?;
            }
            "min" | "max" if modifiers.has("f32") && context.count() == 4 => {
                let minimum = modifiers.name() == "min";
                let nan = modifiers.take("NaN");
                let mode = modifiers.take_mode();
                modifiers.take("f32");
                let d = self.result(context, 0, Class::Word)?;
                let [a, b, c] = self.values(context, 1, &[Type::F32; 3])?[..] else { return Ok(false) };
                let alu = Alu::F32(extreme(minimum, nan), mode);
                let first = self.word(alu, &[a, b])?;
                self.put(d, alu, &[first, c])?;
            }
            "mad" if modifiers.has("hi") && modifiers.has("sat") => {
                for part in ["hi", "sat", "s32"] {
                    modifiers.take(part);
                }
                context.expect(4)?;
                let d = self.result(context, 0, Class::Word)?;
                let [a, b, c] = self.values(context, 1, &[Type::S32; 3])?[..] else { return Ok(false) };
                let product = self.word(Alu::I32(Int::MulHighS), &[a, b])?;
                self.put(d, Alu::I32(Int::AddSaturated), &[product, c])?;
            }
            "mad24" => {
                let high = modifiers.take("hi");
                modifiers.take("lo");
                let saturate = modifiers.take("sat");
                let signed = modifiers.take_type() == Some(Type::S32);
                context.expect(4)?;
                let d = self.result(context, 0, Class::Word)?;
                let [a, b, c] = self.values(context, 1, &[Type::B32; 3])?[..] else { return Ok(false) };
                let product = self.word(Alu::Mul24 { high, signed }, &[a, b])?;
                let op = if saturate { Int::AddSaturated } else { Int::Add };
                self.put(d, Alu::I32(op), &[product, c])?;
            }
            "szext" => {
                let clamp = modifiers.take("clamp");
                modifiers.take("wrap");
                let signed = self.type_of(context, modifiers)?.is_signed();
                context.expect(3)?;
                let d = self.result(context, 0, Class::Word)?;
                let operands = self.values(context, 1, &[Type::B32, Type::U32])?;
                self.put(d, Alu::SignExtend { clamp, signed }, &operands)?;
            }
            "fns" => {
                modifiers.take("b32");
                context.expect(4)?;
                let d = self.result(context, 0, Class::Word)?;
                let operands = self.values(context, 1, &[Type::B32, Type::B32, Type::S32])?;
                self.put(d, Alu::FindNthSet, &operands)?;
            }
            "dp2a" => {
                let high = modifiers.take("hi");
                modifiers.take("lo");
                let types = modifiers.take_types();
                let [a, b] = types[..] else { return Err(context.wrong("dp2a needs two types")) };
                context.expect(4)?;
                let d = self.result(context, 0, Class::Word)?;
                let operands = self.values(context, 1, &[Type::B32; 3])?;
                self.put(d, Alu::DotHalves { a: a.is_signed(), b: b.is_signed(), high }, &operands)?;
            }
            "lop3" if modifiers.has("and") || modifiers.has("or") || modifiers.has("xor") => {
                self.lookup_and_test(context, modifiers)?;
            }
            "setp" if modifiers.has("f16x2") || modifiers.has("bf16x2") => {
                self.compare_pairs(context, modifiers)?;
            }
            "cvt" if modifiers.has("pack") => self.pack_integers(context, modifiers)?,
            "mov" if self.quarters(context, 0).is_some() || self.quarters(context, 1).is_some() => {
                self.move_quarters(context, modifiers)?;
            }
            name if name.starts_with('v') && VideoOp::named(name).is_some() => {
                self.video(context, modifiers)?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A new word with a result.
    fn word(&mut self, alu: Alu, operands: &[Operand]) -> Result<Operand, PtxError> {
        let result = self.new_register(Class::Word);
        self.emit(Op::Alu(alu), &[result], operands)?;
        Ok(result)
    }

    /// A result in a register, or nowhere.
    fn put(&mut self, d: Operand, alu: Alu, operands: &[Operand]) -> Result<(), PtxError> {
        if d.is_none() { Ok(()) } else { self.emit(Op::Alu(alu), &[d], operands) }
    }

    /// The lower and the upper half of a value.
    fn halves(&mut self, unpack: Alu, value: Operand) -> Result<[Operand; 2], PtxError> {
        let halves = [self.new_register(Class::Word), self.new_register(Class::Word)];
        self.emit(Op::Alu(unpack), &halves, &[value])?;
        Ok(halves)
    }

    fn integer_pairs(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        let signed = modifiers.take("s16x2");
        modifiers.take("u16x2");
        let relu = modifiers.take("relu");
        let saturate = modifiers.take("sat");
        let op = match (modifiers.name(), signed) {
            ("add", true) if saturate => Int::AddSaturated,
            ("add", _) if !saturate => Int::Add,
            ("min", true) => Int::MinS,
            ("min", false) => Int::MinU,
            ("max", true) => Int::MaxS,
            ("max", false) => Int::MaxU,
            _ => return Err(context.unsupported("this operation on pairs of integers")),
        };
        context.expect(3)?;
        let d = self.result(context, 0, Class::Word)?;
        let [a, b] = self.values(context, 1, &[Type::B32; 2])?[..] else { return Ok(()) };
        let (a, b) = (self.halves(Alu::Unpack32, a)?, self.halves(Alu::Unpack32, b)?);
        let mut results = [Operand::NONE; 2];
        for (half, result) in results.iter_mut().enumerate() {
            *result = self.word(Alu::I16(op), &[a[half], b[half]])?;
            if relu {
                let zero = self.word_constant(0);
                *result = self.word(Alu::I16(Int::MaxS), &[*result, zero])?;
            }
        }
        self.put(d, Alu::Pack32, &results)
    }

    fn float_pairs(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        modifiers.take("f32x2");
        let mode = modifiers.take_mode();
        let op = match modifiers.name() {
            "add" => Float::Add,
            "sub" => Float::Sub,
            "mul" => Float::Mul,
            _ => Float::Fma,
        };
        let count = if op == Float::Fma { 3 } else { 2 };
        context.expect(count + 1)?;
        let d = self.result(context, 0, Class::Long)?;
        let operands = self.values(context, 1, &[Type::B64; 3][..count])?;
        let mut halves = Vec::new();
        for operand in operands {
            halves.push(self.halves(Alu::Unpack64, operand)?);
        }
        let mut results = [Operand::NONE; 2];
        for (half, result) in results.iter_mut().enumerate() {
            let operands: Vec<Operand> = halves.iter().map(|pair| pair[half]).collect();
            *result = self.word(Alu::F32(op, mode), &operands)?;
        }
        self.put(d, Alu::Pack64, &results)
    }

    /// `min.xorsign.abs` and `max.xorsign.abs`: of the magnitudes, with the exclusive or of the signs.
    fn signed_extreme(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        modifiers.take("xorsign");
        modifiers.take("abs");
        let nan = modifiers.take("NaN");
        let mode = modifiers.take_mode();
        let kind = self.type_of(context, modifiers)?;
        let op = extreme(modifiers.name() == "min", nan);
        let (of, signs): (&dyn Fn(Float) -> Alu, u32) = match kind {
            Type::F32 => (&|op| Alu::F32(op, mode), 1 << 31),
            Type::F16 | Type::Bf16 => {
                (&|op| Alu::Half { op, mode, bf16: kind == Type::Bf16, pair: false }, 1 << 15)
            }
            Type::F16x2 | Type::Bf16x2 => {
                (&|op| Alu::Half { op, mode, bf16: kind == Type::Bf16x2, pair: true }, 1 << 31 | 1 << 15)
            }
            _ => return Err(context.unsupported("xorsign with this type")),
        };
        context.expect(3)?;
        let d = self.result(context, 0, Class::Word)?;
        let [a, b] = self.values(context, 1, &[kind; 2])?[..] else { return Ok(()) };
        let (x, y) = (self.word(of(Float::Abs), &[a])?, self.word(of(Float::Abs), &[b])?);
        let magnitude = self.word(of(op), &[x, y])?;
        let sign = self.word(Alu::I32(Int::Xor), &[a, b])?;
        let signs = self.word_constant(signs);
        // The sign where the third operand has ones, the magnitude elsewhere.
        self.put(d, Alu::Lookup(0xe4), &[sign, magnitude, signs].map(|operand| operand))
    }

    /// `lop3` with a predicate: whether the result is not zero, combined with another one.
    fn lookup_and_test(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        modifiers.take("b32");
        let logics = [("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)];
        let combine = modifiers.take_any(&logics).unwrap_or(Logic::And);
        context.expect(6)?;
        let (tree::Operand::Integer(table), tree::Operand::Pair(d, p)) =
            (context.operand(4)?.clone(), context.operand(0)?.clone())
        else {
            return Err(context.wrong("lop3 needs a constant table, and a predicate beside its result"));
        };
        let p = self.register(context, p, Class::Predicate)?;
        let operands = self.values(context, 1, &[Type::B32; 3])?;
        let other = self.value(context, 5, Type::Pred)?;
        let result = self.word(Alu::Lookup(table as u8), &operands)?;
        let zero = self.word_constant(0);
        let test = Op::SetPredicate { compare: Compare::Ne, kind: Type::B32, combine, flush: false };
        self.emit(test, &[p, Operand::NONE], &[result, zero, other])?;
        if d == "_" {
            return Ok(());
        }
        let d = self.register(context, d, Class::Word)?;
        self.emit(Op::Alu(Alu::Move32), &[d], &[result])
    }

    /// `setp` of pairs: a predicate for each half.
    fn compare_pairs(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        let kind = if self.type_of(context, modifiers)? == Type::Bf16x2 { Type::Bf16 } else { Type::F16 };
        let compare = self.comparison(context, modifiers, kind)?;
        let flush = modifiers.take("ftz");
        let logics = [("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)];
        let combine = modifiers.take_any(&logics);
        context.expect(if combine.is_some() { 4 } else { 3 })?;
        let tree::Operand::Pair(p, q) = context.operand(0)?.clone() else {
            return Err(context.wrong("a comparison of pairs has two predicates as its result"));
        };
        let [a, b] = self.values(context, 1, &[Type::B32; 2])?[..] else { return Ok(()) };
        let other = match combine {
            Some(_) => vec![self.value(context, 3, Type::Pred)?],
            None => Vec::new(),
        };
        let (a, b) = (self.halves(Alu::Unpack32, a)?, self.halves(Alu::Unpack32, b)?);
        let op = Op::SetPredicate { compare, kind, combine: combine.unwrap_or(Logic::Copy), flush };
        // The first predicate may be the one that is combined.
        let mut results = Vec::new();
        for half in 0..2 {
            let result = self.new_register(Class::Predicate);
            self.emit(op, &[result, Operand::NONE], &[&[a[half], b[half]], &other[..]].concat())?;
            results.push(result);
        }
        for (name, result) in [p, q].into_iter().zip(results).filter(|(name, _)| *name != "_") {
            let place = self.register(context, name, Class::Predicate)?;
            self.emit(Op::Predicate(Logic::Copy), &[place], &[result])?;
        }
        Ok(())
    }

    /// `cvt.pack`: two saturated integers, above the lower half of a third operand.
    fn pack_integers(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        modifiers.take("pack");
        modifiers.take("sat");
        let types = modifiers.take_types();
        let (to, over) = match types[..] {
            [to @ (Type::U8 | Type::S8), Type::S32, Type::B32] => (to, true),
            [to @ (Type::U16 | Type::S16), Type::S32] => (to, false),
            _ => return Err(context.unsupported("cvt.pack of these types")),
        };
        context.expect(if over { 4 } else { 3 })?;
        let d = self.result(context, 0, Class::Word)?;
        let [a, b] = self.values(context, 1, &[Type::S32; 2])?[..] else { return Ok(()) };
        let mode = Mode { saturate: true, ..Mode::PLAIN };
        let convert = Alu::Convert(Conversion { to, from: Type::S32, mode, finite: false, integral: false });
        let (a, b) = (self.word(convert, &[a])?, self.word(convert, &[b])?);
        let mask = self.word_constant(if over { 0xff } else { 0xffff });
        let (a, b) = (self.word(Alu::I32(Int::And), &[a, mask])?, self.word(Alu::I32(Int::And), &[b, mask])?);
        let bits = self.word_constant(if over { 8 } else { 16 });
        let upper = self.word(Alu::I32(Int::Shl), &[a, bits])?;
        if !over {
            return self.put(d, Alu::I32(Int::Or), &[upper, b]);
        }
        let pair = self.word(Alu::I32(Int::Or), &[upper, b])?;
        let c = self.value(context, 3, Type::B32)?;
        self.put(d, Alu::Pack32, &[pair, c])
    }

    /// The four registers of a vector operand.
    fn quarters(&self, context: Context<'_, 'a>, index: usize) -> Option<Vec<tree::Operand<'a>>> {
        match context.operand(index) {
            Ok(tree::Operand::Vector(parts)) if parts.len() == 4 => Some(parts.clone()),
            _ => None,
        }
    }

    /// `mov` between a register and four parts of it.
    fn move_quarters(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        let kind = self.type_of(context, modifiers)?;
        context.expect(2)?;
        let wide = match kind.bytes() {
            8 => true,
            4 => false,
            _ => return Err(context.unsupported("a move of this many registers")),
        };
        let [bits, mask] = [8, 0xff].map(|value| self.word_constant(value));
        if let Some(parts) = self.quarters(context, 0) {
            let source = self.value(context, 1, kind)?;
            let pairs =
                if wide { self.halves(Alu::Unpack64, source)? } else { self.halves(Alu::Unpack32, source)? };
            let mut values = Vec::new();
            for pair in pairs {
                if wide {
                    values.extend(self.halves(Alu::Unpack32, pair)?);
                } else {
                    values.push(self.word(Alu::I32(Int::And), &[pair, mask])?);
                    values.push(self.word(Alu::I32(Int::ShrU), &[pair, bits])?);
                }
            }
            for (part, value) in parts.iter().zip(values) {
                match part {
                    tree::Operand::Name("_") => {}
                    tree::Operand::Name(name) => {
                        let register = self.register(context, name, Class::Word)?;
                        self.emit(Op::Alu(Alu::Move32), &[register], &[value])?;
                    }
                    _ => return Err(context.wrong("expected a register")),
                }
            }
            return Ok(());
        }
        let parts = self.quarters(context, 1).unwrap_or_default();
        let d = self.result(context, 0, kind.class())?;
        let mut values = Vec::new();
        for part in &parts {
            values.push(self.value_of(context, part, if wide { Type::B16 } else { Type::B8 })?);
        }
        let mut pairs = Vec::new();
        for pair in values.chunks_exact(2) {
            pairs.push(if wide {
                self.word(Alu::Pack32, pair)?
            } else {
                let low = self.word(Alu::I32(Int::And), &[pair[0], mask])?;
                let high = self.word(Alu::I32(Int::And), &[pair[1], mask])?;
                let high = self.word(Alu::I32(Int::Shl), &[high, bits])?;
                self.word(Alu::I32(Int::Or), &[low, high])?
            });
        }
        self.put(d, if wide { Alu::Pack64 } else { Alu::Pack32 }, &pairs)
    }

    /// The video instructions, on one, two or four numbers in a word.
    fn video(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let Some((op, lanes)) = VideoOp::named(modifiers.name()) else {
            return Err(context.unsupported("this video instruction"));
        };
        let saturate = modifiers.take("sat");
        let wrap = modifiers.take("wrap");
        modifiers.take("clamp");
        let types = modifiers.take_types();
        let compare = match op {
            VideoOp::Set => Some(self.comparison(context, modifiers, Type::S32)?),
            _ => None,
        };
        let second = [("add", VideoOp::Add), ("min", VideoOp::Min), ("max", VideoOp::Max)];
        let second = modifiers.take_any(&second);
        let signed =
            |index: usize| types.get(index).map_or(types.first(), Some).is_some_and(|kind| kind.is_signed());
        let from = usize::from(compare.is_none());
        let known = types.len() == from + 2 && types.iter().all(|kind| matches!(kind, Type::U32 | Type::S32));
        if !known || lanes > 1 && second.is_some_and(|second| second != VideoOp::Add) {
            return Err(context.unsupported("this form of a video instruction"));
        }
        let third = op == VideoOp::Mad || lanes > 1 || second.is_some();
        context.expect(if third { 4 } else { 3 })?;
        let mut operands = Vec::new();
        let mut parts = [(0, 32); 2];
        for (index, place) in parts.iter_mut().enumerate() {
            // A byte or a half of a register: `%r1.b2`, `%r1.h0`.
            let operand = match context.operand(index + 1)?.clone() {
                tree::Operand::Name(name) if lanes == 1 => {
                    let (stem, part) = name.rsplit_once('.').unwrap_or((name, ""));
                    *place = match part.as_bytes() {
                        [b'b', at @ b'0'..=b'3'] => (8 * u32::from(at - b'0'), 8),
                        [b'h', at @ b'0'..=b'1'] => (16 * u32::from(at - b'0'), 16),
                        _ => (0, 32),
                    };
                    tree::Operand::Name(if place.1 == 32 { name } else { stem })
                }
                operand => operand,
            };
            operands.push(self.value_of(context, &operand, Type::B32)?);
        }
        if third {
            operands.push(self.value(context, 3, Type::B32)?);
        }
        let video = Video {
            op,
            lanes,
            signed: [signed(0), signed(from), signed(from + 1)],
            parts,
            saturate,
            wrap,
            compare,
            second,
        };
        let d = self.result(context, 0, Class::Word)?;
        self.put(d, Alu::Video(video), &operands)
    }
}

fn extreme(minimum: bool, nan: bool) -> Float {
    match (minimum, nan) {
        (true, true) => Float::MinNan,
        (true, false) => Float::Min,
        (false, true) => Float::MaxNan,
        (false, false) => Float::Max,
    }
}
