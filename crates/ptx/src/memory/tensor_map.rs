//! Tensor maps for TMA copies, as `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col` make them. NVIDIA's encoding is not
//! published; this one holds the same fields in its own format.

use crate::isa::Type;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MapElement {
    /// 8-bit integers, or any other bytes.
    U8,
    /// 16-bit integers.
    U16,
    /// 32-bit integers.
    U32,
    /// Signed 32-bit integers.
    I32,
    /// 64-bit integers.
    U64,
    /// f16.
    F16,
    /// bf16.
    Bf16,
    /// f32.
    F32,
    /// f64.
    F64,
}

impl MapElement {
    const ALL: [MapElement; 9] = [
        MapElement::U8,
        MapElement::U16,
        MapElement::U32,
        MapElement::I32,
        MapElement::U64,
        MapElement::F16,
        MapElement::Bf16,
        MapElement::F32,
        MapElement::F64,
    ];

    /// Its size.
    pub fn bytes(self) -> usize {
        self.kind().bytes()
    }

    pub(crate) fn kind(self) -> Type {
        match self {
            MapElement::U8 => Type::U8,
            MapElement::U16 => Type::U16,
            MapElement::U32 => Type::U32,
            MapElement::I32 => Type::S32,
            MapElement::U64 => Type::U64,
            MapElement::F16 => Type::F16,
            MapElement::Bf16 => Type::Bf16,
            MapElement::F32 => Type::F32,
            MapElement::F64 => Type::F64,
        }
    }
}

/// How 16-byte pieces are permuted in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Swizzle {
    /// They are not.
    None,
    /// Within 32 bytes.
    Bytes32,
    /// Within 64 bytes.
    Bytes64,
    /// Within 128 bytes.
    Bytes128,
}

impl Swizzle {
    const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

    /// The span in bytes; 0 for none.
    pub fn bytes(self) -> usize {
        match self {
            Swizzle::None => 0,
            Swizzle::Bytes32 => 32,
            Swizzle::Bytes64 => 64,
            Swizzle::Bytes128 => 128,
        }
    }

    /// The swizzled offset in shared memory: offset bits 4 and up are XORed with bits 7 and up.
    pub(crate) fn swizzled(self, offset: usize) -> usize {
        let bits = match self {
            Swizzle::None => 0,
            Swizzle::Bytes32 => 1,
            Swizzle::Bytes64 => 3,
            Swizzle::Bytes128 => 7,
        };
        offset ^ (offset >> 7 & bits) << 4
    }

    /// The alignment that a box in shared memory needs.
    pub(crate) fn alignment(self) -> u64 {
        128
    }
}

/// What one copy moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorMapKind {
    /// A box.
    Tiled {
        /// Its extents, the innermost axis first.
        tile: [u32; 5],
    },
    /// Some channels of consecutive pixels, for convolutions.
    Im2col {
        /// The lower corner of the pixel box, relative to the first pixel: width, height, depth.
        lower: [i16; 3],
        /// The upper corner, relative to the last pixel.
        upper: [i16; 3],
        /// Channels per pixel.
        channels: u32,
        /// Pixels per copy.
        pixels: u32,
    },
}

/// A description of a tensor for TMA copies. The innermost axis comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The address of the first element.
    pub address: u64,
    /// The element type.
    pub element: MapElement,
    /// The number of axes, 1 to 5.
    pub rank: usize,
    /// The tensor's extents.
    pub extents: [u64; 5],
    /// Bytes from one element of an axis to the next, for every axis but the innermost.
    pub strides: [u64; 4],
    /// The step between copied elements of the box, along each axis.
    pub element_strides: [u32; 5],
    /// What is copied.
    pub kind: TensorMapKind,
    /// The swizzle in shared memory.
    pub swizzle: Swizzle,
    /// Whether elements outside the tensor read as NaN rather than zero.
    pub nan_outside: bool,
}

/// The part of a row that is inside the tensor: its address, and its range of bytes in the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub address: u64,
    pub within: (usize, usize),
}

