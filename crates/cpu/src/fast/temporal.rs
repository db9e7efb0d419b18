//! The blend of a frame with the one before.

use std::ops::Range;

use kinora_graph::op::TemporalBlend;

use super::{
    blocks::{BLOCK, Source, Target},
    elementwise::{Operand, Results, elementwise},
    pointwise::Mix,
};
use crate::{
    simd::{Isa, Kernel, Simd},
    tasks,
    view::{View, ViewMut},
};

/// A frame blended with the previous one; the result may overwrite either.
pub(crate) fn temporal_blend(isa: Isa, op: &TemporalBlend, inputs: &[View<'_>], output: ViewMut<'_>) {
    let elements = output.ty().elements();
    if elements == 0 {
        return;
    }
    let [current, previous, strength] = [0, 1, 2].map(|i| Source::of(&inputs[i]));
    let target = Target::of(&output);
    let Some(threshold) = op.threshold else {
        let operands = [Operand::rows(previous, 0), Operand::rows(current, 0), Operand::splat(strength, 0)];
        // SAFETY: both frames and the result have `elements` elements, the strength one.
        return unsafe { elementwise(isa, &Mix, operands, Results { target, start: 0 }, 1, elements) };
    };
    // SAFETY: the strength has one element.
    let strength = unsafe { strength.get(0) };
    let channels = output.ty().shape.channels();
    tasks::each(elements / channels, tasks::rows_of_task(channels), |pixels| {
        isa.dispatch(Pixels { current, previous, target, strength, threshold, channels, pixels });
    });
}

struct Pixels<'a> {
    current: Source<'a>,
    previous: Source<'a>,
    target: Target<'a>,
    strength: f32,
    threshold: f32,
    channels: usize,
    pixels: Range<usize>,
}

impl Kernel for Pixels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let channels = self.channels;
        let at_once = (BLOCK / channels).max(1);
        let mut buffers = [vec![0.0; at_once * channels], vec![0.0; at_once * channels]];
        for first in self.pixels.clone().step_by(at_once) {
            let pixels = (self.pixels.end - first).min(at_once);
            let (at, count) = (first * channels, pixels * channels);
            // SAFETY: the pixels exist in both frames and in the result, no other task has them, and the buffers hold
            // `count` values. A pixel's weight is known before its first channel is written.
            unsafe {
                let current = self.current.read(simd, at, count, buffers[0].as_mut_ptr());
                let previous = self.previous.read(simd, at, count, buffers[1].as_mut_ptr());
                let to = self.target.place(at, buffers[0].as_mut_ptr());
                for pixel in (0..count).step_by(channels) {
                    let mut difference = 0.0;
                    for i in pixel..pixel + channels {
                        difference += (*current.add(i) - *previous.add(i)).abs();
                    }
                    let moved = difference / (channels as f32 * self.threshold);
                    let weight = self.strength * (1.0 - moved).max(0.0);
                    for i in pixel..pixel + channels {
                        *to.add(i) = weight * *previous.add(i) + (1.0 - weight) * *current.add(i);
                    }
                }
                self.target.commit(simd, at, count, to);
            }
        }
    }
}
