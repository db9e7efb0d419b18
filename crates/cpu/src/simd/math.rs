//! Elementary functions and activations on vectors, accurate to a few units in the last place.

use super::Simd;

/// `c[0] + x·(c[1] + x·(c[2] + …))`.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: S::F32, coefficients: [f32; N]) -> S::F32 {
    let mut sum = simd.splat(coefficients[N - 1]);
    for &coefficient in coefficients[..N - 1].iter().rev() {
        sum = simd.mul_add(sum, x, simd.splat(coefficient));
    }
    sum
}

/// `e^x`; 0 far below and infinity far above the range of f32, subnormal results included.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    // Beyond these limits the result is 0 or infinity. They come first in `max` and `min`, which then keep a NaN.
    let x = simd.min(simd.splat(90.0), simd.max(simd.splat(-110.0), x));
    let (p, exponent) = exp_in_parts(simd, x);
    // In two steps, because 2^exponent itself may be infinite or subnormal where the result is not.
    let first = simd.round(simd.mul(exponent, simd.splat(0.5)));
    let second = simd.sub(exponent, first);
    simd.mul(simd.mul(p, simd.exp2_int(first)), simd.exp2_int(second))
}

/// `1 + e^x`: infinity from 88.4 on, a little before `e^x` is.
#[inline(always)]
fn one_and_exp<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    // Within these limits 2^exponent is a normal number or infinity. They come first, to keep a NaN.
    let x = simd.min(simd.splat(89.0), simd.max(simd.splat(-87.0), x));
    let (p, exponent) = exp_in_parts(simd, x);
    simd.mul_add(p, simd.exp2_int(exponent), simd.splat(1.0))
}

/// `p` and `n` with `e^x = p · 2^n`, and `p` between 0.7 and 1.42.
#[inline(always)]
fn exp_in_parts<S: Simd>(simd: S, x: S::F32) -> (S::F32, S::F32) {
    // ln 2 in two parts, the first with trailing zeros so that its product with the exponent is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let exponent = simd.round(simd.mul(x, simd.splat(std::f32::consts::LOG2_E)));
    let r = simd.mul_add(exponent, simd.splat(-LN2_HIGH), x);
    let r = simd.mul_add(exponent, simd.splat(-LN2_LOW), r);
    // Cephes' minimax polynomial of (e^r - 1 - r) / r² on |r| <= ln(2) / 2.
    let p =
        polynomial(simd, r, [0.5, 0.166_666_66, 0.041_665_796, 0.008_333_452, 0.001_398_2, 0.000_198_756_92]);
    (simd.add(simd.mul_add(p, simd.mul(r, r), r), simd.splat(1.0)), exponent)
}

/// `e^x` for `x` up to 80; 0 where it would be subnormal.
#[inline(always)]
fn exp_or_zero<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let smallest = simd.splat(-87.0);
    let vanishes = simd.less_than(x, smallest);
    // The limit comes first in `max`, which then keeps a NaN.
    let (p, exponent) = exp_in_parts(simd, simd.max(smallest, x));
    simd.select(vanishes, simd.zero(), simd.mul(p, simd.exp2_int(exponent)))
}

/// `1 - erf(z)` for `z >= 0`, to a few 1e-7 of its own value, down to 1e-37 and then zero.
#[inline(always)]
fn erfc_of_positive<S: Simd>(simd: S, z: S::F32) -> S::F32 {
    let t = simd.div(simd.splat(1.0), simd.mul_add(z, simd.splat(0.5), simd.splat(1.0)));
    // The Chebyshev fit `erfcc` of Numerical Recipes: erfc(z) = t·e^(p(t) - z²).
    let p = polynomial(
        simd,
        t,
        [
            -1.265_512_2,
            1.000_023_7,
            0.374_091_96,
            0.096_784_18,
            -0.186_288_06,
            0.278_868_08,
            -1.135_204,
            1.488_515_9,
            -0.822_152_23,
            0.170_872_77,
        ],
    );
    simd.mul(t, exp_or_zero(simd, simd.mul_add(simd.neg(z), z, p)))
}

/// The error function.
#[inline(always)]
pub fn erf<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let magnitude = simd.abs(x);
    let far = simd.sub(simd.splat(1.0), erfc_of_positive(simd, magnitude));
    let far = simd.select(simd.less_than(x, simd.zero()), simd.neg(far), far);
    // Near zero that cancels, and the Taylor series takes over: 2/√π · Σ (-1)^n x^(2n+1) / (n!·(2n+1)).
    let square = simd.mul(x, x);
    let p = polynomial(
        simd,
        square,
        [
            std::f32::consts::FRAC_2_SQRT_PI,
            -0.376_126_4,
            0.112_837_92,
            -0.026_866_17,
            0.005_223_977_6,
            -0.000_854_832_7,
            0.000_120_552_9,
        ],
    );
    simd.select(simd.less_than(magnitude, simd.splat(0.5)), simd.mul(p, x), far)
}

