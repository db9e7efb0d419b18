//! Rows that are normalised as they are copied: a layer or RMS norm fused into the product that reads it.

use std::ops::Range;

use kinora_graph::op::{Activation, Norm};

use super::{
    elementwise::run,
    norm::{Learned, NormaliseRow, RowStatistics},
};
use crate::{
    gemm::{MatrixRows, Rows},
    simd::{Isa, Kernel, Simd, activation::with_activation},
    tasks,
    view::View,
};

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
        self.range
            .map(|index| {
                self.rows.copy(simd, index, 0..depth, &mut row);
                RowStatistics::of(simd, self.norm, &row)
            })
            .collect()
    }
}

impl Rows for NormalisedRows<'_> {
    fn rows(&self) -> usize {
        self.rows.rows()
    }

    fn depth(&self) -> usize {
        self.rows.depth()
    }

    #[inline(always)]
    fn copy<S: Simd>(&self, simd: S, row: usize, depth: Range<usize>, target: &mut [f32]) {
        if target.is_empty() {
            return;
        }
        self.rows.copy(simd, row, depth.clone(), target);
        let scale = &self.learned.scale[depth.clone()];
        let shift = &self.learned.shift[depth];
        let statistics = self.statistics[row];
        assert!(scale.len() == target.len());
        let to = target.as_mut_ptr();
        // SAFETY: the three have one length, and each vector is read before it is written.
        unsafe {
            with_activation!(self.activation, A => {
                let normalise = NormaliseRow { statistics, _activation: A::default() };
                let operands = [to.cast_const(), scale.as_ptr(), shift.as_ptr()];
                run(simd, &normalise, operands, to, target.len());
            });
        }
    }
}
