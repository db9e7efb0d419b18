//! Which texels a coordinate reads, and with what weights, as the CUDA C++ Programming Guide defines it.

use crate::memory::{AddressMode, ChannelKind, TexelFormat};

/// The two neighbours of a coordinate on one axis, and the weight of the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Neighbours {
    /// Their indices; `None` outside, where the border is.
    pub index: [Option<u32>; 2],
    pub weight: f32,
}

/// The axis of a texture that a coordinate belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub extent: u32,
    pub mode: AddressMode,
    pub normalised: bool,
}

impl Axis {
    /// The texel that a coordinate lies in.
    pub fn point(self, x: f32) -> Option<u32> {
        self.index(self.scaled(x).floor())
    }

    /// The two texels that a coordinate lies between.
    pub fn linear(self, x: f32) -> Neighbours {
        let x = self.scaled(x) - 0.5;
        let first = x.floor();
        // The fraction has eight bits; rounded up it may be one.
        let weight = ((x - first) * 256.0 + 0.5).floor() / 256.0;
        let weight = if weight.is_finite() { weight } else { 0.0 };
        Neighbours { index: [self.index(first), self.index(first + 1.0)], weight }
    }

    /// A coordinate in texels.
    fn scaled(self, x: f32) -> f32 {
        if !self.normalised {
            return x;
        }
        let fraction = x - x.floor();
        let x = match self.mode {
            AddressMode::Wrap => fraction,
            AddressMode::Mirror if x.floor() % 2.0 == 0.0 => fraction,
            AddressMode::Mirror => 1.0 - fraction,
            AddressMode::Clamp | AddressMode::Border => x,
        };
        x * self.extent as f32
    }

    /// The texel of a whole number, which may be outside.
    pub fn index(self, at: f32) -> Option<u32> {
        // A conversion from floating point saturates, and takes a NaN as zero.
        let (at, extent) = (at as i64, i64::from(self.extent));
        match self.mode {
            AddressMode::Border if !(0..extent).contains(&at) => None,
            AddressMode::Wrap if self.normalised => Some(at.rem_euclid(extent) as u32),
            _ => Some(at.clamp(0, extent - 1) as u32),
        }
    }
}

/// The face of a cube that a direction points at, and the coordinates on it.
pub(crate) fn cube_face([x, y, z]: [f32; 3]) -> (u32, [f32; 2]) {
    let [ax, ay, az] = [x.abs(), y.abs(), z.abs()];
    let (face, m, s, t) = if ax > ay && ax > az {
        if x >= 0.0 { (0, x, -z, -y) } else { (1, -x, z, -y) }
    } else if ay > az {
        if y >= 0.0 { (2, y, x, z) } else { (3, -y, x, -z) }
    } else if z >= 0.0 {
        (4, z, x, -y)
    } else {
        (5, -z, -x, -y)
    };
    (face, [(s / m + 1.0) / 2.0, (t / m + 1.0) / 2.0])
}

/// The bits of a texel's channel, as an integer of 32 bits or an f32.
pub(crate) fn channel(format: TexelFormat, normalised: bool, texel: u128, channel: usize) -> u32 {
    let bits = u32::from(format.bits);
    if channel >= format.channels as usize {
        // What is missing is zero, except for the last.
        let one = if normalised || format.kind == ChannelKind::Float { 1f32.to_bits() } else { 1 };
        return if channel == 3 { one } else { 0 };
    }
    let raw = (texel >> (bits * channel as u32)) as u32 & (u32::MAX >> (32 - bits));
    match format.kind {
        ChannelKind::Float if bits == 16 => super::from_f16(raw).to_bits(),
        ChannelKind::Float => raw,
        ChannelKind::Unsigned if normalised => (raw as f32 / ((1u32 << bits) - 1) as f32).to_bits(),
        ChannelKind::Unsigned => raw,
        ChannelKind::Signed => {
            let value = (raw << (32 - bits)) as i32 >> (32 - bits);
            let largest = ((1u32 << (bits - 1)) - 1) as f32;
            if normalised { (value as f32 / largest).max(-1.0).to_bits() } else { value as u32 }
        }
    }
}
