//! Rows that are normalised as they are copied: a layer or RMS norm fused into the product that reads it.

use std::ops::Range;

use kinora_graph::op::{Activation, Norm};

use super::{
    elementwise::Elementwise,
    norm::{Learned, NormaliseRow, RowStatistics},
};
use crate::{
    gemm::{MatrixRows, Rows},
    simd::{
        Float, Isa, Kernel, Simd,
        activation::{Function, with_activation},
        load_up_to, store_up_to,
    },
    tasks,
    view::View,
};

/// Values that are normalised at a time: a few vectors, which stay in L1.
const PIECE: usize = 128;

/// The rows of a matrix, normalised.
pub(crate) struct NormalisedRows<'a> {
    rows: MatrixRows<'a>,
    /// The statistics of each row; none if the rows are empty.
    statistics: Vec<RowStatistics>,
    learned: Learned,
    activation: Option<Activation>,
}

impl<'a> NormalisedRows<'a> {
    /// Takes the statistics of every row; `affine` are the operands of the norm, which is a layer or an RMS norm.
    pub(crate) fn new(isa: Isa, rows: MatrixRows<'a>, norm: &Norm, affine: &[View<'_>]) -> Self {
        let depth = rows.depth();
        let count = if depth == 0 { 0 } else { rows.rows() };
        let taken = tasks::map(count, tasks::rows_of_task(depth), |range| {
            isa.dispatch(TakeStatistics { rows: &rows, norm, range })
        });
        let learned = Learned::of(norm, depth, affine);
        // `copy` rests on it.
        assert!(learned.scale.len() == depth && learned.shift.len() == depth);
        NormalisedRows { rows, statistics: taken.concat(), learned, activation: norm.activation }
    }
}

struct TakeStatistics<'a, 'b> {
    rows: &'a MatrixRows<'b>,
    norm: &'a Norm,
    range: Range<usize>,
}

impl Kernel for TakeStatistics<'_, '_> {
    type Output = Vec<RowStatistics>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<RowStatistics> {
        let depth = self.rows.depth();
        let mut row = vec![0.0; depth];
        let mut statistics = Vec::with_capacity(self.range.len());
        // A loop: the instruction set of this function would not reach into a closure.
        for index in self.range {
            self.rows.copy(simd, index, 0..depth, &mut row[..]);
            statistics.push(RowStatistics::of(simd, self.norm, &row));
        }
        statistics
    }
}

impl Rows for NormalisedRows<'_> {
    fn rows(&self) -> usize {
        self.rows.rows()
    }

    fn depth(&self) -> usize {
        self.rows.depth()
    }

    /// As the norm alone would be, bfloat16 if its operand is.
    fn is_bf16(&self) -> bool {
        self.rows.is_bf16()
    }

    #[inline(always)]
    fn copy<S: Simd, T: Float>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [T]) {
        if target.is_empty() {
            return;
        }
        let statistics = self.statistics[row];
        let mut values = [0.0; PIECE];
        for (piece, target) in target.chunks_mut(PIECE).enumerate() {
            let first = depth.start + piece * PIECE;
            let columns = first..first + target.len();
            let values = &mut values[..target.len()];
            self.rows.copy(simd, row, columns.clone(), values);
            let (scale, shift) = (&self.learned.scale[columns.clone()], &self.learned.shift[columns]);
            with_activation!(self.activation, A => {
                normalise::<S, T, A>(simd, statistics, [&*values, scale, shift], target);
            });
        }
    }
}

/// Normalises values with their scales and shifts, all of them as many as the target has.
#[inline(always)]
fn normalise<S: Simd, T: Float, A: Function>(
    simd: S,
    statistics: RowStatistics,
    [values, scale, shift]: [&[f32]; 3],
    target: &mut [T],
) {
    let count = target.len();
    assert!(values.len() == count && scale.len() == count && shift.len() == count);
    let normalise = NormaliseRow { statistics, _activation: A::default() };
    for at in (0..count).step_by(S::LANES) {
        let lanes = (count - at).min(S::LANES);
        // SAFETY: the four slices have one length, and no vector goes beyond it.
        unsafe {
            let value = load_up_to(simd, values.as_ptr().add(at), lanes);
            let scale = load_up_to(simd, scale.as_ptr().add(at), lanes);
            let shift = load_up_to(simd, shift.as_ptr().add(at), lanes);
            let normal = normalise.apply(simd, [value, scale, shift]);
            store_up_to(simd, target.as_mut_ptr().add(at), normal, lanes);
        }
    }
}