/// The hyperbolic tangent.
#[inline(always)]
pub fn tanh<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let magnitude = simd.abs(x);
    // Away from zero 1 - 2 / (e^2|x| + 1); near it that cancels, and Cephes' odd polynomial takes over.
    let growth = exp(simd, simd.add(magnitude, magnitude));
    let far = simd.sub(simd.splat(1.0), simd.div(simd.splat(2.0), simd.add(growth, simd.splat(1.0))));
    let far = simd.select(simd.less_than(x, simd.zero()), simd.neg(far), far);
    let square = simd.mul(x, x);
    let p = polynomial(
        simd,
        square,
        [-0.333_332_8, 0.133_314_42, -0.053_739_715, 0.020_639_09, -0.005_704_988_6],
    );
    let near = simd.mul_add(simd.mul(p, square), x, x);
    simd.select(simd.less_than(magnitude, simd.splat(0.625)), near, far)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    simd.div(simd.splat(1.0), one_and_exp(simd, simd.neg(x)))
}

/// `x · sigmoid(x)`.
#[inline(always)]
pub fn silu<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    swish(simd, x, x)
}

/// `x · sigmoid(t)`, the common form of SiLU and of both GELU approximations.
#[inline(always)]
fn swish<S: Simd>(simd: S, x: S::F32, t: S::F32) -> S::F32 {
    simd.div(x, one_and_exp(simd, simd.neg(t)))
}

/// GELU by the error function: `x/2 · (1 + erf(x/√2))`.
#[inline(always)]
pub fn gelu_erf<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    // x/2·erfc(-x/√2) = x/2·erfc(z) below zero and x - x/2·erfc(z) above it, z = |x|/√2: no cancellation in either tail.
    let z = simd.mul(simd.abs(x), simd.splat(std::f32::consts::FRAC_1_SQRT_2));
    // From 100 on the tail is zero; without the bound, infinity would multiply that zero.
    let bounded = simd.min(simd.splat(100.0), x);
    let tail = simd.mul(simd.mul(bounded, simd.splat(0.5)), erfc_of_positive(simd, z));
    simd.select(simd.less_than(x, simd.zero()), tail, simd.sub(x, tail))
}

/// [`gelu_erf`] to 2^-11 of its value from -6 on, for results that are rounded to bfloat16, which may change them by four times as much.
/// It takes a third of the time.
#[inline(always)]
pub(crate) fn gelu_erf_to_bf16<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    // x·Φ(x) = x / (1 + 2^t), where -t·ln 2 is the logit of Φ(x): odd, smooth, and to 4.6e-4 a polynomial on |x| <= 6. Beyond, it grows
    // to infinity as the logit does.
    let t = polynomial(
        simd,
        simd.mul(x, x),
        [
            -2.300_411_3,
            -0.107_024_18,
            8.615_539_5e-4,
            4.245_943e-5,
            -2.594_077_2e-6,
            5.646_286_3e-8,
            -4.536_827e-10,
        ],
    );
    // The limits come first, to keep a NaN; 2^128 is infinity.
    let t = simd.min(simd.splat(128.0), simd.max(simd.splat(-126.0), simd.mul(x, t)));
    let exponent = simd.round(t);
    // 2^r on |r| <= 1/2, to 3.5e-6.
    let p =
        polynomial(simd, simd.sub(t, exponent), [1.0, 0.693_121_1, 0.240_223_5, 0.055_921_98, 0.009_666_37]);
    simd.div(x, simd.mul_add(p, simd.exp2_int(exponent), simd.splat(1.0)))
}

/// GELU by its tanh approximation: `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
#[inline(always)]
pub fn gelu_tanh<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    // 1 + tanh(u) = 2·sigmoid(2u), which keeps its relative accuracy where tanh is close to -1.
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    let cubic = simd.mul_add(simd.mul(x, x), simd.splat(0.044_715), simd.splat(1.0));
    swish(simd, x, simd.mul(simd.mul(x, simd.splat(TWICE_SQRT_2_OVER_PI)), cubic))
}

/// The GELU of CLIP: `x · sigmoid(1.702·x)`.
#[inline(always)]
pub fn quick_gelu<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    swish(simd, x, simd.mul(x, simd.splat(1.702)))
}

