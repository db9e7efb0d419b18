//! Sums accurate enough for statistics: f32 over short runs, f64 over the runs.

use super::blocks::{BLOCK, Block, Source};
use crate::simd::{Isa, Kernel, Simd};

/// Values summed in f32 before the sum goes on in f64: at most 64 a lane and accumulator.
const RUN: usize = 1024;
const ACCUMULATORS: usize = 4;

/// The sum of `x - shift` and of its square.
///
/// With a shift close to the mean, `squares / n - (sum / n)²` is the variance without cancellation.
///
/// # Safety
/// `x` is valid for reading `count` values.
#[inline(always)]
pub(crate) unsafe fn shifted_sums<S: Simd>(simd: S, x: *const f32, count: usize, shift: f32) -> (f64, f64) {
    let (mut sum, mut squares) = (0.0, 0.0);
    let offset = simd.splat(shift);
    let step = ACCUMULATORS * S::LANES;
    let mut at = 0;
    while at + S::LANES <= count {
        let end = (at + RUN).min(count);
        let mut run_sum = [simd.zero(); ACCUMULATORS];
        let mut run_squares = [simd.zero(); ACCUMULATORS];
        while at + step <= end {
            for i in 0..ACCUMULATORS {
                // SAFETY: `at + step` <= `count`.
                let d = simd.sub(unsafe { simd.load(x.add(at + i * S::LANES)) }, offset);
                run_sum[i] = simd.add(run_sum[i], d);
                run_squares[i] = simd.mul_add(d, d, run_squares[i]);
            }
            at += step;
        }
        while at + S::LANES <= end {
            // SAFETY: `at + LANES` <= `count`.
            let d = simd.sub(unsafe { simd.load(x.add(at)) }, offset);
            run_sum[0] = simd.add(run_sum[0], d);
            run_squares[0] = simd.mul_add(d, d, run_squares[0]);
            at += S::LANES;
        }
        for i in 0..ACCUMULATORS {
            sum += f64::from(simd.reduce_sum(run_sum[i]));
            squares += f64::from(simd.reduce_sum(run_squares[i]));
        }
    }
    for at in at..count {
        // SAFETY: `at` < `count`.
        let d = f64::from(unsafe { x.add(at).read() } - shift);
        sum += d;
        squares += d * d;
    }
    (sum, squares)
}

/// The sum of `count` elements from element `at`.
///
/// # Safety
/// The elements exist.
pub(crate) unsafe fn sum(isa: Isa, source: Source<'_>, at: usize, count: usize) -> f64 {
    isa.dispatch(Sum { source, at, count })
}

struct Sum<'a> {
    source: Source<'a>,
    at: usize,
    count: usize,
}

impl Kernel for Sum<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let mut buffer = Block::uninit();
        let mut total = 0.0;
        for at in (0..self.count).step_by(BLOCK) {
            let count = (self.count - at).min(BLOCK);
            // SAFETY: the elements exist by `sum`'s contract, and the buffer holds `count` <= BLOCK values.
            unsafe {
                let x = self.source.read(simd, self.at + at, count, buffer.as_mut_ptr());
                total += shifted_sums(simd, x, count, 0.0).0;
            }
        }
        total
    }
}
