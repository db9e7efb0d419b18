//! Arithmetic on f64 in the directed rounding modes: the nearest result, moved by one place if the exact one lies on its other side. On which
//! side it lies is found in whole numbers that are as wide as the range of a product of two f64.

use super::Rounding;

/// Limbs of 64 bits that hold every product of two f64, and sums of some of them.
const LIMBS: usize = 68;

/// The place of the lowest bit: twice that of the smallest f64.
const LOWEST: i32 = -2 * 1074;

/// A sum of products, exact, in two's complement.
struct Exact([u64; LIMBS]);

impl Exact {
    fn new() -> Exact {
        Exact([0; LIMBS])
    }

    /// Adds a product of two finite numbers.
    fn add(&mut self, a: f64, b: f64) {
        let ((a_sign, a, a_place), (b_sign, b, b_place)) = (parts(a), parts(b));
        let product = u128::from(a) * u128::from(b);
        let at = (a_place + b_place - LOWEST) as usize;
        let (limb, bit) = (at / 64, at % 64);
        let (low, high) = (product << bit, if bit == 0 { 0 } else { product >> (128 - bit) });
        let mut words = [0u64; LIMBS];
        for (word, value) in words[limb..].iter_mut().zip([low as u64, (low >> 64) as u64, high as u64]) {
            *word = value;
        }
        let mut carry = a_sign != b_sign;
        for (mine, word) in self.0.iter_mut().zip(words) {
            let word = if a_sign != b_sign { !word } else { word };
            let (sum, first) = mine.overflowing_add(word);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*mine, carry) = (sum, first || second);
        }
    }

    /// -1, 0 or 1.
    fn sign(&self) -> i32 {
        if self.0[LIMBS - 1] >> 63 == 1 { -1 } else { i32::from(self.0.iter().any(|&limb| limb != 0)) }
    }
}

/// Whether a finite number is negative, its digits as a whole number, and the place of the last.
fn parts(x: f64) -> (bool, u64, i32) {
    let bits = x.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    if exponent == 0 {
        (x.is_sign_negative(), fraction, -1074)
    } else {
        (x.is_sign_negative(), fraction | 1 << 52, exponent - 1075)
    }
}

/// Moves a result that was rounded to the nearest. `above` says whether the exact result is larger (1), equal (0) or smaller (-1).
fn directed(nearest: f64, above: i32, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Up if above > 0 => nearest.next_up(),
        Rounding::Down if above < 0 => nearest.next_down(),
        Rounding::Zero if above > 0 && nearest.is_sign_negative() => nearest.next_up(),
        Rounding::Zero if above < 0 && nearest.is_sign_positive() => nearest.next_down(),
        _ => nearest,
    }
}

/// The same for a result that overflows: the exact one is beyond the largest number, but not infinite.
fn overflowed(nearest: f64, rounding: Rounding) -> f64 {
    directed(nearest, if nearest > 0.0 { -1 } else { 1 }, rounding)
}

/// a · b + c.
pub(crate) fn fma64(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    let nearest = a.mul_add(b, c);
    if nearest.is_nan() || !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return nearest;
    }
    if nearest.is_infinite() {
        return overflowed(nearest, rounding);
    }
    let mut left = Exact::new();
    left.add(a, b);
    left.add(c, 1.0);
    if left.sign() == 0 {
        // An exact zero is positive, except downwards and if both terms are negative.
        let negative = a.is_sign_negative() != b.is_sign_negative();
        let alike = (a == 0.0 || b == 0.0) && c == 0.0 && negative == c.is_sign_negative();
        return if alike {
            c
        } else if rounding == Rounding::Down {
            -0.0
        } else {
            0.0
        };
    }
    left.add(-nearest, 1.0);
    directed(nearest, left.sign(), rounding)
}

/// a + b.
pub(crate) fn add64(a: f64, b: f64, rounding: Rounding) -> f64 {
    fma64(a, 1.0, b, rounding)
}

/// a · b.
pub(crate) fn mul64(a: f64, b: f64, rounding: Rounding) -> f64 {
    // A zero of the product's sign keeps that sign.
    fma64(a, b, if a.is_sign_negative() != b.is_sign_negative() { -0.0 } else { 0.0 }, rounding)
}

/// a / b.
pub(crate) fn div64(a: f64, b: f64, rounding: Rounding) -> f64 {
    let nearest = a / b;
    if nearest.is_nan() || !(a.is_finite() && b.is_finite()) || b == 0.0 {
        return nearest;
    }
    if nearest.is_infinite() {
        return overflowed(nearest, rounding);
    }
    let mut left = Exact::new();
    left.add(a, 1.0);
    left.add(-nearest, b);
    directed(nearest, if b > 0.0 { left.sign() } else { -left.sign() }, rounding)
}

/// The square root.
pub(crate) fn sqrt64(a: f64, rounding: Rounding) -> f64 {
    let nearest = a.sqrt();
    if !nearest.is_finite() || nearest == 0.0 {
        return nearest;
    }
    let mut left = Exact::new();
    left.add(a, 1.0);
    left.add(-nearest, nearest);
    directed(nearest, left.sign(), rounding)
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` see and give the upper 32 bits of a number, without subnormals.
pub(crate) fn gross(x: f64, function: impl Fn(f64) -> f64) -> f64 {
    let cut = |x: f64| if x.is_nan() { f64::NAN } else { f64::from_bits(x.to_bits() >> 32 << 32) };
    let flushed = |x: f64| if x.is_subnormal() { 0f64.copysign(x) } else { x };
    flushed(cut(function(flushed(cut(x)))))
}
