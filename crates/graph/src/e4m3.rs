//! The 8-bit float E4M3.

use bytemuck::{Pod, Zeroable};

/// An 8-bit float with 4 bits of exponent and 3 of mantissa (E4M3FN of the Open Compute Project): up to 448, in steps of
/// 2⁻⁹ below 2⁻⁶, without infinities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct E4M3(u8);

impl E4M3 {
    /// The largest number.
    pub const MAX: f32 = 448.0;

    /// The number with these bits.
    pub const fn from_bits(bits: u8) -> Self {
        E4M3(bits)
    }

    /// The bits.
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// The nearest number, ties to even. What is larger than [`E4M3::MAX`] becomes that, and so does infinity.
    pub fn from_f32(value: f32) -> Self {
        // The first f32 beyond the numbers that count in steps of 2⁻⁹, and the difference of the exponents' biases.
        const NORMAL: f32 = 1.0 / 64.0;
        const REBIAS: u32 = (127 - 7) << 3;
        let (bits, size) = (value.to_bits(), value.abs());
        let rounded = if value.is_nan() {
            0x7f
        } else if size >= Self::MAX {
            0x7e
        } else if size < NORMAL {
            (size * 512.0).round_ties_even() as u8
        } else {
            // 20 of the 23 bits of the mantissa go; an overflow of the others raises the exponent.
            let size = size.to_bits();
            (((size + 0x7_ffff + (size >> 20 & 1)) >> 20) - REBIAS) as u8
        };
        E4M3(rounded | (bits >> 24) as u8 & 0x80)
    }

    /// The number as f32; exact.
    pub fn to_f32(self) -> f32 {
        let (exponent, mantissa) = (self.0 >> 3 & 15, self.0 & 7);
        let size = match (exponent, mantissa) {
            (15, 7) => f32::NAN,
            (0, _) => f32::from(mantissa) / 512.0,
            _ => f32::from_bits((u32::from(exponent) + 120) << 23 | u32::from(mantissa) << 20),
        };
        if self.0 & 0x80 == 0 { size } else { -size }
    }

    /// Whether it is not a NaN.
    pub const fn is_finite(self) -> bool {
        self.0 & 0x7f != 0x7f
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_format() {
        // From the format's definition: smallest and largest of both kinds, one, and its neighbours.
        for (bits, value) in [
            (0x00, 0.0),
            (0x01, 0.001_953_125),
            (0x07, 0.013_671_875),
            (0x08, 0.015_625),
            (0x37, 0.9375),
            (0x38, 1.0),
            (0x39, 1.125),
            (0x7e, 448.0),
        ] {
            assert_eq!(E4M3::from_bits(bits).to_f32(), value);
            assert_eq!(E4M3::from_bits(bits | 0x80).to_f32(), -value);
        }
        assert!(E4M3::from_bits(0x7f).to_f32().is_nan() && E4M3::from_bits(0xff).to_f32().is_nan());
        assert!(E4M3::from_bits(0x80).to_f32().is_sign_negative());
    }

    #[test]
    fn every_number_is_its_own_nearest_and_ties_go_to_even() {
        for bits in 0..0x7e_u8 {
            let [low, high] = [bits, bits + 1].map(|bits| E4M3::from_bits(bits).to_f32());
            let middle = f32::midpoint(low, high);
            let even = bits + bits % 2;
            for (value, expected) in [
                (low, bits),
                (middle.next_down(), bits),
                (middle, even),
                (middle.next_up(), bits + 1),
                (high, bits + 1),
            ] {
                assert_eq!(E4M3::from_f32(value).to_bits(), expected, "{value}");
                assert_eq!(E4M3::from_f32(-value).to_bits(), expected | 0x80, "{value}");
            }
        }
    }

    #[test]
    fn what_is_too_large_saturates() {
        for value in [448.0, 464.0, 465.0, 1e30, f32::INFINITY] {
            assert_eq!(E4M3::from_f32(value).to_bits(), 0x7e);
            assert_eq!(E4M3::from_f32(-value).to_bits(), 0xfe);
        }
        assert!(!E4M3::from_f32(f32::NAN).is_finite() && E4M3::from_f32(f32::INFINITY).is_finite());
    }
}