/// A rule of `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col` that a tensor map breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorMapError {
    /// Too many axes, or too few.
    #[error("the rank is {rank}, but must be {least} to 5")]
    Rank {
        /// The map's rank.
        rank: usize,
        /// The lowest rank of its kind: an im2col map needs 3.
        least: usize,
    },
    /// The first element's address is not aligned.
    #[error("the tensor's address {0:#x} is not a multiple of 16")]
    Address(u64),
    /// An extent of the tensor is out of range.
    #[error("an extent of the tensor is {0}, but must be 1 to 2^32")]
    Extent(u64),
    /// A stride is not aligned, or too large.
    #[error("a stride is {0} bytes, but must be a multiple of 16 below 2^40")]
    Stride(u64),
    /// An element stride is out of range.
    #[error("an element stride is {0}, but must be 1 to 8")]
    ElementStride(u32),
    /// An extent of the box is out of range.
    #[error("an extent of the box is {0}, but must be 1 to 256")]
    BoxExtent(u32),
    /// An im2col copy of too many channels or pixels, or of none.
    #[error(
        "the box has {pixels} pixels of {channels} channels, but must have 1 to 1024 pixels of 1 to 256 channels"
    )]
    Im2colBox {
        /// Channels per pixel.
        channels: u32,
        /// Pixels per copy.
        pixels: u32,
    },
    /// The box's rows are not a multiple of 16 bytes.
    #[error("the box has rows of {0} bytes, which is not a multiple of 16")]
    RowBytes(usize),
    /// The box's rows do not fit into the swizzle span.
    #[error("the box has rows of {inner} bytes, which do not fit into the {swizzle}-byte swizzle")]
    SwizzleWidth {
        /// Bytes of a row of the box.
        inner: usize,
        /// Bytes of the swizzle span.
        swizzle: usize,
    },
}

const MAGIC: [u8; 4] = *b"KTM1";

impl TensorMap {
    /// The size of an encoded map.
    pub const BYTES: usize = 128;

    /// Encodes the map as a kernel argument.
    ///
    /// # Errors
    /// If the driver would refuse it.
    pub fn encode(&self) -> Result<[u8; TensorMap::BYTES], TensorMapError> {
        self.validate()?;
        let mut bytes = Vec::with_capacity(TensorMap::BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.address.to_le_bytes());
        bytes.extend([self.element as u8, self.rank as u8, self.swizzle as u8, u8::from(self.nan_outside)]);
        // Extents go up to 2^32, so one less fits into 32 bits.
        self.extents
            .iter()
            .for_each(|extent| bytes.extend(((extent.saturating_sub(1)) as u32).to_le_bytes()));
        self.strides.iter().for_each(|stride| bytes.extend(stride.to_le_bytes()));
        self.element_strides.iter().for_each(|&stride| bytes.push(stride as u8));
        match self.kind {
            TensorMapKind::Tiled { tile } => {
                bytes.push(0);
                tile.iter().for_each(|&extent| bytes.extend((extent as u16).to_le_bytes()));
            }
            TensorMapKind::Im2col { lower, upper, channels, pixels } => {
                bytes.push(1);
                lower.iter().chain(&upper).for_each(|corner| bytes.extend(corner.to_le_bytes()));
                bytes.extend((channels as u16).to_le_bytes());
                bytes.extend((pixels as u16).to_le_bytes());
            }
        }
        let mut all = [0; TensorMap::BYTES];
        all[..bytes.len()].copy_from_slice(&bytes);
        Ok(all)
    }

    /// Decodes a map; `None` if the bytes are not one.
    pub(crate) fn decode(bytes: &[u8; TensorMap::BYTES]) -> Option<TensorMap> {
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let mut take = |count: usize| {
            let (value, after) = rest.split_at_checked(count)?;
            rest = after;
            Some(value.iter().rev().fold(0u64, |all, &byte| all << 8 | u64::from(byte)))
        };
        let address = take(8)?;
        let element = *MapElement::ALL.get(take(1)? as usize)?;
        let rank = take(1)? as usize;
        let swizzle = *Swizzle::ALL.get(take(1)? as usize)?;
        let nan_outside = take(1)? == 1;
        let mut extents = [1; 5];
        for extent in &mut extents {
            *extent = take(4)? + 1;
        }
        let mut strides = [0; 4];
        for stride in &mut strides {
            *stride = take(8)?;
        }
        let mut element_strides = [1; 5];
        for stride in &mut element_strides {
            *stride = take(1)? as u32;
        }
        let kind = if take(1)? == 0 {
            let mut tile = [1; 5];
            for extent in &mut tile {
                *extent = take(2)? as u32;
            }
            TensorMapKind::Tiled { tile }
        } else {
            let mut corners = [0i16; 6];
            for corner in &mut corners {
                *corner = take(2)? as i16;
            }
            let [a, b, c, d, e, f] = corners;
            let (channels, pixels) = (take(2)? as u32, take(2)? as u32);
            TensorMapKind::Im2col { lower: [a, b, c], upper: [d, e, f], channels, pixels }
        };
        let map = TensorMap {
            address,
            element,
            rank,
            extents,
            strides,
            element_strides,
            kind,
            swizzle,
            nan_outside,
        };
        map.validate().is_ok().then_some(map)
    }

