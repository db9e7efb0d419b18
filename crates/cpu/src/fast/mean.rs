//! The mean over some axes.

use std::ops::Range;

use kinora_graph::op::Mean;
use rayon::prelude::*;

use super::{
    blocks::{BLOCK, Block, Source, Target},
    elementwise::{Sum, run},
    sums,
};
use crate::{
    simd::{Isa, Kernel, Simd},
    tasks,
    view::{View, ViewMut},
};

/// An axis: its extent, the distance between neighbours, and whether it is averaged.
#[derive(Clone, Copy)]
struct Axis {
    extent: usize,
    stride: usize,
    averaged: bool,
}

/// The axes without those of extent 1, neighbours of one kind joined.
fn joined_axes(shape: &[usize], averaged: &[usize]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    let mut stride = 1;
    for (axis, &extent) in shape.iter().enumerate().rev() {
        let averaged = averaged.contains(&axis);
        match axes.last_mut() {
            _ if extent == 1 => {}
            Some(inner) if inner.averaged == averaged => inner.extent *= extent,
            _ => axes.push(Axis { extent, stride, averaged }),
        }
        stride *= extent;
    }
    axes.reverse();
    axes
}

/// The element where the `index`th position over the given axes lies.
fn offset(axes: &[Axis], mut index: usize) -> usize {
    let mut offset = 0;
    for axis in axes.iter().rev() {
        offset += index % axis.extent * axis.stride;
        index /= axis.extent;
    }
    offset
}

fn positions(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.extent).product()
}

/// Rows that are summed in f32 before the sums continue in f64.
const ROWS_OF_RUN: usize = 64;
/// Elements summed by one task.
const CHUNK: usize = 4 * tasks::GRAIN;

/// The mean over some axes, which become 1.
pub(crate) fn mean(isa: Isa, op: &Mean, inputs: &[View<'_>], output: ViewMut<'_>) {
    let elements = inputs[0].ty().elements();
    if elements == 0 {
        return;
    }
    let (source, target) = (Source::of(&inputs[0]), Target::of(&output));
    let mut axes = joined_axes(&inputs[0].ty().shape, &op.axes);
    let inner = axes.pop().unwrap_or(Axis { extent: 1, stride: 1, averaged: false });
    let (averaged, kept): (Vec<Axis>, Vec<Axis>) = axes.into_iter().partition(|axis| axis.averaged);
    let results = positions(&kept);
    // One task for as many results as make a chunk; a large result is split again along what it averages.
    let grain = (CHUNK / (elements / results)).max(1);
    let factor = output.ty().elements() as f64 / elements as f64;
    tasks::each(results, grain, |range| {
        for index in range {
            let means = Means { isa, source, start: offset(&kept, index), averaged: &averaged, inner };
            if inner.averaged {
                let mean = [(means.of_all() * factor) as f32];
                isa.dispatch(Store { values: &mean, target, at: index });
            } else {
                let means: Vec<f32> = means.of_each().iter().map(|sum| (sum * factor) as f32).collect();
                isa.dispatch(Store { values: &means, target, at: index * inner.extent });
            }
        }
    });
}

/// What one position over the kept axes averages.
struct Means<'a> {
    isa: Isa,
    source: Source<'a>,
    start: usize,
    /// The averaged axes but the innermost.
    averaged: &'a [Axis],
    inner: Axis,
}

impl Means<'_> {
    /// The sum if the innermost axis is averaged.
    fn of_all(&self) -> f64 {
        let segments = self.inner.extent.div_ceil(CHUNK);
        let sums = in_order(positions(self.averaged) * segments, |index| {
            let at = index % segments * CHUNK;
            let count = (self.inner.extent - at).min(CHUNK);
            // SAFETY: positions of the operand's own axes.
            unsafe {
                sums::sum(
                    self.isa,
                    self.source,
                    self.start + offset(self.averaged, index / segments) + at,
                    count,
                )
            }
        });
        sums.iter().sum()
    }

    /// The sums, one for each position along the innermost axis.
    fn of_each(&self) -> Vec<f64> {
        let rows = positions(self.averaged);
        let chunk = (CHUNK / self.inner.extent).max(1);
        let sums = in_order(rows.div_ceil(chunk), |index| {
            let rows = index * chunk..((index + 1) * chunk).min(rows);
            self.isa.dispatch(RowSums { means: self, rows })
        });
        let mut totals = vec![0.0; self.inner.extent];
        for sums in sums {
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total += sum;
            }
        }
        totals
    }
}

/// `part(0)`, `part(1)`, …, computed in parallel if there are several.
fn in_order<T: Send>(count: usize, part: impl Fn(usize) -> T + Sync + Send) -> Vec<T> {
    if count == 1 { vec![part(0)] } else { (0..count).into_par_iter().map(part).collect() }
}

/// The sum of some rows along the innermost axis.
struct RowSums<'a> {
    means: &'a Means<'a>,
    rows: Range<usize>,
}

impl Kernel for RowSums<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f64> {
        let &Means { source, start, averaged, inner, .. } = self.means;
        let mut totals = vec![0.0; inner.extent];
        let mut sums = vec![0.0f32; inner.extent];
        let mut buffer = Block::uninit();
        for first in self.rows.clone().step_by(ROWS_OF_RUN) {
            sums.fill(0.0);
            for row in first..self.rows.end.min(first + ROWS_OF_RUN) {
                let row = start + offset(averaged, row);
                for at in (0..inner.extent).step_by(BLOCK) {
                    let count = (inner.extent - at).min(BLOCK);
                    // SAFETY: positions of the operand's own axes; the buffer holds a block and `sums` the axis.
                    unsafe {
                        let x = source.read(simd, row + at, count, buffer.as_mut_ptr());
                        let sums = sums.as_mut_ptr().add(at);
                        run(simd, &Sum, [sums.cast_const(), x], sums, count);
                    }
                }
            }
            for (total, &sum) in totals.iter_mut().zip(&sums) {
                *total += f64::from(sum);
            }
        }
        totals
    }
}

/// Writes f32 values as the target's type.
struct Store<'a> {
    values: &'a [f32],
    target: Target<'a>,
    at: usize,
}

impl Kernel for Store<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // SAFETY: the means of one position, which exist in the result; no other task has them.
        unsafe { self.target.write(simd, self.at, self.values.len(), self.values.as_ptr()) };
    }
}
