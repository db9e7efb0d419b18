//! Box–Muller over a block, rounding where PyTorch rounds.
//!
//! In f32 PyTorch uses the logarithm, sine and cosine of the Cephes library, vectorised for AVX2, and its compiler joins
//! every product with the sum that follows it. The same polynomials with the same fused operations give the same bits
//! on any machine. (PyTorch itself differs in the last bits if it runs without AVX2 or with AVX-512: there it calls
//! the C library.) In f16 and bf16 it calls the C library in f32 and rounds every intermediate result.

use half::{bf16, f16};

/// Half a block: radii come from the first half's uniforms, angles from the second's.
pub(super) const HALF_BLOCK: usize = 8;

/// An element type of PyTorch's tensors, computed with as f32.
pub(super) trait Element {
    /// Bits of a uniform number: the significand's.
    const DIGITS: u32;

    /// Rounds to the type.
    fn round(value: f32) -> f32;

    /// The radius for a uniform number in [0, 1).
    fn radius(uniform: f32) -> f32 {
        let log = Self::round(Self::round(1.0 - uniform).ln());
        Self::round(Self::round(-2.0 * log).sqrt())
    }

    /// Sine and cosine of an angle in turns.
    fn sin_cos(turns: f32) -> (f32, f32) {
        let angle = Self::round((std::f64::consts::TAU * f64::from(turns)) as f32);
        (Self::round(angle.sin()), Self::round(angle.cos()))
    }
}

/// Turns a block of uniform numbers into normal ones.
pub(super) fn fill_block<T: Element>(block: &mut [f32; 2 * HALF_BLOCK]) {
    let (first, second) = block.split_at_mut(HALF_BLOCK);
    for (a, b) in first.iter_mut().zip(second) {
        let radius = T::radius(*a);
        let (sin, cos) = T::sin_cos(*b);
        // PyTorch then adds a mean of zero, which makes a negative zero positive.
        *a = T::round(radius * cos) + 0.0;
        *b = T::round(radius * sin) + 0.0;
    }
}

impl Element for f32 {
    const DIGITS: u32 = f32::MANTISSA_DIGITS;

    fn radius(uniform: f32) -> f32 {
        (-2.0 * cephes_ln(1.0 - uniform)).sqrt()
    }

    fn sin_cos(turns: f32) -> (f32, f32) {
        cephes_sin_cos(std::f32::consts::TAU * turns)
    }

    fn round(value: f32) -> f32 {
        value
    }
}

impl Element for f16 {
    const DIGITS: u32 = f16::MANTISSA_DIGITS;

    fn round(value: f32) -> f32 {
        f16::from_f32(value).to_f32()
    }
}

impl Element for bf16 {
    const DIGITS: u32 = bf16::MANTISSA_DIGITS;

    fn round(value: f32) -> f32 {
        bf16::from_f32(value).to_f32()
    }
}

/// A polynomial by Horner's rule, highest power first.
fn polynomial(x: f32, coefficients: &[f32]) -> f32 {
    coefficients.iter().fold(0.0, |sum, &coefficient| sum.mul_add(x, coefficient))
}

/// The natural logarithm of a positive normal number, as Cephes' `logf` has it.
fn cephes_ln(value: f32) -> f32 {
    const COEFFICIENTS: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    // ln 2 in two parts: the high one has few bits, so that its product with the exponent is exact.
    const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    const FRACTION: u32 = (1 << 23) - 1;
    let bits = value.to_bits();
    // value = fraction · 2^exponent, fraction in [½, 1), then in [√½, √2).
    let mut exponent = (bits >> 23) as f32 - 126.0;
    let mut fraction = f32::from_bits(bits & FRACTION | 0.5f32.to_bits());
    if fraction < std::f32::consts::FRAC_1_SQRT_2 {
        exponent -= 1.0;
        fraction += fraction;
    }
    let x = fraction - 1.0;
    let square = x * x;
    let tail = (polynomial(x, &COEFFICIENTS) * x).mul_add(square, exponent * LN_2.1);
    let tail = square.mul_add(-0.5, tail);
    exponent.mul_add(LN_2.0, x + tail)
}

/// Sine and cosine of an angle that is not negative, as Cephes' `sinf` and `cosf` have them.
fn cephes_sin_cos(angle: f32) -> (f32, f32) {
    const SINE: [f32; 3] = [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1];
    const COSINE: [f32; 3] = [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2];
    // π/4 in three parts, each of so few bits that its product with the octant is exact but for the last.
    const QUARTER_PI: [f32; 3] = [0.785_156_25, 2.418_756_5e-4, 3.774_895e-8];
    // The nearest even octant.
    let octant = ((angle * (4.0 / std::f32::consts::PI)) as i32 + 1) & !1;
    let x = QUARTER_PI.iter().fold(angle, |x, &part| (octant as f32).mul_add(-part, x));
    let square = x * x;
    let cosine = (polynomial(square, &COSINE) * square).mul_add(square, -0.5 * square) + 1.0;
    let sine = (polynomial(square, &SINE) * square).mul_add(x, x);
    let (sine, cosine) = if octant & 2 == 0 { (sine, cosine) } else { (cosine, sine) };
    let sine = if octant & 4 == 0 { sine } else { -sine };
    // The cosine is negative in the octants 2 to 5.
    let cosine = if (octant - 2) & 4 == 0 { -cosine } else { cosine };
    (sine, cosine)
}
