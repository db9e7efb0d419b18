//! The softmax of one row of scores.

use crate::simd::Simd;

/// The largest value of a row, which is a whole number of vectors; unspecified if a score is NaN.
#[inline(always)]
pub(super) fn largest<S: Simd>(simd: S, scores: &[f32]) -> f32 {
    let mut largest = simd.splat(f32::NEG_INFINITY);
    for scores in scores.chunks_exact(S::LANES) {
        // SAFETY: `chunks_exact` yields LANES values.
        largest = simd.max(largest, unsafe { simd.load(scores.as_ptr()) });
    }
    simd.reduce_max(largest)
}

/// Replaces each score of a row, which is a whole number of vectors, by `e^(score - largest)`, and returns their sum.
///
/// No score exceeds `largest`; if that is -∞, as when every key is hidden, the row becomes zeros.
#[inline(always)]
pub(super) fn exponentiate<S: Simd>(simd: S, scores: &mut [f32], largest: f32) -> f32 {
    let largest = simd.splat(if largest == f32::NEG_INFINITY { 0.0 } else { largest });
    let mut sum = simd.zero();
    for scores in scores.chunks_exact_mut(S::LANES) {
        // SAFETY: `chunks_exact_mut` yields LANES values.
        unsafe {
            let weight = exp_of_negative(simd, simd.sub(simd.load(scores.as_ptr()), largest));
            simd.store(scores.as_mut_ptr(), weight);
            sum = simd.add(sum, weight);
        }
    }
    simd.reduce_sum(sum)
}

/// `e^x` for `x <= 0`, exactly 0 where it would be subnormal, within 2e-7 of 1: `math::exp` takes half as long again,
/// for the overflow, the subnormal results and the last place of small results that no weight of a mean needs.
#[inline(always)]
// The fit's linear coefficient is close to ln 2 but is not it.
#[allow(clippy::approx_constant)]
fn exp_of_negative<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let smallest = simd.splat(-126.0);
    let t = simd.mul(x, simd.splat(std::f32::consts::LOG2_E));
    let vanishes = simd.less_than(t, smallest);
    // The limit comes first in `max`, which then keeps a NaN.
    let t = simd.max(smallest, t);
    let exponent = simd.round(t);
    let r = simd.sub(t, exponent);
    // 2^r on |r| <= 1/2 by a minimax polynomial whose relative error is 1.1e-7.
    let mut power = simd.splat(0.001_326_472_7);
    for coefficient in [0.009_671_513, 0.055_507_336, 0.240_222_42, 0.693_147, 1.0] {
        power = simd.mul_add(power, r, simd.splat(coefficient));
    }
    simd.select(vanishes, simd.zero(), simd.mul(power, simd.exp2_int(exponent)))
}
