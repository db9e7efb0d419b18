//! Units that multiply matrices of bfloat16 a tile at a time: 16 rows by 16 pairs, by 16 pairs of as many columns as a vector has
//! lanes.
//!
//! Four tiles hold sums, 32 rows of two vectors, and the other four the operands. The sums are those of [`Simd::mul_add_pairs`] in
//! another order: inputs are taken as they are, subnormal ones as zero, products are exact, sums are rounded to nearest even
//! in f32, and subnormal ones are zero.
//!
//! [`Simd::mul_add_pairs`]: super::Simd::mul_add_pairs

#[cfg(target_arch = "x86_64")]
use super::amx::{Amx, ConfiguredAmx};
#[cfg(test)]
use super::software_tiles::SoftwareTiles;

/// Rows of a tile, and the pairs in a row of the left operand's.
pub(crate) const TILE_ROWS: usize = 16;

/// Bytes in a row of a left operand's tile: the most that a tile has.
pub(crate) const TILE_ROW_BYTES: usize = 64;

/// The operand of `LDTILECFG`. Tiles 0 to 3 are sums, first those of the upper rows; 4 and 5 are of the left operand, and 6 and 7 of
/// the right one.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(super) struct TileConfiguration {
    pub(super) palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    pub(super) row_bytes: [u16; 8],
    reserved_row_bytes: [u16; 8],
    pub(super) rows: [u8; 8],
    reserved_rows: [u8; 8],
}

impl TileConfiguration {
    /// Tiles of 16 rows, those of sums and of the right operand of this many bytes.
    pub(super) const fn new(row_bytes: usize) -> Self {
        let (left, other) = (TILE_ROW_BYTES as u16, row_bytes as u16);
        TileConfiguration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [other, other, other, other, left, left, other, other],
            reserved_row_bytes: [0; 8],
            rows: [TILE_ROWS as u8; 8],
            reserved_rows: [0; 8],
        }
    }
}

/// What [`ConfiguredTiles::multiply`] reads and writes. Distances are in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileOperands {
    /// The first row of the left operand, and the distance to the next.
    pub(crate) a: (*const u8, usize),
    /// The first line of the right operand's panel: a pair of each column. Its lines follow each other.
    pub(crate) b: *const u8,
    /// The first row of the sums, and the distance to the next.
    pub(crate) c: (*mut u8, usize),
    /// How many times 16 pairs the depth is; at least 1.
    pub(crate) depth: usize,
    /// Whether the products are added to the sums that are there.
    pub(crate) add: bool,
}

/// Something that multiplies tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TileUnit {
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
    /// The instructions in Rust, so that packing, edges and loops are tested on every machine.
    #[cfg(test)]
    Software { row_bytes: usize },
}

impl TileUnit {
    /// Configures the tiles of this thread until the result is dropped.
    pub(crate) fn configure(self) -> ConfiguredTiles {
        match self {
            #[cfg(target_arch = "x86_64")]
            TileUnit::Amx(unit) => ConfiguredTiles::Amx(unit.configure()),
            #[cfg(test)]
            TileUnit::Software { row_bytes } => ConfiguredTiles::Software(SoftwareTiles::new(row_bytes)),
        }
    }
}

/// The tiles of a thread, ready to multiply.
pub(crate) enum ConfiguredTiles {
    #[cfg(target_arch = "x86_64")]
    Amx(ConfiguredAmx),
    #[cfg(test)]
    Software(SoftwareTiles),
}

impl ConfiguredTiles {
    /// Multiplies 16 or 32 rows by a panel of two vectors of columns.
    ///
    /// # Safety
    /// The left operand has 16 rows, or if `both` 32, of `64 · depth` bytes. The panel has `16 · depth` lines, a line as many bytes as
    /// two vectors, and so have the 16 or 32 rows of the sums, which are apart from both operands, and initialised if they are added to.
    #[inline(always)]
    pub(crate) unsafe fn multiply(&mut self, both: bool, operands: TileOperands) {
        // SAFETY: passed on from the caller.
        unsafe {
            match *self {
                #[cfg(target_arch = "x86_64")]
                ConfiguredTiles::Amx(ref mut tiles) if both => tiles.multiply_32(operands),
                #[cfg(target_arch = "x86_64")]
                ConfiguredTiles::Amx(ref mut tiles) => tiles.multiply_16(operands),
                #[cfg(test)]
                ConfiguredTiles::Software(ref mut tiles) => tiles.multiply(both, operands),
            }
        }
    }
}
