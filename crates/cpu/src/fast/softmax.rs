//! Softmax over the last axis.

use std::ops::Range;

use super::{
    blocks::{Source, Target},
    elementwise::{Elementwise, Times, run},
    sums::moments,
};
use crate::{
    simd::{Isa, Kernel, Simd, math},
    tasks,
    view::{View, ViewMut},
};

/// Softmax of each row, zeros if all of a row is −∞; the result may overwrite the operand.
pub(crate) fn softmax(isa: Isa, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    let (rows, len) = (output.ty().shape.rows(), output.ty().shape.channels());
    let (source, target) = (Source::of(&inputs[0]), Target::of(&output));
    tasks::each(rows, tasks::rows_of_task(len), |rows| isa.dispatch(Rows { source, target, len, rows }));
}

struct Rows<'a> {
    source: Source<'a>,
    target: Target<'a>,
    len: usize,
    rows: Range<usize>,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut buffer = vec![0.0; self.len];
        for row in self.rows {
            let at = row * self.len;
            // SAFETY: the row's elements exist, the buffer holds a row, and no other task has this row.
            unsafe {
                let x = self.source.read(simd, at, self.len, buffer.as_mut_ptr());
                let largest = largest(simd, x, self.len);
                let to = self.target.place(at, buffer.as_mut_ptr());
                // A row of only -inf is not shifted: its exponentials are zeros, and so is their sum.
                let shift = if largest == f32::NEG_INFINITY { 0.0 } else { largest };
                run(simd, &Exponential { shift }, [x], to, self.len);
                let sum = moments(simd, to, self.len, 0.0).sum;
                let factor = if sum == 0.0 { 0.0 } else { (1.0 / sum) as f32 };
                run(simd, &Times { factor }, [to.cast_const()], to, self.len);
                self.target.commit(simd, at, self.len, to);
            }
        }
    }
}

/// # Safety
/// `x` is valid for reading `count` values.
#[inline(always)]
unsafe fn largest<S: Simd>(simd: S, x: *const f32, count: usize) -> f32 {
    let mut vector = simd.splat(f32::NEG_INFINITY);
    let whole = count / S::LANES * S::LANES;
    // SAFETY: whole vectors end at `whole` <= `count`.
    unsafe {
        for at in (0..whole).step_by(S::LANES) {
            vector = simd.max(simd.load(x.add(at)), vector);
        }
        let mut largest = simd.reduce_max(vector);
        for at in whole..count {
            largest = largest.max(*x.add(at));
        }
        largest
    }
}

struct Exponential {
    shift: f32,
}

impl Elementwise<1> for Exponential {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [x]: [S::F32; 1]) -> S::F32 {
        math::exp(simd, simd.sub(x, simd.splat(self.shift)))
    }
}
