//! Reads of textures, and accesses to surfaces.

/// The axes of a texture or a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextureAxes {
    One,
    Two,
    Three,
    OneLayered,
    TwoLayered,
    Cube,
    CubeLayered,
}

impl TextureAxes {
    pub fn named(name: &str) -> Option<TextureAxes> {
        Some(match name {
            "1d" => TextureAxes::One,
            "2d" => TextureAxes::Two,
            "3d" => TextureAxes::Three,
            "a1d" => TextureAxes::OneLayered,
            "a2d" => TextureAxes::TwoLayered,
            "cube" => TextureAxes::Cube,
            "acube" => TextureAxes::CubeLayered,
            _ => return None,
        })
    }

    pub fn is_layered(self) -> bool {
        matches!(self, TextureAxes::OneLayered | TextureAxes::TwoLayered | TextureAxes::CubeLayered)
    }

    pub fn is_cube(self) -> bool {
        matches!(self, TextureAxes::Cube | TextureAxes::CubeLayered)
    }

    /// How many axes the texels of a layer have.
    pub fn count(self) -> usize {
        match self {
            TextureAxes::One | TextureAxes::OneLayered => 1,
            TextureAxes::Two | TextureAxes::TwoLayered | TextureAxes::Cube | TextureAxes::CubeLayered => 2,
            TextureAxes::Three => 3,
        }
    }

    /// How many coordinates are used, the layer included.
    pub fn coordinates(self) -> usize {
        match self {
            TextureAxes::Cube => 3,
            TextureAxes::CubeLayered => 4,
            _ => self.count() + usize::from(self.is_layered()),
        }
    }
}

/// A read of a texture, `tex` or `tld4`. Operands: the results, the handle, the coordinates, the layer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextureFetch {
    pub axes: TextureAxes,
    /// Whether coordinates are integers.
    pub integer: bool,
    /// `tld4`: one channel of the four texels that linear filtering would use.
    pub gather: Option<u8>,
    /// Whether the results are two registers of two f16.
    pub halves: bool,
}

/// What a surface access does outside the surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boundary {
    Trap,
    Clamp,
    Zero,
}

/// A load or store of a surface, `suld.b` or `sust.b`. The first coordinate counts bytes. Operands: the handle, the coordinates, the layer
/// first, and the values of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SurfaceAccess {
    pub axes: TextureAxes,
    pub boundary: Boundary,
    /// Bytes of a register's value.
    pub bytes: u8,
    /// Registers.
    pub lanes: u8,
}

/// What `txq` and `suq` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextureQuery {
    Width,
    Height,
    Depth,
    ArraySize,
    Levels,
    Samples,
    Normalised,
    /// The CUDA driver's number of the channel type.
    ChannelType,
    /// The CUDA driver's number of the channels' order.
    ChannelOrder,
}
