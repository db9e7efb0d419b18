//! The left operand of a product: anything that can copy a piece of a row as f32.

use std::ops::Range;

use super::Values;
use crate::simd::Simd;

/// The rows of the left operand.
///
/// The product copies each piece of a row once for every block of columns, straight into the block it multiplies from,
/// so an implementation may compute on the way (widen, gather, normalise) without an intermediate tensor.
pub trait Rows: Sync {
    /// The number of rows, M.
    fn rows(&self) -> usize;

    /// The length of a row, K.
    fn depth(&self) -> usize;

    /// Copies columns `depth` of row `row` into `target`, which has just that length.
    ///
    /// Mark the implementation `#[inline(always)]`.
    fn copy<S: Simd>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [f32]);
}

/// The rows of a matrix in memory.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRows<'a> {
    values: Values<'a>,
    rows: usize,
    depth: usize,
    row_stride: usize,
}

impl<'a> MatrixRows<'a> {
    /// A contiguous `[rows, depth]` matrix.
    ///
    /// # Panics
    /// Where `values` holds fewer values.
    pub fn new(values: Values<'a>, rows: usize, depth: usize) -> Self {
        Self::strided(values, rows, depth, depth)
    }

    /// A matrix whose rows begin `row_stride` values apart.
    ///
    /// # Panics
    /// Where `values` ends before the last row does.
    pub fn strided(values: Values<'a>, rows: usize, depth: usize, row_stride: usize) -> Self {
        let needed = rows
            .checked_sub(1)
            .map_or(0, |last| last * row_stride + depth);
        assert!(
            values.len() >= needed,
            "a [{rows}, {depth}] matrix needs {needed} values, not {}",
            values.len()
        );
        Self {
            values,
            rows,
            depth,
            row_stride,
        }
    }
}

impl Rows for MatrixRows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn depth(&self) -> usize {
        self.depth
    }

    #[inline(always)]
    fn copy<S: Simd>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [f32]) {
        self.values
            .widen(simd, row * self.row_stride + depth.start, target);
    }
}
