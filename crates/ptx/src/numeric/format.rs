//! Rounding to floating-point formats, in all rounding modes.

/// A rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
    /// To the nearest, ties away from zero.
    NearestAway,
}

/// A floating-point format of at most 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bits of the fraction.
    pub fraction: u32,
    /// Bits of the exponent.
    pub exponent: u32,
    /// Whether there are infinities; without them, the highest exponent holds numbers and one NaN.
    pub infinities: bool,
}

impl Format {
    pub const F32: Format = Format { fraction: 23, exponent: 8, infinities: true };
    pub const F16: Format = Format { fraction: 10, exponent: 5, infinities: true };
    pub const BF16: Format = Format { fraction: 7, exponent: 8, infinities: true };
    pub const TF32: Format = Format { fraction: 10, exponent: 8, infinities: true };
    pub const E4M3: Format = Format { fraction: 3, exponent: 4, infinities: false };
    pub const E5M2: Format = Format { fraction: 2, exponent: 5, infinities: true };

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The bits of the largest finite number.
    pub fn largest(self) -> u32 {
        let all = (1u32 << (self.exponent + self.fraction)) - 1;
        if self.infinities { all - (1 << self.fraction) } else { all - 1 }
    }

    pub fn infinity(self) -> u32 {
        ((1u32 << self.exponent) - 1) << self.fraction
    }

    /// The NaN that the hardware produces.
    pub fn nan(self) -> u32 {
        (1u32 << (self.exponent + self.fraction)) - 1
    }

    fn sign(self) -> u32 {
        1 << (self.exponent + self.fraction)
    }
}

/// The bits of `value` in a format. With `finite`, overflow gives the largest finite number.
pub(crate) fn round(value: f64, format: Format, rounding: Rounding, finite: bool) -> u32 {
    let bits = value.to_bits();
    let sign = if bits >> 63 != 0 { format.sign() } else { 0 };
    if value.is_nan() {
        return format.nan();
    }
    if value.is_infinite() {
        return sign
            | if finite || !format.infinities { overflow(format, finite) } else { format.infinity() };
    }
    let (mut exponent, mut significand) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    if exponent == 0 {
        exponent = 1;
    } else {
        significand |= 1 << 52;
    }
    // value = significand · 2^(exponent - 1075). The result's last place is 2^last.
    let scale = exponent - 1075;
    let highest = 63 - significand.leading_zeros() as i32 + scale;
    let smallest = 1 - format.bias() - format.fraction as i32;
    let last = if significand == 0 { smallest } else { (highest - format.fraction as i32).max(smallest) };
    let drop = last - scale;
    let (mut kept, rest_below_half, rest_is_half, exact);
    if significand == 0 || drop <= 0 {
        kept = if significand == 0 { 0 } else { significand << (-drop).min(63) };
        (rest_below_half, rest_is_half, exact) = (true, false, true);
    } else if drop > 63 {
        kept = 0;
        (rest_below_half, rest_is_half, exact) = (true, false, false);
    } else {
        kept = significand >> drop;
        let rest = significand & ((1 << drop) - 1);
        let half = 1u64 << (drop - 1);
        (rest_below_half, rest_is_half, exact) = (rest < half, rest == half, rest == 0);
    }
    let up = match rounding {
        Rounding::Nearest => !exact && !rest_below_half && (!rest_is_half || kept & 1 == 1),
        Rounding::NearestAway => !exact && !rest_below_half,
        Rounding::Zero => false,
        Rounding::Down => !exact && sign != 0,
        Rounding::Up => !exact && sign == 0,
    };
    kept += u64::from(up);
    // Adding the fields also carries into the exponent.
    let field = last - smallest;
    let magnitude = if kept < 1 << format.fraction {
        kept
    } else {
        kept - (1 << format.fraction) + ((field as u64 + 1) << format.fraction)
    };
    if magnitude > u64::from(format.largest()) {
        // Directed rounding stops at the largest finite number.
        let stays = match rounding {
            Rounding::Nearest | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => sign == 0,
            Rounding::Up => sign != 0,
        };
        return sign | if stays { format.largest() } else { overflow(format, finite) };
    }
    sign | magnitude as u32
}

