//! One pass of a separable filter over bytes.

use std::ops::Range;

use kinora_graph::op::Resample;

use crate::{
    simd::{Isa, Kernel, Simd},
    tasks,
    view::{View, ViewMut},
};

/// Neighbouring bytes whose sums are kept at a time, beside each other so that the compiler makes vectors of them.
const CHUNK: usize = 256;

/// Resizes an axis of bytes.
pub(crate) fn resample(isa: Isa, op: &Resample, inputs: &[View<'_>], output: ViewMut<'_>) {
    let shape = &inputs[0].ty().shape;
    // SAFETY: the result has memory of its own, so nothing writes the operands.
    let (x, first, weights) =
        unsafe { (inputs[0].slice::<u8>(), inputs[1].slice::<i32>(), inputs[2].slice::<i32>()) };
    let axis = Axis {
        x,
        first,
        weights,
        y: &output,
        from: shape[op.axis],
        taps: weights.len() / first.len(),
        inner: shape[op.axis + 1..].iter().product(),
    };
    let positions = output.ty().elements() / axis.inner;
    tasks::rectangles(positions, axis.inner, |positions, columns| {
        isa.dispatch(Positions { axis: &axis, positions, columns })
    });
}

struct Axis<'a> {
    x: &'a [u8],
    first: &'a [i32],
    weights: &'a [i32],
    y: &'a ViewMut<'a>,
    from: usize,
    taps: usize,
    /// Bytes of a position of the axis.
    inner: usize,
}

impl<'a> Axis<'a> {
    /// The weights of a position of the result, each with the place of its neighbour's first byte.
    #[inline(always)]
    fn neighbours(&self, position: usize) -> impl Iterator<Item = (usize, i32)> + use<'a> {
        let to = self.first.len();
        let (outer, i) = (position / to, position % to);
        let (start, inner) = (outer * self.from, self.inner);
        let (first, last) = (i64::from(self.first[i]), self.from as i64 - 1);
        self.weights[i * self.taps..][..self.taps].iter().enumerate().map(move |(tap, &weight)| {
            let neighbour = (first + tap as i64).clamp(0, last) as usize;
            ((start + neighbour) * inner, weight)
        })
    }

    /// `N` bytes of a position of the result, or fewer.
    #[inline(always)]
    fn sum<const N: usize>(&self, position: usize, column: usize, count: usize) {
        let mut sums = [Resample::HALF; N];
        for (neighbour, weight) in self.neighbours(position) {
            for (sum, &value) in sums.iter_mut().zip(&self.x[neighbour + column..][..count]) {
                *sum = sum.wrapping_add(i32::from(value).wrapping_mul(weight));
            }
        }
        // SAFETY: the result has these bytes, and no other task has them.
        let y = unsafe {
            std::slice::from_raw_parts_mut(self.y.bytes().add(position * self.inner + column), count)
        };
        for (y, sum) in y.iter_mut().zip(sums) {
            *y = (sum >> Resample::FRACTION_BITS).clamp(0, 255) as u8;
        }
    }
}

/// Some bytes of some positions of the result.
struct Positions<'a> {
    axis: &'a Axis<'a>,
    positions: Range<usize>,
    columns: Range<usize>,
}

impl Kernel for Positions<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for position in self.positions {
            match self.columns.len() {
                // The channels of a pixel, as a number that the compiler knows.
                1 => self.axis.sum::<1>(position, self.columns.start, 1),
                3 => self.axis.sum::<3>(position, self.columns.start, 3),
                4 => self.axis.sum::<4>(position, self.columns.start, 4),
                _ => {
                    for column in self.columns.clone().step_by(CHUNK) {
                        let count = (self.columns.end - column).min(CHUNK);
                        self.axis.sum::<CHUNK>(position, column, count);
                    }
                }
            }
        }
    }
}
