//! Sums, products, blends and gates of matching elements.

use kinora_graph::op::{Gate, Scale};

use super::{
    blocks::{Source, Target},
    elementwise::{Elementwise, Operand, Product, Results, Sum, elementwise},
};
use crate::{
    simd::{
        Isa, Simd,
        activation::{Function, with_activation},
    },
    tasks,
    view::{View, ViewMut},
};

/// `a + b`; the result may overwrite an operand of its size.
pub(crate) fn add(isa: Isa, inputs: &[View<'_>], output: ViewMut<'_>) {
    broadcast(isa, &Sum, inputs, output);
}

/// `a · b`; the result may overwrite an operand of its size.
pub(crate) fn mul(isa: Isa, inputs: &[View<'_>], output: ViewMut<'_>) {
    broadcast(isa, &Product, inputs, output);
}

/// An axis of the result and its stride in each operand: 0 if one element serves all.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    extent: usize,
    strides: [usize; 2],
}

/// The result's axes, outermost first, without those of extent 1; neighbouring axes are merged if both operands can
/// walk them with one stride.
fn joined_axes(output: &[usize], operands: [&[usize]; 2]) -> Vec<Axis> {
    let mut strides = [1; 2];
    let mut axes: Vec<Axis> = Vec::new();
    for (back, &extent) in output.iter().rev().enumerate() {
        let mut axis = Axis { extent, strides: [0; 2] };
        for (i, operand) in operands.iter().enumerate() {
            let own = if back < operand.len() { operand[operand.len() - 1 - back] } else { 1 };
            if own > 1 {
                axis.strides[i] = strides[i];
                strides[i] *= own;
            }
        }
        match axes.last_mut() {
            _ if extent == 1 => {}
            Some(inner) if (0..2).all(|i| axis.strides[i] == inner.strides[i] * inner.extent) => {
                inner.extent *= extent;
            }
            _ => axes.push(axis),
        }
    }
    axes.reverse();
    axes
}

fn broadcast<F: Elementwise<2>>(isa: Isa, function: &F, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    let sources = [Source::of(&inputs[0]), Source::of(&inputs[1])];
    let target = Target::of(&output);
    let mut axes = joined_axes(&output.ty().shape, [&inputs[0].ty().shape, &inputs[1].ty().shape]);
    let columns = axes.pop().unwrap_or(Axis { extent: 1, strides: [0; 2] });
    let rows = axes.pop().unwrap_or(Axis { extent: 1, strides: [0; 2] });
    let plane = rows.extent * columns.extent;
    let planes = axes.iter().map(|axis| axis.extent).product();
    tasks::each(planes, tasks::rows_of_task(plane), |planes| {
        for index in planes {
            let starts = plane_starts(&axes, index);
            let operand = |i: usize| {
                let of = if columns.strides[i] == 0 { Operand::splat } else { Operand::rows };
                of(sources[i], rows.strides[i]).offset(starts[i])
            };
            let results = Results { target, start: index * plane };
            // SAFETY: the strides are those of the operands' shapes, which the graph has checked to broadcast to the
            // result's; the planes of the tasks do not overlap.
            unsafe {
                elementwise(isa, function, [operand(0), operand(1)], results, rows.extent, columns.extent)
            };
        }
    });
}

/// Where the operands' elements of the plane `index` begin.
fn plane_starts(axes: &[Axis], mut index: usize) -> [usize; 2] {
    let mut starts = [0; 2];
    for axis in axes.iter().rev() {
        let at = index % axis.extent;
        index /= axis.extent;
        starts[0] += at * axis.strides[0];
        starts[1] += at * axis.strides[1];
    }
    starts
}

struct FactorOffset {
    factor: f32,
    offset: f32,
}

impl Elementwise<1> for FactorOffset {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [x]: [S::F32; 1]) -> S::F32 {
        simd.mul_add(x, simd.splat(self.factor), simd.splat(self.offset))
    }
}

/// `factor · x + offset`; the result may overwrite the operand.
pub(crate) fn scale(isa: Isa, op: &Scale, inputs: &[View<'_>], output: ViewMut<'_>) {
    let function = FactorOffset { factor: op.factor, offset: op.offset };
    let x = Operand::rows(Source::of(&inputs[0]), 0);
    let results = Results { target: Target::of(&output), start: 0 };
    // SAFETY: operand and result have the same number of elements.
    unsafe { elementwise(isa, &function, [x], results, 1, output.ty().elements()) };
}

/// `weight · a + (1 - weight) · b`.
pub(crate) struct Mix;

impl Elementwise<3> for Mix {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [a, b, weight]: [S::F32; 3]) -> S::F32 {
        let rest = simd.sub(simd.splat(1.0), weight);
        simd.mul_add(weight, a, simd.mul(rest, b))
    }
}

/// `α·a + (1−α)·b`; the result may overwrite `a` or `b`.
pub(crate) fn blend(isa: Isa, inputs: &[View<'_>], output: ViewMut<'_>) {
    let elements = output.ty().elements();
    if elements == 0 {
        return;
    }
    let alphas = inputs[2].ty().elements();
    let len = elements / alphas;
    let [a, b] = [0, 1].map(|i| Operand::rows(Source::of(&inputs[i]), len));
    let alpha = Operand::splat(Source::of(&inputs[2]), 1);
    let results = Results { target: Target::of(&output), start: 0 };
    // SAFETY: there is one α for each of the `alphas` rows of `len` elements.
    unsafe { elementwise(isa, &Mix, [a, b, alpha], results, alphas, len) };
}

#[derive(Default)]
struct Gated<A>(A);

impl<A: Function> Elementwise<2> for Gated<A> {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [value, gate]: [S::F32; 2]) -> S::F32 {
        simd.mul(value, A::of(simd, gate))
    }
}

/// The first half of the channels times an activation of the second.
pub(crate) fn gate(isa: Isa, op: &Gate, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    with_activation!(Some(op.activation), A => gate_by::<A>(isa, &inputs[0], &output));
}

fn gate_by<A: Function>(isa: Isa, x: &View<'_>, output: &ViewMut<'_>) {
    let (rows, channels) = (output.ty().shape.rows(), output.ty().shape.channels());
    let value = Operand::rows(Source::of(x), 2 * channels);
    let operands = [value, value.offset(channels)];
    let results = Results { target: Target::of(output), start: 0 };
    // SAFETY: the operand's rows have `2 · channels` elements, the result's `channels`.
    unsafe { elementwise(isa, &Gated::<A>::default(), operands, results, rows, channels) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_joined_if_both_operands_are_contiguous() {
        let axis = |extent, strides| Axis { extent, strides };
        // The same shape is one run; a channel vector repeats along one axis of rows; a scalar a pixel is two axes.
        assert_eq!(joined_axes(&[2, 3, 4], [&[2, 3, 4], &[2, 3, 4]]), [axis(24, [1, 1])]);
        assert_eq!(joined_axes(&[2, 3, 4], [&[2, 3, 4], &[4]]), [axis(6, [4, 0]), axis(4, [1, 1])]);
        assert_eq!(joined_axes(&[2, 3, 4], [&[2, 3, 1], &[2, 3, 4]]), [axis(6, [1, 4]), axis(4, [0, 1])]);
        assert_eq!(
            joined_axes(&[2, 3, 4], [&[2, 1, 4], &[1, 3, 1]]),
            [axis(2, [4, 0]), axis(3, [0, 1]), axis(4, [1, 0])]
        );
        assert_eq!(joined_axes(&[1, 1], [&[1, 1], &[]]), []);
    }
}
