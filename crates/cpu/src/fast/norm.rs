//! Layer, RMS and batch norm; group norm has a file of its own.

use std::ops::Range;

use kinora_graph::op::{Affine, BatchNorm, Norm, NormKind};

use super::{
    blocks::{Source, Target, small_vector},
    elementwise::{Elementwise, Operand, Results, elementwise, run},
    group_norm::{Groups, group_norm},
    sums::moments,
};
use crate::{
    simd::{
        Isa, Kernel, Simd,
        activation::{Function, Identity, with_activation},
    },
    tasks,
    view::{View, ViewMut},
};

/// A normalisation; the result may overwrite `x`.
pub(crate) fn norm(isa: Isa, op: &Norm, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    let shape = &output.ty().shape;
    let (rows, channels) = (shape.rows(), shape.channels());
    let learned = Learned::of(op, channels, &inputs[1..]);
    let (source, target) = (Source::of(&inputs[0]), Target::of(&output));
    match op.kind {
        NormKind::Group { groups, frames } => {
            let slabs = shape[0] / frames;
            let groups =
                Groups { source, target, slabs, rows: rows / slabs, channels, groups, epsilon: op.epsilon };
            with_activation!(op.activation, A => group_norm::<A>(isa, &groups, &learned));
        }
        NormKind::Layer | NormKind::Rms => {
            let layer = Layer { source, target, channels, norm: op, learned: &learned };
            with_activation!(op.activation, A => tasks::each(rows, tasks::rows_of_task(channels), |rows| {
                isa.dispatch(LayerRows { layer: &layer, rows, activation: A::default() });
            }));
        }
    }
}

/// The learned part of a norm, one value per channel.
pub(crate) struct Learned {
    pub(crate) scale: Vec<f32>,
    pub(crate) shift: Vec<f32>,
}

impl Learned {
    /// The operands of a norm after `x`, with ones and zeros for missing ones.
    pub(crate) fn of(norm: &Norm, channels: usize, operands: &[View<'_>]) -> Self {
        let scale =
            if norm.affine == Affine::None { vec![1.0; channels] } else { small_vector(&operands[0]) };
        let shifted = norm.affine == Affine::ScaleShift;
        let shift = if shifted { small_vector(&operands[1]) } else { vec![0.0; channels] };
        Learned { scale, shift }
    }
}

struct Layer<'a> {
    source: Source<'a>,
    target: Target<'a>,
    channels: usize,
    norm: &'a Norm,
    learned: &'a Learned,
}

struct LayerRows<'a, A> {
    layer: &'a Layer<'a>,
    rows: Range<usize>,
    activation: A,
}

impl<A: Function> Kernel for LayerRows<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let layer = self.layer;
        let count = layer.channels;
        let mut buffer = vec![0.0; count];
        let affine = [layer.learned.scale.as_ptr(), layer.learned.shift.as_ptr()];
        for row in self.rows {
            let at = row * count;
            // SAFETY: the row's elements exist, buffer and learned vectors hold a row, and no other task has this row.
            unsafe {
                let x = layer.source.read(simd, at, count, buffer.as_mut_ptr());
                let statistics = RowStatistics::of_values(simd, layer.norm, x, count);
                let normalise = NormaliseRow { statistics, _activation: self.activation };
                let to = layer.target.place(at, buffer.as_mut_ptr());
                run(simd, &normalise, [x, affine[0], affine[1]], to, count);
                layer.target.commit(simd, at, count, to);
            }
        }
    }
}

/// What a layer or RMS norm does to a row: `(x - pivot) · inverse + residue`.
///
/// The pivot is a value of the row close to its mean, and the residue carries the distance between the two: far from zero
/// they keep digits that `x · a + b` loses.
#[derive(Clone, Copy)]
pub(crate) struct RowStatistics {
    pivot: f32,
    inverse: f32,
    residue: f32,
}

impl RowStatistics {
    /// The statistics of a row; an empty one has none, and nothing to normalise.
    #[inline(always)]
    pub(crate) fn of<S: Simd>(simd: S, norm: &Norm, row: &[f32]) -> Self {
        if row.is_empty() {
            return RowStatistics { pivot: 0.0, inverse: 0.0, residue: 0.0 };
        }
        // SAFETY: a slice is valid for its length, here one at least.
        unsafe { Self::of_values(simd, norm, row.as_ptr(), row.len()) }
    }

    /// # Safety
    /// `x` is valid for reading `channels` values, one at least.
    #[inline(always)]
    unsafe fn of_values<S: Simd>(simd: S, norm: &Norm, x: *const f32, channels: usize) -> Self {
        let count = channels as f64;
        let centred = norm.kind != NormKind::Rms;
        // SAFETY: passed on from the caller.
        let (pivot, moments) = unsafe {
            let mut pivot = if centred { *x } else { 0.0 };
            let mut found = moments(simd, x, channels, pivot);
            if !centred {
                found.sum = 0.0;
            } else if found.is_far(count) {
                pivot = (f64::from(pivot) + found.beyond(count)) as f32;
                found = moments(simd, x, channels, pivot);
            }
            (pivot, found)
        };
        let inverse = 1.0 / (moments.variance(count) + f64::from(norm.epsilon)).sqrt();
        let residue = (-moments.beyond(count) * inverse) as f32;
        RowStatistics { pivot, inverse: inverse as f32, residue }
    }

    /// Values of the row, normalised.
    #[inline(always)]
    fn normalise<S: Simd>(&self, simd: S, x: S::F32) -> S::F32 {
        let centred = simd.sub(x, simd.splat(self.pivot));
        simd.mul_add(centred, simd.splat(self.inverse), simd.splat(self.residue))
    }
}

/// `act(normalised · scale + shift)`.
pub(crate) struct NormaliseRow<A> {
    pub(crate) statistics: RowStatistics,
    pub(crate) _activation: A,
}

impl<A: Function> Elementwise<3> for NormaliseRow<A> {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [x, scale, shift]: [S::F32; 3]) -> S::F32 {
        A::of(simd, simd.mul_add(self.statistics.normalise(simd, x), scale, shift))
    }
}

/// `act((x - pivot) · factor + offset)`, with a pivot, a factor and an offset per channel.
#[derive(Default)]
pub(crate) struct NormaliseChannels<A>(A);

impl<A: Function> Elementwise<4> for NormaliseChannels<A> {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [x, pivot, factor, offset]: [S::F32; 4]) -> S::F32 {
        A::of(simd, simd.mul_add(simd.sub(x, pivot), factor, offset))
    }
}

/// A batch norm with its running statistics; the result may overwrite `x`.
pub(crate) fn batch_norm(isa: Isa, op: &BatchNorm, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    let [mean, variance, scale, shift] = [1, 2, 3, 4].map(|i| small_vector(&inputs[i]));
    let factor: Vec<f32> = variance
        .iter()
        .zip(&scale)
        .map(|(&v, &s)| (f64::from(s) / (f64::from(v) + f64::from(op.epsilon)).sqrt()) as f32)
        .collect();
    let (rows, channels) = (output.ty().shape.rows(), output.ty().shape.channels());
    let channel = |values| Operand::rows(Source::of_f32(values), 0);
    let x = Operand::rows(Source::of(&inputs[0]), channels);
    let results = Results { target: Target::of(&output), start: 0 };
    let function = NormaliseChannels::<Identity>::default();
    let operands = [x, channel(&mean), channel(&factor), channel(&shift)];
    // SAFETY: `x` and the result have `rows · channels` elements, each vector has `channels`.
    unsafe { elementwise(isa, &function, operands, results, rows, channels) };
}
