//! Rows that are normalised as they are copied: a layer or RMS norm fused into the product that reads it.

use std::{borrow::Cow, ops::Range};

use kinora_graph::op::{Activation, Norm};

use super::{
    blocks::{load_up_to, store_up_to},
    norm::RowStatistics,
    tasks,
};
use crate::{
    gemm::{MatrixRows, Rows},
    simd::{
        Isa, Kernel, Simd,
        activation::{Function, with_activation},
    },
};

/// The rows of a matrix, normalised.
pub(crate) struct NormalisedRows<'a> {
    rows: MatrixRows<'a>,
    statistics: Vec<RowStatistics>,
    scale: Option<&'a [f32]>,
    shift: Option<&'a [f32]>,
    activation: Option<Activation>,
}

impl<'a> NormalisedRows<'a> {
    /// Takes the statistics of every row; `affine` are the operands of the norm, which is a layer or an RMS norm.
    pub(crate) fn new(isa: Isa, rows: MatrixRows<'a>, norm: &Norm, affine: &'a [Cow<'_, [f32]>]) -> Self {
        let taken = tasks::map(rows.rows(), tasks::rows_of_task(rows.depth()), |range| {
            isa.dispatch(TakeStatistics { rows: &rows, norm, range })
        });
        NormalisedRows {
            rows,
            statistics: taken.concat(),
            scale: affine.first().map(|vector| &**vector),
            shift: affine.get(1).map(|vector| &**vector),
            activation: norm.activation,
        }
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
        self.rows.copy(simd, row, depth.clone(), target);
        let scale = self.scale.map(|vector| &vector[depth.clone()]);
        let shift = self.shift.map(|vector| &vector[depth]);
        let statistics = &self.statistics[row];
        with_activation!(self.activation, A => normalise::<S, A>(simd, statistics, target, scale, shift));
    }
}

/// Normalises a piece of a row; `scale` and `shift` are as long as it.
#[inline(always)]
fn normalise<S: Simd, A: Function>(
    simd: S,
    statistics: &RowStatistics,
    row: &mut [f32],
    scale: Option<&[f32]>,
    shift: Option<&[f32]>,
) {
    let mut at = 0;
    while at < row.len() {
        let count = (row.len() - at).min(S::LANES);
        // SAFETY: `count` values from `at` on are within the row and the vectors of its length.
        unsafe {
            let mut x = statistics.normalise(simd, load_up_to(simd, row.as_ptr().add(at), count));
            if let Some(scale) = scale {
                x = simd.mul(x, load_up_to(simd, scale.as_ptr().add(at), count));
            }
            if let Some(shift) = shift {
                x = simd.add(x, load_up_to(simd, shift.as_ptr().add(at), count));
            }
            store_up_to(simd, row.as_mut_ptr().add(at), A::of(simd, x), count);
        }
        at += count;
    }
}
