//! 16-bit floating point without branches, so that loops over lanes vectorise.

/// The value of an f16.
#[inline(always)]
pub(crate) fn from_f16(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    // The exponent and fraction move into place, and a multiplication corrects the bias, which also normalises subnormals.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = magnitude >= 0x7c00;
    let value = if special { magnitude << 13 | 0x7f80_0000 } else { scaled.to_bits() };
    f32::from_bits(value | (bits & 0x8000) << 16)
}

/// The value of a bf16.
#[inline(always)]
pub(crate) fn from_bf16(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// The bits of the nearest f16, ties to even; a NaN becomes the hardware's NaN.
#[inline(always)]
pub(crate) fn f16_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Rounds by adding half of the last place, less one if the last bit is even.
    let normal = magnitude.wrapping_sub(0x3800_0000).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    // For subnormals, adding 0.5 aligns the last place of an f16 with that of the sum.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = if magnitude < 0x3880_0000 { small } else { normal };
    let limited = if magnitude >= 0x477f_f000 { 0x7c00 } else { finite };
    if magnitude > 0x7f80_0000 { 0x7fff } else { sign | limited }
}

/// The bits of the nearest bf16, ties to even; a NaN becomes the hardware's NaN.
#[inline(always)]
pub(crate) fn bf16_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sixteen_bit_numbers_are_those_of_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (f16, bf16) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
            if f16.is_nan() {
                assert!(from_f16(u32::from(bits)).is_nan());
                assert_eq!(f16_bits(f16.to_f32()), 0x7fff);
            } else {
                assert_eq!(from_f16(u32::from(bits)).to_bits(), f16.to_f32().to_bits());
                assert_eq!(f16_bits(f16.to_f32()), u32::from(bits));
            }
            if bf16.is_nan() {
                assert_eq!(bf16_bits(bf16.to_f32()), 0x7fff);
            } else {
                assert_eq!(from_bf16(u32::from(bits)), bf16.to_f32());
                assert_eq!(bf16_bits(bf16.to_f32()), u32::from(bits));
            }
        }
    }

    #[test]
    fn rounding_is_that_of_the_half_crate() {
        // Every 4099th number: a prime, so that all low bits occur.
        for bits in (0..=u32::MAX).step_by(4099) {
            let value = f32::from_bits(bits);
            if !value.is_nan() {
                assert_eq!(f16_bits(value), u32::from(half::f16::from_f32(value).to_bits()), "{bits:x}");
                assert_eq!(bf16_bits(value), u32::from(half::bf16::from_f32(value).to_bits()), "{bits:x}");
            }
        }
    }
}
