//! Products of many pairs of matrices, whose right operand is used once.

use std::cell::Cell;

use rayon::prelude::*;

use super::aligned::AlignedBuffer;
use super::weights::Strides;
use super::{Epilogue, MatrixRows, PackedWeights, Values, multiply};
use crate::simd::Isa;

/// How the right operand lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[depth, columns]`: the product is `A · B`.
    DepthMajor,
    /// `[columns, depth]`: the product is `A · Bᵀ`.
    ColumnMajor,
}

/// A right operand of each product of a batch: matrices one after the other in memory.
#[derive(Clone, Copy, Debug)]
pub struct BatchedOperand<'a> {
    /// The matrices.
    pub values: Values<'a>,
    /// How each of them lies.
    pub layout: Layout,
    /// Columns of each, N.
    pub columns: usize,
    /// Depth of each, K.
    pub depth: usize,
}

thread_local! {
    /// The memory of a thread's packed operand, kept between products.
    static PACKED: Cell<AlignedBuffer<f32>> = const { Cell::new(AlignedBuffer::new()) };
}

/// Multiplies the `i`-th of `batch` left operands, `[rows, depth]` each and one after the other in `left`, with the
/// `i`-th of `right`; `epilogue(i)` takes its result.
///
/// # Panics
/// Where an operand is smaller than the shapes say.
pub fn multiply_batched<E: Epilogue>(
    isa: Isa,
    batch: usize,
    rows: usize,
    left: Values,
    right: BatchedOperand,
    epilogue: impl Fn(usize) -> E + Sync,
) {
    let BatchedOperand {
        values,
        layout,
        columns,
        depth,
    } = right;
    let strides = match layout {
        Layout::DepthMajor => Strides {
            column: 1,
            depth: columns,
        },
        Layout::ColumnMajor => Strides {
            column: depth,
            depth: 1,
        },
    };
    (0..batch).into_par_iter().for_each(|index| {
        let matrix = values.range(index * columns * depth, columns * depth);
        let packed = PackedWeights::pack(isa, matrix, columns, depth, strides, None, PACKED.take());
        let left = MatrixRows::new(left.range(index * rows * depth, rows * depth), rows, depth);
        multiply(&left, &packed, &epilogue(index));
        PACKED.set(packed.into_reusable());
    });
}
