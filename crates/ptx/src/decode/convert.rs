//! Conversions between types.

use super::{Context, Decoder, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{Alu, Class, Conversion, Op, Operand, Type},
    numeric::Rounding,
    syntax::tree,
};

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn conversion(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        if modifiers.name() != "cvt" {
            return Ok(false);
        }
        modifiers.take("pack");
        let types = modifiers.take_types();
        let [to, from] = types[..] else {
            return Err(context.unsupported(format!("a conversion with {} types", types.len())));
        };
        let integral = modifiers.take_any(&[
            ("rni", Rounding::Nearest),
            ("rzi", Rounding::Zero),
            ("rmi", Rounding::Down),
            ("rpi", Rounding::Up),
        ]);
        let finite = modifiers.take("satfinite");
        let mut mode = modifiers.take_mode();
        if let Some(rounding) = integral {
            mode.rounding = rounding;
        }
        let packed =
            matches!(to, Type::F16x2 | Type::Bf16x2 | Type::E4m3x2 | Type::E5m2x2) && from == Type::F32;
        let pairs = (matches!(to, Type::E4m3x2 | Type::E5m2x2) && from == Type::F16x2)
            || (to == Type::F16x2 && matches!(from, Type::E4m3x2 | Type::E5m2x2));
        let scalar = |kind: Type| {
            !matches!(
                kind,
                Type::F16x2
                    | Type::Bf16x2
                    | Type::E4m3x2
                    | Type::E5m2x2
                    | Type::E4m3
                    | Type::E5m2
                    | Type::B128
                    | Type::Pred
            )
        };
        let known = packed || pairs || scalar(to) && scalar(from) && from != Type::Tf32;
        if !known {
            return Err(context.unsupported("a conversion between these types"));
        }
        context.expect(if packed { 3 } else { 2 })?;
        let mut operands = Vec::new();
        for index in 1..context.count() {
            operands.push(self.narrowed(context, index, from)?);
        }
        let tree::Operand::Name(name) = context.operand(0)? else {
            return Err(context.wrong("expected a register"));
        };
        let conversion = Conversion { to, from, mode, finite, integral: integral.is_some() };
        let op = Op::Alu(Alu::Convert(conversion));
        // The destination register may be wider than the type.
        if to.class() == Class::Word
            && !to.is_float()
            && let Ok(wide) = self.register(context, name, Class::Long)
        {
            let narrow = self.new_register(Class::Word);
            self.emit(op, &[narrow], &operands)?;
            let widening =
                Conversion { to: if to.is_signed() { Type::S64 } else { Type::U64 }, from: to, ..conversion };
            self.emit(Op::Alu(Alu::Convert(widening)), &[wide], &[narrow])?;
            return Ok(true);
        }
        let result = self.result(context, 0, to.class())?;
        if !result.is_none() {
            self.emit(op, &[result], &operands)?;
        }
        Ok(true)
    }

    /// An operand whose register may be wider than its type.
    fn narrowed(&mut self, context: Context<'_, 'a>, index: usize, kind: Type) -> Result<Operand, PtxError> {
        if let tree::Operand::Name(name) = context.operand(index)?
            && kind.class() == Class::Word
            && let Ok(wide) = self.register(context, name, Class::Long)
        {
            let narrow = self.new_register(Class::Word);
            self.emit(Op::Alu(Alu::Unpack64), &[narrow, Operand::NONE], &[wide])?;
            return Ok(narrow);
        }
        self.value(context, index, kind)
    }
}
