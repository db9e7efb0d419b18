//! The left operand of a product: anything that can copy a piece of a row as f32.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::Values;
use crate::simd::Simd;

/// The rows of the left operand.
///
/// The product copies each piece of a row once for every block of columns, straight into the block it multiplies from,
/// so an implementation may compute on the way (widen, gather, normalise) without an intermediate tensor.
pub(crate) trait Rows: Sync {
    /// The number of rows, M.
    fn rows(&self) -> usize;

    /// The length of a row, K.
    fn depth(&self) -> usize;

    /// Copies columns `depth` of row `row` into `target`, which has just that length.
    ///
    /// Mark the implementation `#[inline(always)]`.
    fn copy<S: Simd>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [f32]);

    /// The length of the runs that every row consists of in memory, ready to be multiplied without a copy; `None` if
    /// there are no runs, or they are too short.
    fn run_length(&self) -> Option<NonZeroUsize> {
        None
    }

    /// Adds to `starts` where run `run` of each of these rows begins, as far as [`Rows::run_length`] says that there are
    /// runs. What is added stays readable for the length of a run while `self` is borrowed.
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

    #[inline(always)]
    fn copy<S: Simd>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [f32]) {
        self.values.widen(simd, row * self.depth + depth.start, target);
    }

    fn run_length(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.depth).filter(|_| matches!(self.values, Values::F32(_)))
    }

    fn prefetch(&self, rows: Range<usize>, depth: Range<usize>) {
        for row in rows {
            self.values.prefetch(row * self.depth + depth.start, depth.len());
        }
    }

    fn run_starts(&self, rows: Range<usize>, _: usize, starts: &mut Vec<*const f32>) {
        if let Values::F32(values) = self.values {
            starts.extend(rows.map(|row| values[row * self.depth..].as_ptr()));
        }
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

    #[inline(always)]
    fn copy<S: Simd>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [f32]) {
        for (k, target) in depth.zip(target) {
            self.values.widen(simd, k * self.rows + row, std::slice::from_mut(target));
        }
    }
}
