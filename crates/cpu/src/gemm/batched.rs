//! Products of many pairs of matrices, whose right operand is used once.

use std::cell::Cell;

use super::aligned::AlignedBuffer;
use super::weights::Strides;
use super::{Epilogue, PackedWeights, Rows, Values, multiply};
use crate::{simd::Isa, tasks};

/// The memory layout of the right operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `[depth, columns]`: the product is `A · B`.
    DepthMajor,
    /// `[columns, depth]`: the product is `A · Bᵀ`.
    ColumnMajor,
}

/// A right operand of each product of a batch: matrices one after the other in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchedOperand<'a> {
    /// The matrices.
    pub(crate) values: Values<'a>,
    /// The layout of each of them.
    pub(crate) layout: Layout,
    /// Columns of each, N.
    pub(crate) columns: usize,
    /// Depth of each, K.
    pub(crate) depth: usize,
}

thread_local! {
    /// The memory of a thread's packed operand, kept between products.
    static PACKED: Cell<AlignedBuffer<f32>> = const { Cell::new(AlignedBuffer::new()) };
}

/// Registers the destructors of this thread's scratch memory: see [`crate::threads::register_scratch`].
pub(super) fn register_scratch() {
    PACKED.with(|_| ());
}

/// Multiplies the left operand `left(i)` with the `i`-th of `right`, for `i` below `batch`; `epilogue(i)` takes the
/// result.
///
/// # Panics
/// If an operand is smaller than the shapes say.
pub(crate) fn multiply_batched<R: Rows, E: Epilogue>(
    isa: Isa,
    batch: usize,
    left: impl Fn(usize) -> R + Sync,
    right: BatchedOperand,
    epilogue: impl Fn(usize) -> E + Sync,
) {
    let BatchedOperand { values, layout, columns, depth } = right;
    let strides = match layout {
        Layout::DepthMajor => Strides { column: 1, depth: columns },
        Layout::ColumnMajor => Strides { column: depth, depth: 1 },
    };
    tasks::each(batch, 1, |task| {
        let index = task.start;
        let matrix = values.range(index * columns * depth, columns * depth);
        let packed = PackedWeights::pack(isa, matrix, columns, depth, strides, None, PACKED.take());
        multiply(&left(index), &packed, &epilogue(index));
        PACKED.set(packed.into_reusable());
    });
}