    /// Checks the driver's rules.
    fn validate(&self) -> Result<(), TensorMapError> {
        let TensorMap { rank, address, swizzle, .. } = *self;
        let least = if matches!(self.kind, TensorMapKind::Im2col { .. }) { 3 } else { 1 };
        if !(least..=5).contains(&rank) {
            return Err(TensorMapError::Rank { rank, least });
        }
        if address % 16 != 0 {
            return Err(TensorMapError::Address(address));
        }
        if let Some(&extent) = self.extents[..rank].iter().find(|extent| !(1..=1 << 32).contains(*extent)) {
            return Err(TensorMapError::Extent(extent));
        }
        let allowed = |stride: &u64| stride.is_multiple_of(16) && *stride < 1 << 40;
        if let Some(&stride) = self.strides[..rank - 1].iter().find(|stride| !allowed(stride)) {
            return Err(TensorMapError::Stride(stride));
        }
        if let Some(&stride) = self.element_strides[..rank].iter().find(|stride| !(1..=8).contains(*stride)) {
            return Err(TensorMapError::ElementStride(stride));
        }
        match self.kind {
            TensorMapKind::Tiled { tile } => {
                if let Some(&extent) = tile[..rank].iter().find(|extent| !(1..=256).contains(*extent)) {
                    return Err(TensorMapError::BoxExtent(extent));
                }
            }
            TensorMapKind::Im2col { channels, pixels, .. } => {
                if !(1..=256).contains(&channels) || !(1..=1024).contains(&pixels) {
                    return Err(TensorMapError::Im2colBox { channels, pixels });
                }
            }
        }
        let inner = self.inner_bytes();
        if !inner.is_multiple_of(16) {
            return Err(TensorMapError::RowBytes(inner));
        }
        if swizzle != Swizzle::None && inner > swizzle.bytes() {
            return Err(TensorMapError::SwizzleWidth { inner, swizzle: swizzle.bytes() });
        }
        Ok(())
    }

    /// Bytes of a row of the box.
    pub(crate) fn inner_bytes(&self) -> usize {
        let elements = match self.kind {
            TensorMapKind::Tiled { tile } => tile[0].div_ceil(self.element_strides[0].max(1)),
            TensorMapKind::Im2col { channels, .. } => channels,
        };
        elements as usize * self.element.bytes()
    }

    fn row_count(&self) -> usize {
        match self.kind {
            TensorMapKind::Tiled { tile } => (1..self.rank)
                .map(|axis| tile[axis].div_ceil(self.element_strides[axis].max(1)) as usize)
                .product(),
            TensorMapKind::Im2col { pixels, .. } => pixels as usize,
        }
    }

    /// Bytes of the box in shared memory.
    pub(crate) fn box_bytes(&self) -> usize {
        self.inner_bytes() * self.row_count()
    }

    /// Fills a row with the value of elements outside the tensor.
    pub(crate) fn fill(&self, row: &mut [u8]) {
        let nan: &[u8] = match self.element {
            _ if !self.nan_outside => return,
            MapElement::F16 | MapElement::Bf16 => &[0xff, 0x7f],
            MapElement::F32 => &[0xff, 0xff, 0xff, 0x7f],
            _ => return,
        };
        row.iter_mut().zip(nan.iter().cycle()).for_each(|(byte, nan)| *byte = *nan);
    }

    /// The rows of the box in shared-memory order: for each the part that is inside the tensor, if any.
    pub(crate) fn rows(&self, coordinates: &[i32; 5], offsets: &[u32; 3]) -> Vec<Option<Run>> {
        match self.kind {
            TensorMapKind::Tiled { tile } => self.box_rows(coordinates, &tile),
            TensorMapKind::Im2col { lower, upper, pixels, .. } => {
                self.pixel_rows(coordinates, offsets, &lower, &upper, pixels)
            }
        }
    }

