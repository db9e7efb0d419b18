//! How far two results of the same calculation are apart, in units of the last place of their type.
//!
//! If a sum cancels, its last place is far below what the arithmetic before it could resolve. So beside the plain
//! distance, the number of representable values between two elements, there is the one that bounds are stated in: in
//! units of the last place of the element or of the tensor's root mean square, whichever is larger.

use half::{bf16, f16};
use kinora_graph::{DType, e4m3::E4M3};

/// How far results are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Distance {
    pub elements: u64,
    /// Those that are equal to the bit.
    pub equal: u64,
    /// Those that are NaN on both sides, with different bits: which NaN an operation returns is not defined.
    pub other_nans: u64,
    /// Those that are NaN on one side only.
    pub unlike: u64,
    /// The largest number of steps from a value to the next between two elements; an infinity is the step after the largest.
    pub steps: u64,
    /// The largest distance in units of the last place of the element or of the root mean square.
    pub ulps: f64,
    /// The largest distance over the element or the root mean square.
    pub relative: f64,
}

impl Distance {
    /// Of the bytes of two tensors of a type.
    pub fn between(dtype: DType, expected: &[u8], got: &[u8]) -> Distance {
        assert_eq!(expected.len(), got.len(), "only tensors of the same shape are compared");
        let size = dtype.size();
        let elements = expected.chunks_exact(size).map(|bytes| Element::new(dtype, bytes));
        let squares = elements.clone().map(|element| element.value).filter(|value| value.is_finite());
        let (sum, count) = squares.fold((0.0, 0u64), |(sum, count), value| (sum + value * value, count + 1));
        let rms = (sum / count.max(1) as f64).sqrt();
        let mut distance = Distance::default();
        for (expected, got) in elements.zip(got.chunks_exact(size).map(|bytes| Element::new(dtype, bytes))) {
            distance.add_element(dtype, expected, got, rms);
        }
        distance
    }

    fn add_element(&mut self, dtype: DType, expected: Element, got: Element, rms: f64) {
        self.elements += 1;
        self.equal += u64::from(expected.bits == got.bits);
        match (expected.value.is_nan(), got.value.is_nan()) {
            (true, true) => self.other_nans += u64::from(expected.bits != got.bits),
            (false, false) => {
                let difference = (expected.value - got.value).abs();
                let scale = expected.value.abs().max(rms);
                self.steps = self.steps.max(expected.order.abs_diff(got.order));
                if difference > 0.0 {
                    self.ulps = self.ulps.max(difference / last_place(dtype, scale));
                    self.relative = self.relative.max(difference / scale.max(f64::MIN_POSITIVE));
                }
            }
            _ => self.unlike += 1,
        }
    }

    /// Adds another pair of tensors.
    pub fn add(&mut self, other: &Distance) {
        self.elements += other.elements;
        self.equal += other.equal;
        self.other_nans += other.other_nans;
        self.unlike += other.unlike;
        self.steps = self.steps.max(other.steps);
        self.ulps = self.ulps.max(other.ulps);
        self.relative = self.relative.max(other.relative);
    }

    /// Whether everything is equal to the bit, or NaN on both sides.
    pub fn is_exact(&self) -> bool {
        self.equal + self.other_nans == self.elements
    }

    /// Whether everything is within this many units of the last place.
    pub fn is_within(&self, ulps: f64) -> bool {
        self.unlike == 0 && self.ulps <= ulps
    }
}

#[derive(Clone, Copy)]
struct Element {
    bits: u32,
    /// An infinity is the power of two after the largest number.
    value: f64,
    /// Its place among all values of the type.
    order: i64,
}

impl Element {
    fn new(dtype: DType, bytes: &[u8]) -> Element {
        let bits = bytes.iter().rev().fold(0u32, |all, &byte| all << 8 | u32::from(byte));
        let value = match dtype {
            DType::F32 => f64::from(f32::from_bits(bits)),
            DType::F16 => f16::from_bits(bits as u16).to_f64(),
            DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
            DType::F8E4M3 => f64::from(E4M3::from_bits(bits as u8).to_f32()),
            DType::U8 | DType::I32 => f64::from(bits as i32),
        };
        let value = if value.is_infinite() { value.signum() * beyond(dtype) } else { value };
        let order = match dtype {
            DType::U8 | DType::I32 => i64::from(bits as i32),
            _ => {
                let sign = 1u32 << (8 * dtype.size() - 1);
                let magnitude = i64::from(bits & (sign - 1));
                if bits & sign == 0 { magnitude } else { -magnitude }
            }
        };
        Element { bits, value, order }
    }
}

