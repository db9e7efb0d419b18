//! Arrays, textures and surfaces, as the CUDA runtime makes them. The texels of an array lie row by row in an allocation of its own.

use super::Missing;

/// What a channel of a texel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// Signed integers of 8, 16 or 32 bits.
    Signed,
    /// Unsigned integers of 8, 16 or 32 bits.
    Unsigned,
    /// Floating-point numbers of 16 or 32 bits.
    Float,
}

/// The format of a texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TexelFormat {
    /// What its channels hold.
    pub kind: ChannelKind,
    /// The bits of a channel.
    pub bits: u8,
    /// How many channels there are: 1, 2 or 4.
    pub channels: u8,
}

impl TexelFormat {
    /// The bytes of a texel.
    pub fn bytes(self) -> usize {
        self.bits as usize / 8 * self.channels as usize
    }

    fn check(self) -> Result<(), TextureError> {
        let TexelFormat { kind, bits, channels } = self;
        let bits_exist =
            matches!((kind, bits), (_, 16 | 32) | (ChannelKind::Signed | ChannelKind::Unsigned, 8));
        if bits_exist && matches!(channels, 1 | 2 | 4) { Ok(()) } else { Err(TextureError::Format(self)) }
    }
}

/// The axes of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArrayKind {
    /// A row.
    One,
    /// Rows.
    Two,
    /// Slices of rows.
    Three,
    /// Six square faces: +x, -x, +y, -y, +z, -z.
    Cube,
}

/// The shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayDescription {
    /// The format of its texels.
    pub format: TexelFormat,
    /// Its axes.
    pub kind: ArrayKind,
    /// Width, height and depth; 1 on the axes that it does not have.
    pub extents: [u32; 3],
    /// The layers of a layered array, which are cubes if it is an array of cubes.
    pub layers: Option<u32>,
}

impl ArrayDescription {
    /// An array without layers. Of the extents width, height and depth, it has as many as are given.
    pub fn new(format: TexelFormat, extents: &[u32]) -> ArrayDescription {
        let kind = match extents.len() {
            0 | 1 => ArrayKind::One,
            2 => ArrayKind::Two,
            _ => ArrayKind::Three,
        };
        let extents = std::array::from_fn(|axis| extents.get(axis).copied().unwrap_or(1));
        ArrayDescription { format, kind, extents, layers: None }
    }

    /// The bytes of all texels.
    ///
    /// # Errors
    /// If there can be no such array.
    pub fn bytes(&self) -> Result<usize, TextureError> {
        self.format.check()?;
        let [width, height, depth] = self.extents;
        let (most, layers_allowed) = match self.kind {
            ArrayKind::One => ([131_072, 1, 1], true),
            ArrayKind::Two => ([131_072, 131_072, 1], true),
            ArrayKind::Three => ([16_384; 3], false),
            ArrayKind::Cube => ([32_768, 32_768, 1], true),
        };
        let fits = (0..3).all(|axis| (1..=most[axis]).contains(&self.extents[axis]));
        let layers = match self.layers {
            None => true,
            Some(layers) => layers_allowed && (1..=2048).contains(&layers),
        };
        if !fits || !layers || self.kind == ArrayKind::Cube && width != height {
            return Err(TextureError::Extents(*self));
        }
        let texels = u64::from(width) * u64::from(height) * u64::from(depth);
        usize::try_from(texels * u64::from(self.slices()) * self.format.bytes() as u64)
            .map_err(|_| TextureError::Extents(*self))
    }

    /// The layers and faces.
    fn slices(&self) -> u32 {
        self.layers.unwrap_or(1) * if self.kind == ArrayKind::Cube { 6 } else { 1 }
    }
}

/// An array in device memory. Its texels lie at its address, row after row, slice after slice, layer after layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceArray {
    /// Where its texels lie, for copies to and from the device.
    pub address: u64,
    /// Its shape.
    pub description: ArrayDescription,
}

/// What a texture reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextureSource {
    /// An array.
    Array(DeviceArray),
    /// Device memory, for `tex1Dfetch`.
    Linear {
        /// Where it starts.
        address: u64,
        /// The format of its texels.
        format: TexelFormat,
        /// How many there are.
        width: u32,
    },
    /// Rows of device memory.
    Pitched {
        /// Where they start.
        address: u64,
        /// The format of their texels.
        format: TexelFormat,
        /// Texels of a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Bytes from one row to the next.
        pitch: u32,
    },
}

/// What a texture reads outside its texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressMode {
    /// The texels again; the same as [`AddressMode::Clamp`] unless coordinates are normalised.
    Wrap,
    /// The nearest texel.
    Clamp,
    /// The texels mirrored; the same as [`AddressMode::Clamp`] unless coordinates are normalised.
    Mirror,
    /// The border colour.
    Border,
}

