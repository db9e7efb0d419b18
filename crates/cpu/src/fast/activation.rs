//! Activations on their own.

use kinora_graph::op::Activation;

use super::{
    blocks::{Source, Target},
    elementwise::{Elementwise, Operand, Results, elementwise},
};
use crate::{
    simd::{
        Isa, Simd,
        activation::{Function, with_activation},
    },
    view::{View, ViewMut},
};

/// The activation alone.
#[derive(Default)]
struct Apply<A>(A);

impl<A: Function> Elementwise<1> for Apply<A> {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [x]: [S::F32; 1]) -> S::F32 {
        A::of(simd, x)
    }
}

/// A pointwise function; the result may overwrite the operand.
pub(crate) fn activate(isa: Isa, op: Activation, inputs: &[View<'_>], output: ViewMut<'_>) {
    with_activation!(Some(op), A => activate_by::<A>(isa, &inputs[0], &output));
}

fn activate_by<A: Function>(isa: Isa, x: &View<'_>, output: &ViewMut<'_>) {
    let x = Operand::rows(Source::of(x), 0);
    let results = Results { target: Target::of(output), start: 0 };
    // SAFETY: operand and result have the same number of elements.
    unsafe { elementwise(isa, &Apply::<A>::default(), [x], results, 1, output.ty().elements()) };
}
