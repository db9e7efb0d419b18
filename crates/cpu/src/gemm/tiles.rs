//! Products of bfloat16 on tiles: the loops around a unit that multiplies 32 rows by a panel.

use std::ops::Range;

use super::blocking::ROW_STRIDE;
use super::microkernel::{Addends, Strided, Update, panel_columns};
use crate::simd::{
    Kernel, MAX_LANES, Simd,
    tiles::{ConfiguredTiles, TILE_ROWS, TileOperands, TileUnit},
};

/// Rows of a block of sums: two tiles.
pub(super) const TILES_ROWS: usize = 2 * TILE_ROWS;

/// The bytes of a step of the depth: a pair of bfloat16 values, or a sum.
const STEP: usize = size_of::<f32>();

/// Copied rows and the lines of panels that they are multiplied with, padded to whole tiles. The depth is counted in pairs.
pub(super) struct OnTiles<'a> {
    pub(super) unit: TileUnit,
    /// The rows, [`ROW_STRIDE`] apart: whole tiles of them, the depth padded with zeros to whole tiles.
    pub(super) a: &'a [f32],
    /// How many rows there are.
    pub(super) rows: usize,
    /// The panels of the weights.
    pub(super) steps: &'a [f32],
    /// The depth of a panel, a whole number of tiles.
    pub(super) panel_depth: usize,
    /// The piece of the depth that `a` holds, which begins with a tile.
    pub(super) depth: Range<usize>,
    pub(super) panels: Range<usize>,
    /// Where the sums of the rows go: those of the first panel, and then those of the others.
    pub(super) c: Strided<*mut f32>,
    pub(super) update: Update,
    pub(super) addends: Addends,
    /// Called before each panel.
    pub(super) bring_closer: &'a dyn Fn(usize),
}

impl Kernel for OnTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let width = panel_columns::<S>();
        let tiles = self.depth.len().div_ceil(TILE_ROWS);
        let padded_rows = self.rows.next_multiple_of(TILE_ROWS);
        assert!(self.depth.start.is_multiple_of(TILE_ROWS) && self.panel_depth.is_multiple_of(TILE_ROWS));
        assert!(tiles * TILE_ROWS <= ROW_STRIDE && self.a.len() >= padded_rows * ROW_STRIDE);
        let mut unit = self.unit.configure();
        for (index, panel) in self.panels.clone().enumerate() {
            (self.bring_closer)(panel);
            let lines = (panel * self.panel_depth + self.depth.start) * width;
            let lines = &self.steps[lines..][..tiles * TILE_ROWS * width];
            let addends = self.addends.at_column(index * width);
            for row in (0..self.rows).step_by(TILES_ROWS) {
                let block = Block {
                    rows: TILES_ROWS.min(self.rows - row),
                    a: self.a[row * ROW_STRIDE..].as_ptr(),
                    lines: lines.as_ptr(),
                    tiles,
                    c: Strided {
                        start: self.c.start.wrapping_add(row * self.c.stride + index * width),
                        ..self.c
                    },
                    update: self.update,
                    addends: addends.at_row(row),
                };
                // SAFETY: the rows and lines were checked above, and the driver gives `c` and the addends room for theirs.
                unsafe { block.multiply(simd, &mut unit) };
            }
        }
    }
}

/// Up to 32 rows of sums of a panel.
struct Block {
    rows: usize,
    a: *const f32,
    lines: *const f32,
    /// How many tiles the depth has.
    tiles: usize,
    c: Strided<*mut f32>,
    update: Update,
    addends: Addends,
}

impl Block {
    /// # Safety
    /// As for [`ConfiguredTiles::multiply`], with the rows of `a` padded to whole tiles; those of `c` and of the addends are `rows`.
    #[inline(always)]
    unsafe fn multiply<S: Simd>(self, simd: S, unit: &mut ConfiguredTiles) {
        let both = self.rows > TILE_ROWS;
        let operands = |c: Strided<*mut f32>, add: bool| TileOperands {
            a: (self.a.cast(), ROW_STRIDE * STEP),
            b: self.lines.cast(),
            c: (c.start.cast(), c.stride * STEP),
            depth: self.tiles,
            add,
        };
        let width = panel_columns::<S>();
        // SAFETY: the caller vouches for operands and sums; what is stored elsewhere has room for all rows and columns.
        unsafe {
            if self.tiles > 0 && self.rows.is_multiple_of(TILE_ROWS) && self.addends.are_none() {
                return unit.multiply(both, operands(self.c, self.update == Update::Add));
            }
            // Tiles are stored whole. So sums of fewer rows, or to which more is added, take this way.
            let mut sums = Sums([0.0; TILES_ROWS * 2 * MAX_LANES]);
            let stored = Strided { start: sums.0.as_mut_ptr(), stride: width };
            if self.tiles > 0 {
                unit.multiply(both, operands(stored, false));
            }
            for row in 0..self.rows {
                for column in [0, S::LANES] {
                    let target = self.c.start.add(row * self.c.stride + column);
                    let mut sum = simd.load(stored.start.add(row * width + column));
                    if self.update == Update::Add {
                        sum = simd.add(sum, simd.load(target));
                    }
                    if let Some(bias) = self.addends.bias {
                        sum = simd.add(sum, simd.load(bias.add(column)));
                    }
                    if let Some(tensor) = self.addends.tensor {
                        sum = simd.add(sum, simd.load(tensor.start.add(row * tensor.stride + column)));
                    }
                    simd.store(target, sum);
                }
            }
        }
    }
}

/// The sums of a block, on cache lines of their own.
#[repr(align(64))]
struct Sums([f32; TILES_ROWS * 2 * MAX_LANES]);