#[cfg(test)]
mod tests {
    use super::super::{Float, Isa, Kernel};
    use super::*;

    /// One function of this module, by name, so that a test can run it for any instruction set.
    #[derive(Clone, Copy, Debug)]
    enum Function {
        Exp,
        Erf,
        Tanh,
        Sigmoid,
        Silu,
        GeluErf,
        GeluErfToBf16,
        GeluTanh,
        QuickGelu,
        Sqrt,
        Round,
        Neg,
        Abs,
    }

    struct Apply<'a>(Function, &'a mut [f32]);

    impl Kernel for Apply<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            for chunk in self.1.chunks_mut(S::LANES) {
                // SAFETY: the chunk holds `chunk.len()` <= LANES values.
                let x = unsafe { f32::load_partial(simd, chunk.as_ptr(), chunk.len()) };
                let y = match self.0 {
                    Function::Exp => exp(simd, x),
                    Function::Erf => erf(simd, x),
                    Function::Tanh => tanh(simd, x),
                    Function::Sigmoid => sigmoid(simd, x),
                    Function::Silu => silu(simd, x),
                    Function::GeluErf => gelu_erf(simd, x),
                    Function::GeluErfToBf16 => gelu_erf_to_bf16(simd, x),
                    Function::GeluTanh => gelu_tanh(simd, x),
                    Function::QuickGelu => quick_gelu(simd, x),
                    Function::Sqrt => simd.sqrt(x),
                    Function::Round => simd.round(x),
                    Function::Neg => simd.neg(x),
                    Function::Abs => simd.abs(x),
                };
                // SAFETY: as for the load.
                unsafe { f32::store_partial(simd, chunk.as_mut_ptr(), y, chunk.len()) };
            }
        }
    }

    fn apply(isa: Isa, function: Function, inputs: &[f32]) -> Vec<f32> {
        let mut values = inputs.to_vec();
        isa.dispatch(Apply(function, &mut values));
        values
    }

    /// erf in f64 by its Taylor series near zero and the continued fraction of erfc far from it.
    fn erf_f64(x: f64) -> f64 {
        if x.abs() < 3.0 {
            let (mut term, mut sum) = (x, x);
            for n in 1..120 {
                term *= -x * x / n as f64;
                sum += term / (2 * n + 1) as f64;
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let z = x.abs();
            let fraction = (1..200).rev().fold(z, |tail, n| z + n as f64 * 0.5 / tail);
            (1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt())).copysign(x)
        }
    }

    fn exact(function: Function, x: f64) -> f64 {
        let sigmoid = |t: f64| 1.0 / (1.0 + (-t).exp());
        match function {
            Function::Exp => x.exp(),
            Function::Erf => erf_f64(x),
            Function::Tanh => x.tanh(),
            Function::Sigmoid => sigmoid(x),
            Function::Silu => x * sigmoid(x),
            Function::GeluErf | Function::GeluErfToBf16 => {
                0.5 * x * (1.0 + erf_f64(x / std::f64::consts::SQRT_2))
            }
            Function::GeluTanh => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
            }
            Function::QuickGelu => x * sigmoid(1.702 * x),
            Function::Sqrt => x.sqrt(),
            Function::Round => x.round_ties_even(),
            Function::Neg => -x,
            Function::Abs => x.abs(),
        }
    }

    /// Checks a function over `steps` points of a range: the error within `absolute + relative·|exact|`.
    fn check(function: Function, range: (f32, f32), absolute: f64, relative: f64) {
        let steps = 100_003;
        let inputs: Vec<f32> =
            (0..=steps).map(|i| range.0 + (range.1 - range.0) * (i as f32 / steps as f32)).collect();
        for isa in Isa::available() {
            let outputs = apply(isa, function, &inputs);
            let mut worst = (0.0, 0.0);
            for (&x, &y) in inputs.iter().zip(&outputs) {
                let exact = exact(function, x as f64);
                let excess = (y as f64 - exact).abs() / (absolute + relative * exact.abs());
                assert!(!excess.is_nan(), "{isa:?} {function:?}({x}) = {y}, not {exact}");
                if excess > worst.0 {
                    worst = (excess, x);
                }
            }
            assert!(
                worst.0 <= 1.0,
                "{isa:?} {function:?}({}) is {} times the error allowed",
                worst.1,
                worst.0
            );
        }
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        check(Function::Exp, (-87.0, 88.7), 0.0, 1.8e-7);
        check(Function::Exp, (-1.0, 1.0), 0.0, 1.8e-7);
        // Subnormal results are rounded to a multiple of 2^-149.
        check(Function::Exp, (-104.0, -87.0), 1.5e-45, 2e-7);
    }

    #[test]
    fn erf_is_within_2e_7() {
        check(Function::Erf, (-6.0, 6.0), 2e-7, 0.0);
        check(Function::Erf, (-1e-3, 1e-3), 0.0, 5e-7);
    }

    #[test]
    fn tanh_and_sigmoid_keep_relative_accuracy() {
        check(Function::Tanh, (-12.0, 12.0), 0.0, 3e-7);
        check(Function::Tanh, (-1e-3, 1e-3), 0.0, 2e-7);
        check(Function::Sigmoid, (-80.0, 80.0), 0.0, 4e-7);
    }

    #[test]
    fn activations_are_within_1e_6() {
        for range in [(-12.0, 12.0), (-1e-2, 1e-2), (-100.0, 100.0)] {
            check(Function::Silu, range, 1e-7, 4e-7);
            check(Function::GeluErf, range, 1e-7, 5e-7);
            check(Function::GeluTanh, range, 3e-7, 4e-7);
            check(Function::QuickGelu, range, 1e-7, 4e-7);
        }
    }

    #[test]
    fn gelu_for_bf16_is_within_a_quarter_of_its_rounding() {
        check(Function::GeluErfToBf16, (-6.0, 12.0), 1e-30, 2f64.powi(-11));
        check(Function::GeluErfToBf16, (-100.0, 100.0), 1e-8, 2f64.powi(-11));
    }

    #[test]
    fn plain_functions_are_exact() {
        check(Function::Sqrt, (0.0, 100.0), 1e-30, 6e-8);
        check(Function::Round, (-300.5, 300.5), 1e-30, 0.0);
        check(Function::Round, (-1e9, 1e9), 1e-30, 0.0);
        check(Function::Neg, (-3.0, 3.0), 1e-30, 0.0);
        check(Function::Abs, (-3.0, 3.0), 1e-30, 0.0);
    }

    #[test]
    fn extremes_saturate_and_nan_stays_nan() {
        use Function::*;
        for isa in Isa::available() {
            let at = |function, x: f32| apply(isa, function, &[x])[0];
            for huge in [1e4, 1e30, f32::MAX] {
                assert_eq!(at(Exp, -huge), 0.0);
                assert_eq!(at(Exp, huge), f32::INFINITY);
                assert_eq!((at(Tanh, -huge), at(Tanh, huge)), (-1.0, 1.0));
                assert_eq!((at(Sigmoid, -huge), at(Sigmoid, huge)), (0.0, 1.0));
                assert!((at(Erf, -huge) + 1.0).abs() < 2e-7 && (at(Erf, huge) - 1.0).abs() < 2e-7);
                for activation in [Silu, GeluErf, GeluErfToBf16, GeluTanh, QuickGelu] {
                    assert_eq!(
                        (at(activation, -huge), at(activation, huge)),
                        (0.0, huge),
                        "{isa:?} {activation:?}"
                    );
                }
            }
            assert_eq!(at(Exp, 0.0), 1.0);
            assert_eq!((at(Exp, f32::NEG_INFINITY), at(Exp, f32::INFINITY)), (0.0, f32::INFINITY));
            assert_eq!(at(Neg, 0.0).to_bits(), (-0.0f32).to_bits());
            assert_eq!(at(Abs, -0.0).to_bits(), 0.0f32.to_bits());
            for function in [Exp, Erf, Tanh, Sigmoid, Silu, GeluErf, GeluErfToBf16, GeluTanh, QuickGelu] {
                assert!(at(function, f32::NAN).is_nan(), "{isa:?} {function:?}");
            }
        }
    }

    #[test]
    fn reductions_cover_every_lane() {
        struct Reduce<'a>(&'a [f32]);
        impl Kernel for Reduce<'_> {
            type Output = (f32, f32);
            #[inline(always)]
            fn run<S: Simd>(self, simd: S) -> (f32, f32) {
                // SAFETY: the test passes LANES values.
                let value = unsafe { simd.load(self.0.as_ptr()) };
                (simd.reduce_sum(value), simd.reduce_max(value))
            }
        }
        for isa in Isa::available() {
            for lane in 0..isa.lanes() {
                let mut values = vec![-1.0; isa.lanes()];
                values[lane] = 5.0;
                assert_eq!(isa.dispatch(Reduce(&values)), (6.0 - isa.lanes() as f32, 5.0), "{isa:?} {lane}");
            }
        }
    }
}
