//! The left operand of a product: anything that can copy a piece of a row.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::Values;
use crate::simd::{Float, Simd};

/// The rows of the left operand.
///
/// The product copies each piece of a row once for every block of columns, straight into the block it multiplies from,
/// so an implementation may compute on the way (widen, gather, normalise) without an intermediate tensor.
pub(crate) trait Rows: Sync {
    /// The number of rows, M.
    fn rows(&self) -> usize;

    /// The length of a row, K.
    fn depth(&self) -> usize;

    /// Whether the rows are of bfloat16 values, or of what is computed from them, so that a product may copy them as
    /// bfloat16 and multiply them in pairs.
    fn is_bf16(&self) -> bool;

    /// Copies columns `depth` of row `row` into `target`, which has just that length: as bfloat16 only if
    /// [`Rows::is_bf16`].
    ///
    /// Mark the implementation `#[inline(always)]`.
    fn copy<S: Simd, T: Float>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [T]);

    /// The length of the runs that every row consists of in memory, f32 values or bfloat16 ones; `None` if there are no
    /// runs, or they are too short to be multiplied without a copy.
    fn run_length(&self) -> Option<NonZeroUsize> {
        None
    }

    /// Adds to `starts` where run `run` of each of these rows begins, as far as [`Rows::run_length`] says that there are
    /// runs. What is added stays readable for the length of a run of the rows' own type while `self` is borrowed.
    fn run_starts(&self, _rows: Range<usize>, _run: usize, _starts: &mut Vec<*const f32>) {}

    /// Prefetches columns `depth` of these rows, because they are needed next.
    fn prefetch(&self, _rows: Range<usize>, _depth: Range<usize>) {}
}

/// The rows of a matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixRows<'a> {
    values: Values<'a>,
    rows: usize,
    depth: usize,
}

impl<'a> MatrixRows<'a> {
    /// A contiguous `[rows, depth]` matrix.
    ///
    /// # Panics
    /// If `values` holds fewer values.
    pub(crate) fn new(values: Values<'a>, rows: usize, depth: usize) -> Self {
        let needed = rows * depth;
        assert!(
            values.len() >= needed,
            "a [{rows}, {depth}] matrix needs {needed} values, not {}",
            values.len()
        );
        Self { values, rows, depth }
    }
}

impl Rows for MatrixRows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn is_bf16(&self) -> bool {
        self.values.is_bf16()
    }

    #[inline(always)]
    fn copy<S: Simd, T: Float>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [T]) {
        self.values.copy(simd, row * self.depth + depth.start, target);
    }

    fn run_length(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.depth).filter(|_| self.values.is_readable_in_steps())
    }

    fn prefetch(&self, rows: Range<usize>, depth: Range<usize>) {
        for row in rows {
            self.values.prefetch(row * self.depth + depth.start, depth.len());
        }
    }

    fn run_starts(&self, rows: Range<usize>, _: usize, starts: &mut Vec<*const f32>) {
        starts.extend(rows.map(|row| self.values.address(row * self.depth)));
    }
}

/// The rows of a matrix that is stored as its transpose, `[depth, rows]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransposedRows<'a> {
    values: Values<'a>,
    rows: usize,
    depth: usize,
}

impl<'a> TransposedRows<'a> {
    /// # Panics
    /// If `values` is of a different size.
    pub(crate) fn new(values: Values<'a>, rows: usize, depth: usize) -> Self {
        assert_eq!(values.len(), rows * depth, "a [{depth}, {rows}] matrix");
        TransposedRows { values, rows, depth }
    }
}

impl Rows for TransposedRows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn is_bf16(&self) -> bool {
        self.values.is_bf16()
    }

    #[inline(always)]
    fn copy<S: Simd, T: Float>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [T]) {
        for (k, target) in depth.zip(target) {
            self.values.copy(simd, k * self.rows + row, std::slice::from_mut(target));
        }
    }
}