    fn box_rows(&self, coordinates: &[i32; 5], tile: &[u32; 5]) -> Vec<Option<Run>> {
        let steps: [u32; 5] = std::array::from_fn(|axis| {
            if axis < self.rank { tile[axis].div_ceil(self.element_strides[axis].max(1)) } else { 1 }
        });
        let mut rows = Vec::with_capacity(self.row_count());
        let mut at = [0u32; 5];
        for _ in 0..self.row_count() {
            let place = |axis: usize| {
                i64::from(coordinates[axis]) + i64::from(at[axis]) * i64::from(self.element_strides[axis])
            };
            rows.push(self.row_at(i64::from(coordinates[0]), &std::array::from_fn(place)));
            for axis in 1..self.rank {
                at[axis] += 1;
                if at[axis] < steps[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
        rows
    }

    /// Pixels run along the width of the box, then its height and depth, then the images.
    fn pixel_rows(
        &self,
        coordinates: &[i32; 5],
        offsets: &[u32; 3],
        lower: &[i16; 3],
        upper: &[i16; 3],
        pixels: u32,
    ) -> Vec<Option<Run>> {
        let spatial = self.rank - 2;
        let mut at: [i64; 5] = coordinates.map(i64::from);
        let mut rows = Vec::with_capacity(pixels as usize);
        for _ in 0..pixels {
            let place = |axis: usize| match axis {
                _ if (1..=spatial).contains(&axis) => at[axis] + i64::from(offsets[axis - 1]),
                _ => at[axis],
            };
            rows.push(self.row_at(at[0], &std::array::from_fn(place)));
            for axis in 1..self.rank {
                at[axis] += i64::from(self.element_strides[axis]);
                if axis > spatial {
                    break;
                }
                let end = self.extents[axis] as i64 + i64::from(upper[axis - 1]);
                if at[axis] < end {
                    break;
                }
                at[axis] = i64::from(lower[axis - 1]);
            }
        }
        rows
    }

    /// The part of a row that is inside the tensor: elements from `first`, at `place` on the other axes.
    fn row_at(&self, first: i64, place: &[i64; 5]) -> Option<Run> {
        let mut address = self.address;
        for (axis, &place) in place.iter().enumerate().take(self.rank).skip(1) {
            if !(0..self.extents[axis] as i64).contains(&place) {
                return None;
            }
            address = address.wrapping_add((place as u64).wrapping_mul(self.strides[axis - 1]));
        }
        let bytes = self.element.bytes() as i64;
        let elements = self.inner_bytes() as i64 / bytes;
        let begin = first.max(0);
        let end = (first + elements).min(self.extents[0] as i64);
        if begin >= end {
            return None;
        }
        let within = (((begin - first) * bytes) as usize, ((end - first) * bytes) as usize);
        Some(Run { address: address.wrapping_add((begin * bytes) as u64), within })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        TensorMap {
            address: 0x1000,
            element: MapElement::F16,
            rank: 3,
            extents: [100, 7, 3, 1, 1],
            strides: [208, 208 * 7, 0, 0],
            element_strides: [1; 5],
            kind: TensorMapKind::Tiled { tile: [64, 4, 2, 1, 1] },
            swizzle: Swizzle::Bytes128,
            nan_outside: false,
        }
    }

    #[test]
    fn a_map_is_what_was_encoded() {
        let map = map();
        assert_eq!(TensorMap::decode(&map.encode().unwrap()), Some(map));
        let im2col =
            TensorMapKind::Im2col { lower: [-1, -1, 0], upper: [-1, -1, 0], channels: 64, pixels: 128 };
        let map = TensorMap { kind: im2col, rank: 4, ..map };
        assert_eq!(TensorMap::decode(&map.encode().unwrap()), Some(map));
        assert_eq!(TensorMap::decode(&[7; 128]), None);
    }

    #[test]
    fn the_drivers_rules() {
        let refused = |map: TensorMap| assert!(map.encode().is_err(), "{map:?}");
        refused(TensorMap { address: 8, ..map() });
        refused(TensorMap { rank: 6, ..map() });
        refused(TensorMap { strides: [200, 1400, 0, 0], ..map() });
        refused(TensorMap { kind: TensorMapKind::Tiled { tile: [128, 4, 2, 1, 1] }, ..map() });
        refused(TensorMap { kind: TensorMapKind::Tiled { tile: [64, 257, 2, 1, 1] }, ..map() });
        refused(TensorMap { extents: [0, 7, 3, 1, 1], ..map() });
    }

    #[test]
    fn rows_are_cut_at_the_tensors_edges() {
        let rows = map().rows(&[64, -1, 2, 0, 0], &[0; 3]);
        assert_eq!(rows.len(), 8);
        assert_eq!(rows[0], None);
        let run = Run { address: 0x1000 + 2 * 208 * 7 + 128, within: (0, 72) };
        assert_eq!(rows[1], Some(run));
        assert!(rows[4..].iter().all(Option::is_none));
    }
}
