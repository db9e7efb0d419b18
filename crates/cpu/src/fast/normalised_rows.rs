//! Rows that are normalised as they are copied: a layer or RMS norm fused into the product that reads it.

use std::{borrow::Cow, ops::Range};

use kinora_graph::op::{Activation, Norm, NormKind};
use rayon::prelude::*;

use crate::{
    gemm::{MatrixRows, Rows},
    simd::{Isa, Kernel, Simd, math},
};

/// Rows at a time that one task takes statistics of.
const TASK_ROWS: usize = 64;

/// The rows of a matrix, normalised.
pub(crate) struct NormalisedRows<'a> {
    rows: MatrixRows<'a>,
    /// For each row what is subtracted and what is then multiplied with.
    statistics: Vec<[f32; 2]>,
    scale: Option<&'a [f32]>,
    shift: Option<&'a [f32]>,
    activation: Option<Activation>,
}

impl<'a> NormalisedRows<'a> {
    /// Takes the statistics of every row; `affine` are the operands of the norm, which is a layer or an RMS norm.
    pub(crate) fn new(isa: Isa, rows: MatrixRows<'a>, norm: &Norm, affine: &'a [Cow<'_, [f32]>]) -> Self {
        let mut statistics = vec![[0.0; 2]; rows.rows()];
        statistics.par_chunks_mut(TASK_ROWS).enumerate().for_each(|(task, statistics)| {
            isa.dispatch(TakeStatistics { rows: &rows, norm, first: task * TASK_ROWS, statistics });
        });
        NormalisedRows {
            rows,
            statistics,
            scale: affine.first().map(|v| &**v),
            shift: affine.get(1).map(|v| &**v),
            activation: norm.activation,
        }
    }
}

struct TakeStatistics<'a, 'b> {
    rows: &'a MatrixRows<'b>,
    norm: &'a Norm,
    first: usize,
    statistics: &'a mut [[f32; 2]],
}

impl Kernel for TakeStatistics<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let depth = self.rows.depth();
        let mut row = vec![0.0; depth];
        for (index, statistics) in self.statistics.iter_mut().enumerate() {
            self.rows.copy(simd, self.first + index, 0..depth, &mut row);
            let mean = match self.norm.kind {
                NormKind::Rms => 0.0,
                NormKind::Layer | NormKind::Group { .. } => sum(simd, &row, |x| x) / depth as f32,
            };
            let centre = simd.splat(mean);
            let squares = sum(simd, &row, |x| {
                let x = simd.sub(x, centre);
                simd.mul(x, x)
            });
            // The lanes beyond the end were counted as zeros, each mean² from the centre.
            let padding = depth.next_multiple_of(S::LANES) - depth;
            let variance = (squares - padding as f32 * mean * mean) / depth as f32;
            *statistics = [mean, 1.0 / (variance.max(0.0) + self.norm.epsilon).sqrt()];
        }
    }
}