fn overflow(format: Format, finite: bool) -> u32 {
    match (finite, format.infinities) {
        (true, _) => format.largest(),
        (false, true) => format.infinity(),
        (false, false) => format.nan(),
    }
}

/// The value of a format's bits.
pub(crate) fn widen(bits: u32, format: Format) -> f64 {
    let fraction = bits & ((1 << format.fraction) - 1);
    let exponent = bits >> format.fraction & ((1 << format.exponent) - 1);
    let negative = bits & format.sign() != 0;
    let top = (1 << format.exponent) - 1;
    let smallest = 1 - format.bias() - format.fraction as i32;
    let magnitude = if exponent == top && format.infinities {
        if fraction == 0 { f64::INFINITY } else { f64::NAN }
    } else if !format.infinities && bits & format.nan() == format.nan() {
        f64::NAN
    } else if exponent == 0 {
        f64::from(fraction) * 2f64.powi(smallest)
    } else {
        f64::from(fraction | 1 << format.fraction) * 2f64.powi(smallest + exponent as i32 - 1)
    };
    if negative { -magnitude } else { magnitude }
}

/// The sum of two numbers, rounded to odd: rounding it again gives the same as rounding the exact sum once.
fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() || sum == 0.0 {
        return sum;
    }
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    let bits = sum.to_bits();
    if error == 0.0 || bits & 1 == 1 {
        sum
    } else if (error > 0.0) == (sum > 0.0) {
        f64::from_bits(bits | 1)
    } else {
        f64::from_bits(bits - 1)
    }
}

/// a · b + c in f64, rounded to odd.
pub(crate) fn odd_fma(a: f32, b: f32, c: f32) -> f64 {
    // A product of two f32 is exact in f64.
    odd_sum(f64::from(a) * f64::from(b), f64::from(c))
}

/// The sign of an exact zero sum, which depends on the rounding mode.
fn zero_sum(a: f64, b: f64, rounding: Rounding) -> f32 {
    if a == 0.0 && b == 0.0 && a.is_sign_negative() == b.is_sign_negative() {
        return a as f32;
    }
    if rounding == Rounding::Down { -0.0 } else { 0.0 }
}

/// a + b.
pub(crate) fn directed_add(a: f32, b: f32, rounding: Rounding) -> f32 {
    directed_fma(a, 1.0, b, rounding)
}

/// a · b + c.
pub(crate) fn directed_fma(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    // A product of two f32 is exact in f64.
    let product = f64::from(a) * f64::from(b);
    let sum = odd_sum(product, f64::from(c));
    if sum == 0.0 {
        return zero_sum(product, f64::from(c), rounding);
    }
    if sum.is_nan() {
        return f32::from_bits(0x7fff_ffff);
    }
    f32::from_bits(round(sum, Format::F32, rounding, false))
}

/// a / b.
pub(crate) fn directed_div(a: f32, b: f32, rounding: Rounding) -> f32 {
    let quotient = f64::from(a) / f64::from(b);
    if !quotient.is_finite() || quotient == 0.0 {
        return quotient as f32;
    }
    // The remainder says in which direction the quotient was rounded.
    let left = quotient.mul_add(-f64::from(b), f64::from(a));
    let bits = quotient.to_bits();
    let odd = if left == 0.0 || bits & 1 == 1 {
        quotient
    } else if (left > 0.0) == (b > 0.0) {
        if quotient > 0.0 { f64::from_bits(bits | 1) } else { f64::from_bits(bits - 1) }
    } else if quotient > 0.0 {
        f64::from_bits(bits - 1)
    } else {
        f64::from_bits(bits | 1)
    };
    f32::from_bits(round(odd, Format::F32, rounding, false))
}

