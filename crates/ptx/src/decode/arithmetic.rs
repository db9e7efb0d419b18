//! Arithmetic, logic, comparisons and moves.

use super::{Context, Decoder, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{Alu, Carry, CarryOp, Class, Compare, Float, Int, Logic, Op, Operand, PermuteMode, Type},
    syntax::tree,
};

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn arithmetic(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        match modifiers.name() {
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "abs" | "neg" | "min" | "max" | "rcp"
            | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign" | "and" | "or"
            | "xor" | "not" | "cnot" | "shl" | "shr" | "popc" | "clz" | "brev" | "bfind" | "sad" => {
                self.typed(context, modifiers)?;
            }
            "addc" | "subc" | "madc" => self.carry(context, modifiers)?,
            "bfe" | "bfi" => self.bit_field(context, modifiers)?,
            "bmsk" => {
                modifiers.take("b32");
                let clamp = modifiers.take("clamp") || !modifiers.take("wrap");
                self.operation(context, Alu::BitMask { clamp }, Type::B32, &[Type::U32, Type::U32])?;
            }
            "prmt" => {
                modifiers.take("b32");
                let mode = modifiers.take_any(&[
                    ("f4e", PermuteMode::Forward4),
                    ("b4e", PermuteMode::Backward4),
                    ("rc8", PermuteMode::Replicate8),
                    ("ecl", PermuteMode::EdgeClampLeft),
                    ("ecr", PermuteMode::EdgeClampRight),
                    ("rc16", PermuteMode::Replicate16),
                ]);
                let alu = mode.map_or(Alu::Permute, Alu::PermuteMode);
                self.operation(context, alu, Type::B32, &[Type::B32; 3])?;
            }
            "lop3" => {
                modifiers.take("b32");
                context.expect(5)?;
                let tree::Operand::Integer(table) = context.operand(4)? else {
                    return Err(context.wrong("the lookup table of lop3 must be a constant"));
                };
                let alu = Alu::Lookup(*table as u8);
                let result = self.result(context, 0, Class::Word)?;
                let operands = self.values(context, 1, &[Type::B32; 3])?;
                self.emit(Op::Alu(alu), &[result], &operands)?;
            }
            "shf" => {
                modifiers.take("b32");
                let left = modifiers.take("l");
                modifiers.take("r");
                let clamp = modifiers.take("clamp");
                modifiers.take("wrap");
                self.operation(context, Alu::Funnel { left, clamp }, Type::B32, &[Type::B32; 3])?;
            }
            "dp4a" => {
                let types = modifiers.take_types();
                let [a, b] = types[..] else { return Err(context.wrong("dp4a needs two types")) };
                let alu = Alu::DotBytes(a.is_signed(), b.is_signed());
                self.operation(context, alu, Type::B32, &[Type::B32; 3])?;
            }
            "mul24" => {
                let high = modifiers.take("hi");
                modifiers.take("lo");
                let signed = modifiers.take_type() == Some(Type::S32);
                self.operation(context, Alu::Mul24 { high, signed }, Type::B32, &[Type::B32; 2])?;
            }
            "setp" => self.set_predicate(context, modifiers)?,
            "set" => self.set_value(context, modifiers)?,
            "selp" => {
                let kind = self.type_of(context, modifiers)?;
                let alu = if kind.class() == Class::Long { Alu::Select64 } else { Alu::Select32 };
                self.operation(context, alu, kind, &[kind, kind, Type::Pred])?;
            }
            "slct" => {
                modifiers.take("ftz");
                let types = modifiers.take_types();
                let [kind, by] = types[..] else { return Err(context.wrong("slct needs two types")) };
                let float = by == Type::F32;
                let alu = if kind.class() == Class::Long {
                    Alu::SelectBySign64 { float }
                } else {
                    Alu::SelectBySign32 { float }
                };
                self.operation(context, alu, kind, &[kind, kind, by])?;
            }
            "testp" => {
                let tests = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
                let Some(test) = tests.iter().position(|test| modifiers.take(test)) else {
                    return Err(context.unsupported("this test of testp"));
                };
                let kind = self.type_of(context, modifiers)?;
                let op = Op::TestNumber { test: test as u8, wide: kind == Type::F64 };
                context.expect(2)?;
                let result = self.result(context, 0, Class::Predicate)?;
                let value = self.value(context, 1, kind)?;
                self.emit(op, &[result], &[value])?;
            }
            "mov" => self.mov(context, modifiers)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn type_of(
        &self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<Type, PtxError> {
        modifiers.take_type().ok_or_else(|| context.wrong("expected a type"))
    }

    /// The operands, starting with `first`.
    pub(super) fn values(
        &mut self,
        context: Context<'_, 'a>,
        first: usize,
        types: &[Type],
    ) -> Result<Vec<Operand>, PtxError> {
        types.iter().enumerate().map(|(i, &kind)| self.value(context, first + i, kind)).collect()
    }

    /// A result and its operands.
    fn operation(
        &mut self,
        context: Context<'_, 'a>,
        alu: Alu,
        result: Type,
        operands: &[Type],
    ) -> Result<(), PtxError> {
        context.expect(operands.len() + 1)?;
        let d = self.result(context, 0, result.class())?;
        let operands = self.values(context, 1, operands)?;
        if d.is_none() {
            return Ok(());
        }
        self.emit(Op::Alu(alu), &[d], &operands)
    }

    /// Instructions that have the same form for all types.
    fn typed(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        if modifiers.has("cc") {
            return self.carry(context, modifiers);
        }
        let types = modifiers.take_types();
        let kind = *types.first().ok_or_else(|| context.wrong("expected a type"))?;
        if types.len() > 1 {
            return Err(context.unsupported(format!("{} of mixed types", modifiers.name())));
        }
        match kind {
            Type::Pred => self.predicate_logic(context, modifiers),
            _ if kind.is_float() => self.float(context, modifiers, kind),
            _ => self.integer(context, modifiers, kind),
        }
    }

    fn predicate_logic(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        let logic = match modifiers.name() {
            "and" => Logic::And,
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            "not" => Logic::Not,
            "mov" => Logic::Copy,
            name => return Err(context.unsupported(format!("{name} of predicates"))),
        };
        let count = if matches!(logic, Logic::Not | Logic::Copy) { 1 } else { 2 };
        context.expect(count + 1)?;
        let result = self.result(context, 0, Class::Predicate)?;
        let operands = self.values(context, 1, &[Type::Pred; 2][..count])?;
        self.emit(Op::Predicate(logic), &[result], &operands)
    }

    fn integer(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
        kind: Type,
    ) -> Result<(), PtxError> {
        let signed = kind.is_signed();
        let pick = |when_signed, otherwise| if signed { when_signed } else { otherwise };
        let name = modifiers.name();
        if matches!(name, "mul" | "mad") && modifiers.take("wide") {
            return self.wide_product(context, name, kind);
        }
        let saturated = modifiers.take("sat");
        let low = modifiers.take("lo");
        let high = modifiers.take("hi");
        let find_shift = modifiers.take("shiftamt");
        let op = match name {
            "add" if saturated => Int::AddSaturated,
            "sub" if saturated => Int::SubSaturated,
            _ if saturated => return Err(context.unsupported("saturation of this instruction")),
            "add" => Int::Add,
            "sub" => Int::Sub,
            "mul" if high => pick(Int::MulHighS, Int::MulHighU),
            "mad" if high => pick(Int::MadHighS, Int::MadHighU),
            "mul" if low => Int::Mul,
            "mad" if low => Int::Mad,
            "div" => pick(Int::DivS, Int::DivU),
            "rem" => pick(Int::RemS, Int::RemU),
            "min" => pick(Int::MinS, Int::MinU),
            "max" => pick(Int::MaxS, Int::MaxU),
            "abs" => Int::Abs,
            "neg" => Int::Neg,
            "and" => Int::And,
            "or" => Int::Or,
            "xor" => Int::Xor,
            "not" => Int::Not,
            "cnot" => Int::LogicalNot,
            "shl" => Int::Shl,
            "shr" => pick(Int::ShrS, Int::ShrU),
            "popc" => Int::PopulationCount,
            "clz" => Int::LeadingZeros,
            "brev" => Int::Reverse,
            "bfind" => pick(Int::FindS(find_shift), Int::FindU(find_shift)),
            "sad" => pick(Int::DifferenceS, Int::DifferenceU),
            _ => return Err(context.unsupported(format!("{name} of integers"))),
        };
        let alu = match kind.bytes() {
            2 => Alu::I16(op),
            4 => Alu::I32(op),
            8 => Alu::I64(op),
            _ => return Err(context.unsupported(format!("{name} of 8-bit integers"))),
        };
        let (result, operands): (Type, &[Type]) = match op {
            Int::Shl | Int::ShrS | Int::ShrU => (kind, &[kind, Type::U32]),
            Int::Mad | Int::MadHighS | Int::MadHighU | Int::DifferenceS | Int::DifferenceU => {
                (kind, &[kind, kind, kind])
            }
            Int::Abs | Int::Neg | Int::Not | Int::LogicalNot | Int::Reverse => (kind, &[kind]),
            Int::PopulationCount | Int::LeadingZeros | Int::FindS(_) | Int::FindU(_) => (Type::U32, &[kind]),
            _ => (kind, &[kind, kind]),
        };
        self.operation(context, alu, result, operands)
    }

    fn wide_product(&mut self, context: Context<'_, 'a>, name: &str, kind: Type) -> Result<(), PtxError> {
        let add = name == "mad";
        let signed = kind.is_signed();
        let (alu, result) = match kind.bytes() {
            2 => (Alu::Wide16(signed, add), Type::U32),
            4 => (Alu::Wide32(signed, add), Type::U64),
            _ => return Err(context.unsupported("mul.wide or mad.wide of this type")),
        };
        let operands = [kind, kind, result];
        self.operation(context, alu, result, &operands[..if add { 3 } else { 2 }])
    }

    fn float(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
        kind: Type,
    ) -> Result<(), PtxError> {
        let name = modifiers.name();
        let nan = modifiers.take("NaN");
        let approximate = modifiers.take("approx");
        modifiers.take("full");
        let free = !["rn", "rz", "rm", "rp"].iter().any(|rounding| modifiers.has(rounding));
        let mut mode = modifiers.take_mode();
        let op = match name {
            "add" => Float::Add,
            "sub" => Float::Sub,
            "mul" => Float::Mul,
            "fma" | "mad" => Float::Fma,
            "div" => Float::Div,
            "rcp" => Float::Reciprocal,
            "sqrt" => Float::SquareRoot,
            "rsqrt" => Float::ReciprocalSquareRoot,
            "ex2" => Float::Exp2,
            "lg2" => Float::Log2,
            "sin" => Float::Sin,
            "cos" => Float::Cos,
            "tanh" => Float::Tanh,
            "min" if nan => Float::MinNan,
            "max" if nan => Float::MaxNan,
            "min" => Float::Min,
            "max" => Float::Max,
            "neg" => Float::Neg,
            "abs" => Float::Abs,
            "copysign" => Float::CopySign,
            _ => return Err(context.unsupported(format!("{name} of floating-point numbers"))),
        };
        mode.contractible = free && matches!(op, Float::Add | Float::Sub | Float::Mul);
        let alu = match kind {
            Type::F32 => Alu::F32(op, mode),
            Type::F64 if mode.saturate || mode.relu || mode.flush && !approximate => {
                return Err(context.unsupported("f64 arithmetic with this modifier"));
            }
            Type::F64 => Alu::F64(op, mode),
            Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 => Alu::Half {
                op,
                mode,
                bf16: matches!(kind, Type::Bf16 | Type::Bf16x2),
                pair: matches!(kind, Type::F16x2 | Type::Bf16x2),
            },
            _ => return Err(context.unsupported(format!("{name} of this type"))),
        };
        let count = match op {
            Float::Fma => 3,
            Float::Add | Float::Sub | Float::Mul | Float::Div | Float::CopySign => 2,
            Float::Min | Float::Max | Float::MinNan | Float::MaxNan => 2,
            _ => 1,
        };
        self.operation(context, alu, kind, &[kind; 3][..count])
    }

    fn carry(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let gives = modifiers.take("cc");
        let kind = self.type_of(context, modifiers)?;
        let high = modifiers.take("hi");
        modifiers.take("lo");
        let (op, takes) = match modifiers.name() {
            "add" => (CarryOp::Add, false),
            "addc" => (CarryOp::Add, true),
            "sub" => (CarryOp::Sub, false),
            "subc" => (CarryOp::Sub, true),
            name @ ("mad" | "madc") => {
                let op = match (high, kind.is_signed()) {
                    (false, _) => CarryOp::MadLow,
                    (true, true) => CarryOp::MadHighS,
                    (true, false) => CarryOp::MadHighU,
                };
                (op, name == "madc")
            }
            name => return Err(context.unsupported(format!("{name} with a carry"))),
        };
        let count = if matches!(op, CarryOp::Add | CarryOp::Sub) { 2 } else { 3 };
        context.expect(count + 1)?;
        let wide = match kind.bytes() {
            4 => false,
            8 => true,
            _ => return Err(context.unsupported("a carry of this type")),
        };
        let result = self.result(context, 0, kind.class())?;
        let operands = self.values(context, 1, &[kind; 3][..count])?;
        self.emit(Op::Carry(Carry { op, wide, takes, gives }), &[result], &operands)
    }

    fn bit_field(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let kind = self.type_of(context, modifiers)?;
        let op = match (modifiers.name(), kind.is_signed()) {
            ("bfi", _) => Int::Insert,
            (_, true) => Int::ExtractS,
            (_, false) => Int::ExtractU,
        };
        let alu = if kind.bytes() == 8 { Alu::I64(op) } else { Alu::I32(op) };
        match op {
            Int::Insert => self.operation(context, alu, kind, &[kind, kind, Type::U32, Type::U32]),
            _ => self.operation(context, alu, kind, &[kind, Type::U32, Type::U32]),
        }
    }

    pub(super) fn comparison(
        &self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
        kind: Type,
    ) -> Result<Compare, PtxError> {
        let compare = modifiers.take_any(&[
            ("eq", Compare::Eq),
            ("ne", Compare::Ne),
            ("lt", Compare::Lt),
            ("le", Compare::Le),
            ("gt", Compare::Gt),
            ("ge", Compare::Ge),
            ("lo", Compare::Lt),
            ("ls", Compare::Le),
            ("hi", Compare::Gt),
            ("hs", Compare::Ge),
            ("equ", Compare::EqOrNan),
            ("neu", Compare::NeOrNan),
            ("ltu", Compare::LtOrNan),
            ("leu", Compare::LeOrNan),
            ("gtu", Compare::GtOrNan),
            ("geu", Compare::GeOrNan),
            ("num", Compare::Numbers),
            ("nan", Compare::Nans),
        ]);
        match compare {
            Some(compare) if kind.is_float() || (compare as u8) <= Compare::Ge as u8 => Ok(compare),
            _ => Err(context.unsupported("this comparison")),
        }
    }

    fn set_predicate(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        let kind = self.type_of(context, modifiers)?;
        if matches!(kind, Type::F16x2 | Type::Bf16x2) {
            return Err(context.unsupported("comparisons of packed pairs"));
        }
        let compare = self.comparison(context, modifiers, kind)?;
        let flush = modifiers.take("ftz");
        let combine = modifiers.take_any(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
        context.expect(if combine.is_some() { 4 } else { 3 })?;
        let results = match context.operand(0)?.clone() {
            tree::Operand::Pair(p, q) => {
                let mut side = |name| match name {
                    "_" => Ok(Operand::NONE),
                    _ => self.register(context, name, Class::Predicate),
                };
                [side(p)?, side(q)?]
            }
            _ => [self.result(context, 0, Class::Predicate)?, Operand::NONE],
        };
        let mut operands = self.values(context, 1, &[kind, kind])?;
        if combine.is_some() {
            operands.push(self.value(context, 3, Type::Pred)?);
        }
        let combine = combine.unwrap_or(Logic::Copy);
        self.emit(Op::SetPredicate { compare, kind, combine, flush }, &results, &operands)
    }

    fn set_value(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let types = modifiers.take_types();
        let [result, kind] = types[..] else { return Err(context.wrong("set needs two types")) };
        if matches!(kind, Type::F16x2 | Type::Bf16x2) || result.bytes() != 4 {
            return Err(context.unsupported("set of these types"));
        }
        let compare = self.comparison(context, modifiers, kind)?;
        let flush = modifiers.take("ftz");
        let combine = modifiers.take_any(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
        context.expect(if combine.is_some() { 4 } else { 3 })?;
        let d = self.result(context, 0, Class::Word)?;
        let mut operands = self.values(context, 1, &[kind, kind])?;
        if combine.is_some() {
            operands.push(self.value(context, 3, Type::Pred)?);
        }
        let combine = combine.unwrap_or(Logic::Copy);
        let float = result == Type::F32;
        self.emit(Op::SetValue { compare, kind, combine, flush, float }, &[d], &operands)
    }

    /// `mov`, which also packs and unpacks vectors.
    fn mov(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let kind = self.type_of(context, modifiers)?;
        if kind == Type::Pred {
            return self.predicate_logic(context, modifiers);
        }
        context.expect(2)?;
        let halves = match kind.bytes() {
            4 => Type::B16,
            8 => Type::B32,
            _ => Type::B8,
        };
        if let tree::Operand::Vector(parts) = context.operand(0)?.clone() {
            if parts.len() != 2 || halves == Type::B8 {
                return Err(context.unsupported("a move into this many registers"));
            }
            let source = self.value(context, 1, kind)?;
            let mut results = [Operand::NONE; 2];
            for (result, part) in results.iter_mut().zip(&parts) {
                if let tree::Operand::Name(name) = part
                    && *name != "_"
                {
                    *result = self.register(context, name, Class::Word)?;
                }
            }
            let alu = if kind.bytes() == 8 { Alu::Unpack64 } else { Alu::Unpack32 };
            return self.emit(Op::Alu(alu), &results, &[source]);
        }
        let d = self.result(context, 0, kind.class())?;
        if d.is_none() {
            return Ok(());
        }
        if let tree::Operand::Vector(parts) = context.operand(1)?.clone() {
            if parts.len() != 2 || halves == Type::B8 {
                return Err(context.unsupported("a move of this many registers"));
            }
            let low = self.value_of(context, &parts[0], halves)?;
            let high = self.value_of(context, &parts[1], halves)?;
            let alu = if kind.bytes() == 8 { Alu::Pack64 } else { Alu::Pack32 };
            return self.emit(Op::Alu(alu), &[d], &[low, high]);
        }
        let source = self.value(context, 1, kind)?;
        let alu = if kind.class() == Class::Long { Alu::Move64 } else { Alu::Move32 };
        self.emit(Op::Alu(alu), &[d], &[source])
    }
}
