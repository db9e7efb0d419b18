//! Textures and surfaces as the command line spells them: `texture:linear,normalised:f32x4[64,64]=random`, `surface:f32[64,64]`.

use kinora_lab::Element;
use kinora_ptx::{
    AddressMode, ArrayDescription, ArrayKind, ChannelKind, DeviceAddress, DeviceArray, FilterMode, PtxError,
    ReadMode, Simulator, TexelFormat, TextureDescription, TextureSource,
};

use super::operands::{ArgumentError, Buffer};

/// A texture or a surface over a buffer, whose innermost axis are the channels of a texel.
#[derive(Clone, Debug, PartialEq)]
pub struct Texels {
    surface: bool,
    memory: bool,
    layered: bool,
    cube: bool,
    normalised: bool,
    filter: FilterMode,
    address: AddressMode,
    read: ReadMode,
}

impl Texels {
    /// Parses what stands between the colons, and the buffer after them.
    pub fn parse(text: &str, surface: bool) -> Result<(Texels, Buffer), ArgumentError> {
        let (options, buffer) = text.rsplit_once(':').unwrap_or(("", text));
        let mut texels = Texels {
            surface,
            memory: false,
            layered: false,
            cube: false,
            normalised: false,
            filter: FilterMode::Point,
            address: AddressMode::Clamp,
            read: ReadMode::Element,
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option {
                "layered" => texels.layered = true,
                _ if surface => return Err(ArgumentError::Texture(option.to_owned())),
                "memory" => texels.memory = true,
                "cube" => texels.cube = true,
                "normalised" => texels.normalised = true,
                "point" => texels.filter = FilterMode::Point,
                "linear" => texels.filter = FilterMode::Linear,
                "wrap" => texels.address = AddressMode::Wrap,
                "clamp" => texels.address = AddressMode::Clamp,
                "mirror" => texels.address = AddressMode::Mirror,
                "border" => texels.address = AddressMode::Border,
                "unit" => texels.read = ReadMode::NormalisedFloat,
                _ => return Err(ArgumentError::Texture(option.to_owned())),
            }
        }
        // The channels become an axis of the buffer.
        let (name, rest) = buffer.split_once('[').ok_or(ArgumentError::Form)?;
        let (name, channels) = name.split_once('x').unwrap_or((name, "1"));
        let (extents, rest) = rest.split_once(']').ok_or(ArgumentError::Form)?;
        let buffer: Buffer = format!("{name}[{extents},{channels}]{rest}").parse()?;
        texels.description(&buffer)?;
        Ok((texels, buffer))
    }

    /// The array of a buffer, outermost axis first.
    fn description(&self, buffer: &Buffer) -> Result<ArrayDescription, ArgumentError> {
        let format = format(buffer).ok_or(ArgumentError::Texels)?;
        let extents: Option<Vec<u32>> =
            buffer.extents().iter().rev().skip(1).map(|&extent| u32::try_from(extent).ok()).collect();
        let mut extents = extents.ok_or(ArgumentError::Texels)?;
        let cubes = if self.cube {
            extents.pop().filter(|faces| faces % 6 == 0 && extents.len() == 2)
        } else {
            Some(0)
        };
        let cubes = cubes.ok_or(ArgumentError::Texels)? / 6;
        let layers = match (self.layered, self.cube) {
            (true, true) => Some(cubes),
            (true, false) => Some(extents.pop().ok_or(ArgumentError::Texels)?),
            (false, true) if cubes != 1 => return Err(ArgumentError::Texels),
            (false, _) => None,
        };
        let flat = extents.len() == 1 || extents.len() == 2 && !self.memory;
        if !flat && (extents.len() != 3 || self.layered || self.memory) {
            return Err(ArgumentError::Texels);
        }
        let plain = ArrayDescription::new(format, &extents);
        let kind = if self.cube { ArrayKind::Cube } else { plain.kind };
        let array = ArrayDescription { kind, layers, ..plain };
        if !self.memory {
            array.bytes().map_err(|error| ArgumentError::Array(error.to_string()))?;
        }
        Ok(array)
    }