/// The power of two after the largest number of a type.
fn beyond(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65536.0,
        DType::F8E4M3 => 512.0,
        _ => 2f64.powi(128),
    }
}

/// The distance of numbers of this size to the next.
fn last_place(dtype: DType, size: f64) -> f64 {
    let (bits, least) = match dtype {
        DType::F32 => (23, -126),
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F8E4M3 => (3, -6),
        DType::U8 | DType::I32 => return 1.0,
    };
    // A number beyond the largest counts in the steps of the largest.
    let size = size.min(0.75 * beyond(dtype));
    let exponent = if size > 0.0 { size.log2().floor() as i32 } else { least };
    2f64.powi(exponent.max(least) - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn singles(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn halves(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect()
    }

    #[test]
    fn equal_results_are_no_distance_apart() {
        let x = singles(&[1.0, -0.0, f32::INFINITY, f32::NAN]);
        let same = Distance::between(DType::F32, &x, &x);
        assert_eq!(same, Distance { elements: 4, equal: 4, ..Distance::default() });
        assert!(same.is_exact() && same.is_within(0.0));
    }

    #[test]
    fn steps_are_counted_across_zero_and_up_to_infinity() {
        let least = f32::from_bits(1);
        let apart = |a: f32, b: f32| Distance::between(DType::F32, &singles(&[a]), &singles(&[b])).steps;
        assert_eq!(apart(1.0, 1.0 + f32::EPSILON), 1);
        assert_eq!(apart(least, -least), 2);
        assert_eq!(apart(0.0, -0.0), 0);
        assert_eq!(apart(f32::MAX, f32::INFINITY), 1);
        let overflow = Distance::between(DType::F16, &halves(&[65504.0]), &halves(&[f32::INFINITY]));
        assert_eq!((overflow.steps, overflow.ulps), (1, 1.0));
    }

    #[test]
    fn zeros_of_two_signs_are_not_exact() {
        let apart = Distance::between(DType::F32, &singles(&[0.0]), &singles(&[-0.0]));
        assert!(!apart.is_exact() && apart.is_within(0.0));
    }

    #[test]
    fn a_sum_that_cancels_is_held_to_the_tensors_size() {
        // The root mean square is that of 1, 1, 1 and nothing: between a half and one, with steps of 2⁻²⁴.
        let expected = singles(&[1.0, 1.0, 1.0, 1e-12]);
        let got = singles(&[1.0, 1.0, 1.0, 1e-12 + 2f32.powi(-23)]);
        let apart = Distance::between(DType::F32, &expected, &got);
        assert!(apart.steps > 1_000_000 && (apart.ulps - 2.0).abs() < 1e-3, "{apart:?}");
        assert!(apart.is_within(2.001) && !apart.is_within(1.9));
    }

    #[test]
    fn one_nan_is_unlike_a_number_and_like_another_nan() {
        let unlike = Distance::between(DType::F16, &halves(&[1.0]), &halves(&[f32::NAN]));
        assert!(unlike.unlike == 1 && !unlike.is_exact() && !unlike.is_within(1e9));
        let nans = [0x7e00u16, 0x7fff].map(u16::to_le_bytes);
        let like = Distance::between(DType::F16, &nans[0], &nans[1]);
        assert!(like.other_nans == 1 && like.is_exact());
    }

    #[test]
    fn whole_numbers_differ_by_their_difference() {
        let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let apart = Distance::between(DType::I32, &bytes(&[-3, 7]), &bytes(&[-3, 9]));
        assert_eq!((apart.equal, apart.steps, apart.ulps), (1, 2, 2.0));
        assert_eq!(Distance::between(DType::U8, &[255], &[0]).steps, 255);
    }
}