/// The square root.
pub(crate) fn directed_sqrt(a: f32, rounding: Rounding) -> f32 {
    let root = f64::from(a).sqrt();
    if !root.is_finite() || root == 0.0 {
        return root as f32;
    }
    let left = root.mul_add(-root, f64::from(a));
    let bits = root.to_bits();
    let odd = match left {
        _ if left == 0.0 || bits & 1 == 1 => root,
        _ if left > 0.0 => f64::from_bits(bits | 1),
        _ => f64::from_bits(bits - 1),
    };
    f32::from_bits(round(odd, Format::F32, rounding, false))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rounding_to_f32_is_rusts(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let ours = f32::from_bits(round(value, Format::F32, Rounding::Nearest, false));
            prop_assert!(ours == value as f32 || value.is_nan());
        }

        #[test]
        fn rounding_to_halves_is_that_of_the_half_crate(bits in any::<u32>(), near in -70000.0f32..70000.0) {
            for value in [f32::from_bits(bits), near] {
                if value.is_nan() {
                    continue;
                }
                let value64 = f64::from(value);
                let f16 = half::f16::from_f32(value).to_bits();
                prop_assert_eq!(round(value64, Format::F16, Rounding::Nearest, false), u32::from(f16));
                let bf16 = half::bf16::from_f32(value).to_bits();
                prop_assert_eq!(round(value64, Format::BF16, Rounding::Nearest, false), u32::from(bf16));
            }
        }

        #[test]
        fn directed_results_enclose_the_exact_one(a in any::<f32>(), b in any::<f32>(), c in any::<f32>()) {
            let nearest = a.mul_add(b, c);
            prop_assume!(nearest.is_finite());
            prop_assert_eq!(directed_fma(a, b, c, Rounding::Nearest), nearest);
            let down = directed_fma(a, b, c, Rounding::Down);
            let up = directed_fma(a, b, c, Rounding::Up);
            prop_assert!(down <= nearest && nearest <= up);
            prop_assert!(up == down || up == down.next_up());
            let zero = directed_fma(a, b, c, Rounding::Zero);
            prop_assert_eq!(zero.abs(), down.abs().min(up.abs()));
            let quotient = a / b;
            if quotient.is_finite() {
                let (down, up) = (directed_div(a, b, Rounding::Down), directed_div(a, b, Rounding::Up));
                prop_assert!(down <= quotient && quotient <= up && (up == down || up == down.next_up()));
                prop_assert_eq!(directed_div(a, b, Rounding::Nearest), quotient);
            }
            let root = a.abs().sqrt();
            let (down, up) = (directed_sqrt(a.abs(), Rounding::Down), directed_sqrt(a.abs(), Rounding::Up));
            prop_assert!(down <= root && root <= up && (up == down || up == down.next_up()));
        }
    }

    #[test]
    fn eight_bit_numbers() {
        // The tables of the OCP specification of 8-bit floating point.
        assert_eq!(widen(0x7e, Format::E4M3), 448.0);
        assert!(widen(0x7f, Format::E4M3).is_nan());
        assert_eq!(widen(0x01, Format::E4M3), 2f64.powi(-9));
        assert_eq!(widen(0x7b, Format::E5M2), 57344.0);
        assert_eq!(widen(0x7c, Format::E5M2), f64::INFINITY);
        assert_eq!(widen(0x01, Format::E5M2), 2f64.powi(-16));
        assert_eq!(round(1000.0, Format::E4M3, Rounding::Nearest, true), 0x7e);
        assert_eq!(round(-1e6, Format::E5M2, Rounding::Nearest, true), 0xfb);
        for bits in 0..=0xff {
            for format in [Format::E4M3, Format::E5M2] {
                let value = widen(bits, format);
                if !value.is_nan() {
                    assert_eq!(round(value, format, Rounding::Nearest, false), bits, "{bits:x}");
                }
            }
        }
    }
}
