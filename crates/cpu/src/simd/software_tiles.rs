//! The instructions of AMX in Rust, as Intel's manual describes them, for the tests of what is built on them.

use half::bf16;

use super::tiles::{TILE_ROWS, TileConfiguration, TileOperands};

/// Tiles that are configured until they are dropped.
pub(crate) struct SoftwareTiles {
    configuration: TileConfiguration,
    tiles: Box<[[u8; 1024]; 8]>,
}

/// Flushes a subnormal value to zero.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

impl SoftwareTiles {
    /// `LDTILECFG`. The tiles are poisoned rather than zeroed: nothing should read what it has not loaded.
    pub(super) fn new(row_bytes: usize) -> Self {
        let configuration = TileConfiguration::new(row_bytes);
        // Every byte in its place, as the instruction reads it.
        let bytes: [u8; 64] = bytes_of(&configuration);
        assert_eq!((bytes[0], bytes[1]), (1, 0), "palette and row to begin with");
        for tile in 0..8 {
            let width = u16::from_le_bytes([bytes[16 + 2 * tile], bytes[17 + 2 * tile]]);
            assert_eq!((width, bytes[48 + tile]), (configuration.row_bytes[tile], configuration.rows[tile]));
            assert!(width <= 64 && width.is_multiple_of(4) && bytes[48 + tile] <= 16);
        }
        assert!(bytes[2..16].iter().chain(&bytes[32..48]).chain(&bytes[56..]).all(|&byte| byte == 0));
        SoftwareTiles { configuration, tiles: Box::new([[0xff; 1024]; 8]) }
    }

    fn rows(&self, tile: usize) -> usize {
        self.configuration.rows[tile].into()
    }

    fn row_bytes(&self, tile: usize) -> usize {
        self.configuration.row_bytes[tile].into()
    }

    /// `TILEZERO`.
    fn zero(&mut self, tile: usize) {
        self.tiles[tile] = [0; 1024];
    }

    /// `TILELOADD`.
    ///
    /// # Safety
    /// The tile's rows are readable, `stride` bytes apart.
    unsafe fn load(&mut self, tile: usize, start: *const u8, stride: usize) {
        let width = self.row_bytes(tile);
        self.zero(tile);
        for row in 0..self.rows(tile) {
            let target = &mut self.tiles[tile][row * 64..][..width];
            // SAFETY: the caller vouches for the row, and the tile is ours.
            unsafe { std::ptr::copy_nonoverlapping(start.add(row * stride), target.as_mut_ptr(), width) };
        }
    }

    /// `TILESTORED`.
    ///
    /// # Safety
    /// The tile's rows are writable, `stride` bytes apart.
    unsafe fn store(&self, tile: usize, start: *mut u8, stride: usize) {
        for row in 0..self.rows(tile) {
            let source = &self.tiles[tile][row * 64..][..self.row_bytes(tile)];
            // SAFETY: the caller vouches for the row.
            unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), start.add(row * stride), source.len()) };
        }
    }

    fn bf16(&self, tile: usize, row: usize, index: usize) -> f32 {
        let at = row * 64 + 2 * index;
        flushed(bf16::from_le_bytes([self.tiles[tile][at], self.tiles[tile][at + 1]]).to_f32())
    }

    /// `TDPBF16PS`: even and odd values have sums of their own, which are then added to those that are there.
    fn dot(&mut self, sums: usize, a: usize, b: usize) {
        let (columns, pairs) = (self.row_bytes(sums) / 4, self.row_bytes(a) / 4);
        assert_eq!((self.rows(sums), self.row_bytes(b) / 4, self.rows(b)), (self.rows(a), columns, pairs));
        for row in 0..self.rows(sums) {
            for column in 0..columns {
                let mut total = [0.0f32; 2];
                for pair in 0..pairs {
                    for (side, total) in total.iter_mut().enumerate() {
                        let (a, b) =
                            (self.bf16(a, row, 2 * pair + side), self.bf16(b, pair, 2 * column + side));
                        *total = flushed(a.mul_add(b, *total));
                    }
                }
                let place = &mut self.tiles[sums][row * 64 + 4 * column..][..4];
                let before = flushed(f32::from_le_bytes([place[0], place[1], place[2], place[3]]));
                let sum = flushed(before + flushed(total[0] + total[1]));
                place.copy_from_slice(&sum.to_le_bytes());
            }
        }
    }

    /// The block of assembly of AMX, instruction by instruction.
    ///
    /// # Safety
    /// As for [`super::tiles::ConfiguredTiles::multiply`].
    pub(super) unsafe fn multiply(&mut self, both: bool, operands: TileOperands) {
        let TileOperands { a: (a, a_stride), b, c: (c, c_stride), depth, add } = operands;
        let width = self.row_bytes(0);
        let halves = if both { 2 } else { 1 };
        let down = |half: usize| c.wrapping_add(half * TILE_ROWS * c_stride);
        // SAFETY: the caller vouches for the memory.
        unsafe {
            for half in 0..halves {
                for across in 0..2 {
                    match add {
                        true => {
                            self.load(2 * half + across, down(half).wrapping_add(across * width), c_stride)
                        }
                        false => self.zero(2 * half + across),
                    }
                }
            }
            for step in 0..depth {
                for across in 0..2 {
                    let line = b.add(step * TILE_ROWS * 2 * width + across * width);
                    self.load(6 + across, line, 2 * width);
                }
                for half in 0..halves {
                    self.load(4 + half, a.add(half * TILE_ROWS * a_stride + step * 64), a_stride);
                    self.dot(2 * half, 4 + half, 6);
                    self.dot(2 * half + 1, 4 + half, 7);
                }
            }
            for half in 0..halves {
                for across in 0..2 {
                    self.store(2 * half + across, down(half).wrapping_add(across * width), c_stride);
                }
            }
        }
    }
}

/// The bytes of a configuration, as they lie in memory.
fn bytes_of(configuration: &TileConfiguration) -> [u8; 64] {
    const { assert!(size_of::<TileConfiguration>() == 64) };
    // SAFETY: the structure is 64 bytes of integers without padding.
    unsafe { (&raw const *configuration).cast::<[u8; 64]>().read() }
}