/// How a texture is filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterMode {
    /// The nearest texel.
    Point,
    /// Linearly between the neighbours on every axis, with weights of eight fractional bits.
    Linear,
}

/// What reading a texel gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// Its numbers.
    Element,
    /// Integers of 8 or 16 bits as floating-point numbers from 0 or -1 to 1.
    NormalisedFloat,
}

/// A texture: what it reads and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextureDescription {
    /// What it reads.
    pub source: TextureSource,
    /// What it reads outside, on each axis.
    pub address: [AddressMode; 3],
    /// How it is filtered.
    pub filter: FilterMode,
    /// What reading a texel gives.
    pub read: ReadMode,
    /// Whether coordinates go from 0 to 1 instead of to the extent.
    pub normalised: bool,
    /// The colour of [`AddressMode::Border`].
    pub border: [f32; 4],
}

impl TextureDescription {
    /// A texture of the nearest texel, clamped, with coordinates up to the extents.
    pub fn new(source: TextureSource) -> TextureDescription {
        TextureDescription {
            source,
            address: [AddressMode::Clamp; 3],
            filter: FilterMode::Point,
            read: ReadMode::Element,
            normalised: false,
            border: [0.0; 4],
        }
    }
}

/// Why there can be no such array or texture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextureError {
    /// A format that texels cannot have.
    #[error(
        "a texel cannot have {} channels of {} bits ({:?}): 1, 2 or 4 channels of 8, 16 or 32 bits exist, floating-point ones from 16 bits on",
        .0.channels, .0.bits, .0.kind
    )]
    Format(TexelFormat),
    /// Extents or layers that an array cannot have.
    #[error("there can be no array {:?} of {:?} texels and {:?} layers", .0.kind, .0.extents, .0.layers)]
    Extents(ArrayDescription),
    /// Linear memory that is not aligned to its texels.
    #[error(
        "the address {address:#x} or the pitch {pitch} is not a multiple of {bytes} bytes, or a row does not fit its pitch"
    )]
    Alignment {
        /// Where the memory starts.
        address: u64,
        /// Bytes between rows.
        pitch: u32,
        /// The bytes of a texel.
        bytes: usize,
    },
    /// Numbers that cannot be filtered.
    #[error("integers can be filtered only if they are read as normalised floating-point numbers")]
    Filter,
    /// Numbers that cannot be normalised.
    #[error("only integers of 8 and 16 bits can be read as normalised floating-point numbers")]
    Normalised,
}

/// Texels in device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texels {
    pub base: u64,
    pub format: TexelFormat,
    pub kind: ArrayKind,
    pub extents: [u32; 3],
    pub layers: Option<u32>,
    /// Layers and faces.
    pub slices: u32,
    pitch: u64,
    /// Whether it is linear memory, which has no address modes.
    pub linear: bool,
}

impl Texels {
    fn of_array(array: &DeviceArray) -> Result<Texels, TextureError> {
        array.description.bytes()?;
        let ArrayDescription { format, kind, extents, layers } = array.description;
        let pitch = u64::from(extents[0]) * format.bytes() as u64;
        let slices = array.description.slices();
        Ok(Texels { base: array.address, format, kind, extents, layers, slices, pitch, linear: false })
    }

    fn of_memory(
        base: u64,
        format: TexelFormat,
        [width, height]: [u32; 2],
        pitch: Option<u32>,
    ) -> Result<Texels, TextureError> {
        format.check()?;
        let kind = if pitch.is_some() { ArrayKind::Two } else { ArrayKind::One };
        let extents = [width, height, 1];
        let bytes = format.bytes();
        let fits = match pitch {
            None => width as u64 <= 1 << 28,
            Some(pitch) => pitch as usize >= width as usize * bytes && (pitch as usize).is_multiple_of(bytes),
        };
        if width == 0 || height == 0 {
            return Err(TextureError::Extents(ArrayDescription { format, kind, extents, layers: None }));
        }
        if !fits || !base.is_multiple_of(bytes as u64) {
            return Err(TextureError::Alignment { address: base, pitch: pitch.unwrap_or(0), bytes });
        }
        let linear = pitch.is_none();
        let pitch = u64::from(pitch.unwrap_or(0));
        Ok(Texels { base, format, kind, extents, layers: None, slices: 1, pitch, linear })
    }

    /// The address of a texel; `slice` counts layers and faces.
    pub fn address(&self, [x, y, z]: [u32; 3], slice: u32) -> u64 {
        let [_, height, depth] = self.extents.map(u64::from);
        let row = (u64::from(slice) * depth + u64::from(z)) * height + u64::from(y);
        self.base.wrapping_add(row * self.pitch + u64::from(x) * self.format.bytes() as u64)
    }
}

