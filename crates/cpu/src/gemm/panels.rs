//! A piece of a panel of weights as the microkernel reads it, whatever is stored.

use std::marker::PhantomData;
use std::ops::Range;

use half::bf16;

use super::microkernel::{Arithmetic, Singles, panel_columns};
use super::values::copy;
use crate::simd::{Float, Simd};

/// Panels of weights, one after the other.
pub(super) trait Panel {
    /// How the lines are multiplied.
    type Arithmetic: Arithmetic;

    /// The lines of `depth`, in steps of the arithmetic, of a panel with `panel_depth` of them. `room` is for as many, if
    /// they are not stored in this form.
    ///
    /// # Panics
    /// If panel, depth or room are not there.
    fn piece<'a, S: Simd>(
        &'a self,
        simd: S,
        panel: usize,
        panel_depth: usize,
        depth: Range<usize>,
        room: &'a mut [f32],
    ) -> &'a [f32];
}

/// Panels that are stored in steps of their arithmetic.
pub(super) struct InPlace<'a, A> {
    steps: &'a [f32],
    arithmetic: PhantomData<A>,
}

impl<'a, A> InPlace<'a, A> {
    /// Of f32 values, or of whole pairs of bfloat16 values that begin on a cache line.
    pub(super) fn new<E: Float>(values: &'a [E]) -> Self {
        InPlace { steps: bytemuck::cast_slice(values), arithmetic: PhantomData }
    }
}

impl<A: Arithmetic> Panel for InPlace<'_, A> {
    type Arithmetic = A;

    #[inline(always)]
    fn piece<'a, S: Simd>(
        &'a self,
        _: S,
        panel: usize,
        panel_depth: usize,
        depth: Range<usize>,
        _: &'a mut [f32],
    ) -> &'a [f32] {
        let width = panel_columns::<S>();
        &self.steps[(panel * panel_depth + depth.start) * width..][..depth.len() * width]
    }
}

/// Panels of a half-precision type, multiplied as f32.
pub(super) struct Widened<'a, E>(pub(super) &'a [E]);

impl<E: Float> Panel for Widened<'_, E> {
    type Arithmetic = Singles;

    #[inline(always)]
    fn piece<'a, S: Simd>(
        &'a self,
        simd: S,
        panel: usize,
        panel_depth: usize,
        depth: Range<usize>,
        room: &'a mut [f32],
    ) -> &'a [f32] {
        let width = panel_columns::<S>();
        let room = &mut room[..depth.len() * width];
        copy(simd, &self.0[(panel * panel_depth + depth.start) * width..][..room.len()], room);
        room
    }
}

/// Panels of pairs for rows that are not bfloat16, multiplied as f32.
pub(super) struct PairsAsSingles<'a>(pub(super) &'a [bf16]);

impl Panel for PairsAsSingles<'_> {
    type Arithmetic = Singles;

    #[inline(always)]
    fn piece<'a, S: Simd>(
        &'a self,
        _: S,
        panel: usize,
        panel_depth: usize,
        depth: Range<usize>,
        room: &'a mut [f32],
    ) -> &'a [f32] {
        let width = panel_columns::<S>();
        let room = &mut room[..depth.len() * width];
        let pairs = panel_depth.div_ceil(2);
        for (k, line) in depth.zip(room.chunks_exact_mut(width)) {
            let pairs = &self.0[(panel * pairs + k / 2) * 2 * width..][..2 * width];
            for (value, pair) in line.iter_mut().zip(pairs.chunks_exact(2)) {
                *value = pair[k % 2].to_f32();
            }
        }
        room
    }
}
