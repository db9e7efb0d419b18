//! Sums accurate enough for statistics: f32 within short runs, f64 across them.

use super::blocks::{BLOCK, Block, Source};
use crate::simd::{Isa, Kernel, Simd};

/// Values summed in f32 before the sum continues in f64: at most 64 per lane.
const RUN: usize = 1024;
const ACCUMULATORS: usize = 4;

/// The sum of `x - shift` and of its square, over some values.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moments {
    pub(crate) sum: f64,
    pub(crate) squares: f64,
}

impl Moments {
    /// How far the mean of `count` values lies beyond the shift.
    #[inline(always)]
    pub(crate) fn beyond(&self, count: f64) -> f64 {
        self.sum / count
    }

    #[inline(always)]
    pub(crate) fn variance(&self, count: f64) -> f64 {
        let beyond = self.beyond(count);
        (self.squares / count - beyond * beyond).max(0.0)
    }

    /// Whether the shift is so far from the mean, three deviations, that the difference in the variance loses digits.
    #[inline(always)]
    pub(crate) fn is_far(&self, count: f64) -> bool {
        let beyond = self.beyond(count);
        beyond * beyond > 9.0 * self.variance(count)
    }
}

/// The moments of `count` values around `shift`, in f64 throughout if f32 overflows.
///
/// # Safety
/// `x` is valid for reading `count` values.
#[inline(always)]
pub(crate) unsafe fn moments<S: Simd>(simd: S, x: *const f32, count: usize, shift: f32) -> Moments {
    // SAFETY: passed on from the caller.
    let moments = unsafe { narrow_moments(simd, x, count, shift) };
    if moments.squares.is_finite() {
        return moments;
    }
    // SAFETY: as above.
    wide_moments(unsafe { std::slice::from_raw_parts(x, count) }.iter().copied(), shift)
}

/// The moments of values beyond 1e19, whose squares overflow f32, or of values that are not finite.
#[cold]
#[inline(never)]
pub(crate) fn wide_moments(values: impl Iterator<Item = f32>, shift: f32) -> Moments {
    let mut moments = Moments::default();
    for value in values {
        let d = f64::from(value) - f64::from(shift);
        moments.sum += d;
        moments.squares += d * d;
    }
    moments
}

/// # Safety
/// `x` is valid for reading `count` values.
#[inline(always)]
unsafe fn narrow_moments<S: Simd>(simd: S, x: *const f32, count: usize, shift: f32) -> Moments {
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
        sum += total(simd, run_sum);
        squares += total(simd, run_squares);
    }
    for at in at..count {
        // SAFETY: `at` < `count`.
        let d = f64::from(unsafe { x.add(at).read() } - shift);
        sum += d;
        squares += d * d;
    }
    Moments { sum, squares }
}

#[inline(always)]
fn total<S: Simd>(simd: S, [a, b, c, d]: [S::F32; ACCUMULATORS]) -> f64 {
    f64::from(simd.reduce_sum(simd.add(simd.add(a, b), simd.add(c, d))))
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
                total += moments(simd, x, count, 0.0).sum;
            }
        }
        total
    }
}