    /// Makes it on the device, over the buffer at an address. Returns its handle.
    pub fn make(
        &self,
        buffer: &Buffer,
        address: DeviceAddress,
        simulator: &mut Simulator,
    ) -> Result<u64, PtxError> {
        let Ok(description) = self.description(buffer) else { return Ok(0) };
        let array = DeviceArray { address, description };
        if self.surface {
            return simulator.surface(&array);
        }
        let source = if self.memory {
            let [width, ..] = description.extents;
            TextureSource::Linear { address, format: description.format, width }
        } else {
            TextureSource::Array(array)
        };
        simulator.texture(&TextureDescription {
            address: [self.address; 3],
            filter: self.filter,
            read: self.read,
            normalised: self.normalised,
            ..TextureDescription::new(source)
        })
    }
}

fn format(buffer: &Buffer) -> Option<TexelFormat> {
    let (kind, bits) = match buffer.element {
        Element::I8 => (ChannelKind::Signed, 8),
        Element::U8 => (ChannelKind::Unsigned, 8),
        Element::I16 => (ChannelKind::Signed, 16),
        Element::U16 => (ChannelKind::Unsigned, 16),
        Element::I32 => (ChannelKind::Signed, 32),
        Element::U32 => (ChannelKind::Unsigned, 32),
        Element::F16 => (ChannelKind::Float, 16),
        Element::F32 => (ChannelKind::Float, 32),
        Element::I64 | Element::U64 | Element::Bf16 | Element::F64 => return None,
    };
    let channels = buffer.extents().last().copied().filter(|channels| matches!(channels, 1 | 2 | 4))?;
    Some(TexelFormat { kind, bits, channels: channels as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(ArrayDescription, Texels), ArgumentError> {
        let (texels, buffer) = Texels::parse(text, false)?;
        Ok((texels.description(&buffer)?, texels))
    }

    #[test]
    fn textures_have_options_and_axes() -> Result<(), ArgumentError> {
        let (array, texels) = parse("linear,wrap,normalised:f32x4[64,32]=random")?;
        assert_eq!((array.kind, array.extents, array.layers), (ArrayKind::Two, [32, 64, 1], None));
        assert_eq!((array.format.channels, array.format.bits), (4, 32));
        assert_eq!((texels.filter, texels.address), (FilterMode::Linear, AddressMode::Wrap));
        assert!(texels.normalised);
        let (array, _) = parse("u8[5,6,7]")?;
        assert_eq!((array.kind, array.extents), (ArrayKind::Three, [7, 6, 5]));
        let (array, _) = parse("layered:f16x2[3,8]")?;
        assert_eq!((array.kind, array.extents, array.layers), (ArrayKind::One, [8, 1, 1], Some(3)));
        let (array, _) = parse("cube,layered:f32[12,8,8]")?;
        assert_eq!((array.kind, array.extents, array.layers), (ArrayKind::Cube, [8, 8, 1], Some(2)));
        let (array, texels) = parse("memory:f32[1000000]")?;
        assert_eq!((array.extents[0], texels.memory), (1_000_000, true));
        Ok(())
    }

    #[test]
    fn what_is_no_texture_is_refused() {
        for wrong in [
            "",
            "f32",
            "f32x3[4]",
            "f32xx[4]",
            "f64[4]",
            "bf16[4]",
            "f32[2,2,2,2]",
            "cube:f32[5,8,8]",
            "cube:f32[12,8,8]",
            "cube:f32[6,8]",
            "cube:f32[6,8,9]",
            "layered:f32[2,2,2,2]",
            "memory:f32[2,2]",
            "cubic:f32[8]",
            "f32[0,4]",
            "f32[4000000000,4]",
            "f32[99999999999,4]",
        ] {
            assert!(Texels::parse(wrong, false).is_err(), "{wrong}");
        }
        assert!(Texels::parse("linear:f32[4]", true).is_err());
        assert!(Texels::parse("layered:f32[4,4]", true).is_ok());
    }
}
