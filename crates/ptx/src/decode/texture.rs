//! Textures and surfaces, by handles in 64-bit registers.

use super::{Context, Decoder, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{Boundary, Class, Op, Operand, SurfaceAccess, TextureAxes, TextureFetch, TextureQuery, Type},
    syntax::tree,
};

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn texture(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        match modifiers.name() {
            "tex" | "tld4" => self.texture_fetch(context, modifiers)?,
            "txq" | "suq" => self.texture_query(context, modifiers)?,
            "suld" | "sust" => self.surface_access(context, modifiers)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn axes(&self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<TextureAxes, PtxError> {
        let parts = modifiers.parts();
        let found = parts.iter().find_map(|&part| TextureAxes::named(part).map(|axes| (part, axes)));
        let Some((part, axes)) = found else {
            return Err(context.unsupported("a texture or surface with these axes"));
        };
        modifiers.take(part);
        Ok(axes)
    }

    /// A handle and coordinates in brackets; the last kind is that of all coordinates but the layer.
    fn texel(
        &mut self,
        context: Context<'_, 'a>,
        index: usize,
        axes: TextureAxes,
        kind: Type,
    ) -> Result<Vec<Operand>, PtxError> {
        let tree::Operand::Address { base: Some(name), offset: 0, coordinates } =
            context.operand(index)?.clone()
        else {
            return Err(context.wrong(format!("operand {} must be a handle with coordinates", index + 1)));
        };
        let mut operands = vec![self.handle(context, name)?];
        // Vectors of three coordinates are padded to four.
        let count = axes.coordinates();
        if coordinates.len() != count && (count != 3 || coordinates.len() != 4) {
            return Err(
                context.wrong(format!("expected {count} coordinates, but found {}", coordinates.len()))
            );
        }
        for (i, coordinate) in coordinates.iter().take(count).enumerate() {
            let kind = if axes.is_layered() && i == 0 { Type::U32 } else { kind };
            operands.push(self.value_of(context, coordinate, kind)?);
        }
        Ok(operands)
    }

    fn handle(&mut self, context: Context<'_, 'a>, name: &'a str) -> Result<Operand, PtxError> {
        if self.find_address(name).is_some() {
            return Err(context.unsupported("a texture that is a variable; pass its handle as an argument"));
        }
        self.register(context, name, Class::Long)
    }

    fn texture_fetch(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        let gathers = modifiers.name() == "tld4";
        let channels = [("r", 0), ("g", 1), ("b", 2), ("a", 3)];
        let gather = if gathers { modifiers.take_any(&channels) } else { None };
        if gathers && gather.is_none() {
            return Err(context.wrong("expected a channel: r, g, b or a"));
        }
        modifiers.take("base");
        let level = !gathers && modifiers.take("level");
        let gradient = !gathers && !level && modifiers.take("grad");
        let axes = self.axes(context, modifiers)?;
        let four = modifiers.take("v4");
        let two = modifiers.take("v2");
        let types = modifiers.take_types();
        let [kind, coordinate] = types[..] else { return Err(context.wrong("expected two types")) };
        let halves = kind == Type::F16x2 && two && !gathers;
        let known = halves || four && matches!(kind, Type::U32 | Type::S32 | Type::F32);
        let integer = coordinate == Type::S32;
        if !known || !(coordinate == Type::F32 || integer && !gathers && !axes.is_cube()) {
            return Err(context.unsupported("a texture read of these types"));
        }
        if gathers && axes.count() != 2 {
            return Err(context.unsupported("tld4 of a texture with these axes"));
        }
        // Textures have one level, so that the level and the gradients choose nothing.
        context.expect(2 + if gradient { 2 } else { usize::from(level) })?;
        if level {
            self.value(context, 2, coordinate)?;
        }
        let results = self.result_list(context, 0, Class::Word)?;
        let words = |result: &Operand| result.is_none() || result.class() == Class::Word;
        if results.len() != if halves { 2 } else { 4 } || !results.iter().all(words) {
            return Err(context.wrong("a texture read has four results of 32 bits, or two of f16x2"));
        }
        let operands = self.texel(context, 1, axes, coordinate)?;
        self.emit(Op::Texture(TextureFetch { axes, integer, gather, halves }), &results, &operands)
    }

    fn texture_query(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        let surface = modifiers.name() == "suq";
        modifiers.take("b32");
        let queries = [
            ("width", TextureQuery::Width),
            ("height", TextureQuery::Height),
            ("depth", TextureQuery::Depth),
            ("array_size", TextureQuery::ArraySize),
            ("num_mipmap_levels", TextureQuery::Levels),
            ("num_samples", TextureQuery::Samples),
            ("normalized_coords", TextureQuery::Normalised),
            ("channel_data_type", TextureQuery::ChannelType),
            ("channel_order", TextureQuery::ChannelOrder),
        ];
        let Some(query) = modifiers.take_any(&queries) else {
            return Err(context.unsupported("this query"));
        };
        context.expect(2)?;
        let result = self.result(context, 0, Class::Word)?;
        let tree::Operand::Address { base: Some(name), offset: 0, .. } = context.operand(1)?.clone() else {
            return Err(context.wrong("operand 2 must be a handle"));
        };
        let handle = self.handle(context, name)?;
        if result.is_none() {
            return Ok(());
        }
        self.emit(Op::TextureQuery { query, surface }, &[result], &[handle])
    }

    fn surface_access(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        let load = modifiers.name() == "suld";
        if !modifiers.take("b") {
            return Err(context.unsupported("a surface access with a conversion"));
        }
        let axes = self.axes(context, modifiers)?;
        if axes.is_cube() {
            return Err(context.unsupported("a surface with these axes"));
        }
        modifiers.take_hints();
        let boundaries = [("trap", Boundary::Trap), ("clamp", Boundary::Clamp), ("zero", Boundary::Zero)];
        let boundary = modifiers.take_any(&boundaries).unwrap_or(Boundary::Trap);
        let lanes = modifiers.take_any(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
        let kind = self.type_of(context, modifiers)?;
        let bytes = kind.bytes();
        if !matches!(kind, Type::B8 | Type::B16 | Type::B32 | Type::B64) || bytes * lanes > 16 {
            return Err(context.unsupported("a surface access of this size"));
        }
        context.expect(2)?;
        let access = SurfaceAccess { axes, boundary, bytes: bytes as u8, lanes: lanes as u8 };
        let count = |found: usize| match found == lanes {
            true => Ok(()),
            false => Err(context.wrong(format!("expected {lanes} registers, but found {found}"))),
        };
        if load {
            let results = self.result_list(context, 0, kind.class())?;
            count(results.len())?;
            let operands = self.texel(context, 1, axes, Type::U32)?;
            return self.emit(Op::LoadSurface(access), &results, &operands);
        }
        let mut operands = self.texel(context, 0, axes, Type::U32)?;
        let parts = self.list(context, 1)?;
        count(parts.len())?;
        for part in &parts {
            operands.push(self.value_of(context, part, kind)?);
        }
        self.emit(Op::StoreSurface(access), &[], &operands)
    }
}