/// A texture as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texture {
    pub texels: Texels,
    pub address: [AddressMode; 3],
    pub filter: FilterMode,
    pub read: ReadMode,
    pub normalised: bool,
    pub border: [f32; 4],
}

/// The upper halves of handles, so that no other number is taken for one.
const TEXTURE: u64 = 0x7465_7874_0000_0000;
const SURFACE: u64 = 0x7375_7266_0000_0000;

/// A device's textures and surfaces.
#[derive(Debug, Default)]
pub(crate) struct Textures {
    textures: Vec<Texture>,
    surfaces: Vec<Texels>,
}

impl Textures {
    pub fn add_texture(&mut self, description: &TextureDescription) -> Result<u64, TextureError> {
        let texels = match &description.source {
            TextureSource::Array(array) => Texels::of_array(array)?,
            &TextureSource::Linear { address, format, width } => {
                Texels::of_memory(address, format, [width, 1], None)?
            }
            &TextureSource::Pitched { address, format, width, height, pitch } => {
                Texels::of_memory(address, format, [width, height], Some(pitch))?
            }
        };
        let TextureDescription { address, filter, read, normalised, border, .. } = *description;
        let float = texels.format.kind == ChannelKind::Float;
        if read == ReadMode::NormalisedFloat && (float || texels.format.bits == 32) {
            return Err(TextureError::Normalised);
        }
        if filter == FilterMode::Linear && !float && read == ReadMode::Element {
            return Err(TextureError::Filter);
        }
        self.textures.push(Texture { texels, address, filter, read, normalised, border });
        Ok(TEXTURE + self.textures.len() as u64)
    }

    pub fn add_surface(&mut self, array: &DeviceArray) -> Result<u64, TextureError> {
        self.surfaces.push(Texels::of_array(array)?);
        Ok(SURFACE + self.surfaces.len() as u64)
    }

    pub fn texture(&self, handle: u64) -> Option<&Texture> {
        self.textures.get(usize::try_from(handle.checked_sub(TEXTURE + 1)?).ok()?)
    }

    pub fn surface(&self, handle: u64) -> Option<&Texels> {
        self.surfaces.get(usize::try_from(handle.checked_sub(SURFACE + 1)?).ok()?)
    }

    /// What a number that is no handle of the wanted kind is.
    pub fn describe(&self, handle: u64, found: Result<usize, Missing>) -> &'static str {
        if self.texture(handle).is_some() {
            "a texture"
        } else if self.surface(handle).is_some() {
            "a surface"
        } else if found.is_ok() {
            "an address in global memory"
        } else {
            "no handle at all"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTE: TexelFormat = TexelFormat { kind: ChannelKind::Unsigned, bits: 8, channels: 1 };

    #[test]
    fn what_cannot_be_is_refused() {
        let array = |format, extents: &[u32]| ArrayDescription::new(format, extents).bytes();
        assert_eq!(array(TexelFormat { channels: 4, ..BYTE }, &[5, 3, 2]), Ok(120));
        assert!(array(TexelFormat { channels: 3, ..BYTE }, &[5]).is_err());
        assert!(array(TexelFormat { kind: ChannelKind::Float, ..BYTE }, &[5]).is_err());
        assert!(array(BYTE, &[5, 0]).is_err());
        assert!(array(BYTE, &[u32::MAX, u32::MAX, u32::MAX]).is_err());
        let cube = ArrayDescription { kind: ArrayKind::Cube, ..ArrayDescription::new(BYTE, &[4, 4]) };
        assert_eq!(cube.bytes(), Ok(96));
        assert_eq!(ArrayDescription { layers: Some(2), ..cube }.bytes(), Ok(192));
        assert!(ArrayDescription { extents: [4, 5, 1], ..cube }.bytes().is_err());
        let mut textures = Textures::default();
        let linear = |address, width| TextureSource::Linear {
            address,
            format: TexelFormat { channels: 4, ..BYTE },
            width,
        };
        let mut add = |texture| textures.add_texture(&texture);
        assert!(add(TextureDescription::new(linear(4, 5))).is_ok());
        assert!(matches!(add(TextureDescription::new(linear(6, 5))), Err(TextureError::Alignment { .. })));
        assert!(matches!(add(TextureDescription::new(linear(4, 0))), Err(TextureError::Extents(_))));
        let filtered =
            TextureDescription { filter: FilterMode::Linear, ..TextureDescription::new(linear(4, 5)) };
        assert_eq!(add(filtered), Err(TextureError::Filter));
        assert!(add(TextureDescription { read: ReadMode::NormalisedFloat, ..filtered }).is_ok());
    }
}
