//! Whether results are right: their distance from the model in f64, beside that of PyTorch's own results in f32.

use serde::{Deserialize, Serialize};

/// A solution's root mean square error may be this many times that of PyTorch in the same precision, because another order of
/// additions has other errors. Products in tf32 or f16 where PyTorch multiplies in f32 are off by hundreds of times.
pub const RMS_FACTOR: f64 = 2.0;

/// Its largest error may be this many times PyTorch's: the largest of many varies more than their mean.
pub const MAX_FACTOR: f64 = 4.0;

/// What counts as an error at all: PyTorch's result may be exact by chance, and one that is rounded once more is as good.
const ROUNDING: f64 = 1.0 / 8_388_608.0;

/// Results with fewer numbers say little about a typical error: they may be a few roundings off.
const FEW: u64 = 16;

/// How far a result is from the exact one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Error {
    /// The root of the mean square.
    pub rms: f64,
    /// The largest difference.
    pub max: f64,
    /// Numbers that are off by more than a thousandth of themselves.
    pub missed: u64,
    /// Numbers that are NaN or infinite where the model's are not, or the reverse.
    pub strange: u64,
}

/// What is known of a result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Compared {
    /// Floating-point numbers.
    Float {
        /// How many.
        count: u64,
        /// Their root mean square.
        scale_rms: f64,
        /// The largest.
        scale_max: f64,
        /// The solution's error.
        error: Error,
        /// PyTorch's.
        baseline: Error,
    },
    /// Integers.
    Whole {
        /// How many.
        count: u64,
        /// Those in which the solution differs from the model in f64.
        differ: u64,
        /// Those in which PyTorch does.
        baseline_differ: u64,
    },
}

/// What is wrong with a result, if anything is.
pub fn refusal(number: usize, compared: &Compared) -> Option<String> {
    match *compared {
        Compared::Whole { count, differ, baseline_differ } => (differ > 2 * baseline_differ)
            .then(|| format!("result {number}: {differ} of {count} integers are wrong")),
        Compared::Float { count, scale_rms, scale_max, error, baseline } => {
            if error.strange > 0 {
                return Some(format!(
                    "result {number}: {} of {count} numbers are not finite, or should not be",
                    error.strange
                ));
            }
            let rounding = if count < FEW { 8.0 * ROUNDING } else { ROUNDING };
            let rms = RMS_FACTOR * baseline.rms + rounding * scale_rms;
            let max = MAX_FACTOR * baseline.max + 4.0 * rounding * scale_max;
            // A millionth of the numbers is a handful of a large result and none of a small one.
            let missed = 2 * baseline.missed + count / 1_000_000;
            // An error that is not a number must not pass.
            let beyond = |value: f64, limit: f64| value.is_nan() || value > limit;
            if beyond(error.rms, rms) {
                Some(format!(
                    "result {number}: the error is {:.1e} (root mean square), allowed are {rms:.1e}: {RMS_FACTOR} times PyTorch's {:.1e} and a rounding",
                    error.rms, baseline.rms
                ))
            } else if beyond(error.max, max) {
                Some(format!(
                    "result {number}: the largest error is {:.1e}, allowed are {max:.1e}: {MAX_FACTOR} times PyTorch's {:.1e} and a few roundings",
                    error.max, baseline.max
                ))
            } else if error.missed > missed {
                Some(format!(
                    "result {number}: {} of {count} numbers are off by more than a thousandth; in PyTorch's result {} are",
                    error.missed, baseline.missed
                ))
            } else {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares plain lists, as the worker compares tensors.
    fn compared(result: &[f32], baseline: &[f32], exact: &[f64]) -> Compared {
        let scale_rms = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
        let error = |got: &[f32]| {
            let mut error = Error::default();
            for (&got, &exact) in got.iter().zip(exact) {
                let off = (f64::from(got) - exact).abs();
                error.strange += u64::from(!off.is_finite());
                error.rms += off * off;
                error.max = error.max.max(off);
                error.missed += u64::from(off > 1e-3 * exact.abs() + 1e-6 * scale_rms);
            }
            error.rms = (error.rms / exact.len() as f64).sqrt();
            error
        };
        let scale_max = exact.iter().fold(0.0f64, |max, x| max.max(x.abs()));
        let count = exact.len() as u64;
        Compared::Float { count, scale_rms, scale_max, error: error(result), baseline: error(baseline) }
    }

    /// Numbers between 0 and 1 from a small generator.
    fn numbers(count: usize) -> Vec<f64> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1u32 << 24)
        };
        (0..count).map(|_| next()).collect()
    }

    fn singles(numbers: &[f64]) -> Vec<f32> {
        numbers.iter().map(|&number| number as f32).collect()
    }

    #[test]
    fn what_is_as_exact_as_pytorch_passes() {
        let exact: Vec<f64> = numbers(1000).iter().map(|x| x / 3.0).collect();
        let rounded = singles(&exact);
        assert_eq!(refusal(0, &compared(&rounded, &rounded, &exact)), None);
        // One unit in the last place more is another rounding.
        let off: Vec<f32> = rounded.iter().map(|x| f32::from_bits(x.to_bits() + 1)).collect();
        assert_eq!(refusal(0, &compared(&off, &rounded, &exact)), None);
    }

    /// A softmax over 400,000 numbers: every one is below the tolerance of 1e-4 that the benchmark has itself.
    #[test]
    fn zeros_do_not_pass_where_all_numbers_are_small() {
        let exact: Vec<f64> = numbers(4000).iter().map(|x| 2.5e-6 * (0.5 + x)).collect();
        let rounded = singles(&exact);
        let zeros = vec![0.0; exact.len()];
        let refused = refusal(0, &compared(&zeros, &rounded, &exact)).unwrap();
        assert!(refused.starts_with("result 0: the error is"), "{refused}");
        // All the same number, their mean, does not pass either.
        let mean = vec![2.5e-6; exact.len()];
        assert!(refusal(0, &compared(&mean, &rounded, &exact)).is_some());
    }

    #[test]
    fn fewer_digits_do_not_pass() {
        let exact = numbers(1000);
        let baseline: Vec<f32> = singles(&exact).iter().map(|x| f32::from_bits(x.to_bits() + 2)).collect();
        // tf32 has 10 bits behind the point.
        let short: Vec<f32> = singles(&exact).iter().map(|x| f32::from_bits(x.to_bits() & !0x1fff)).collect();
        assert!(refusal(1, &compared(&short, &baseline, &exact)).is_some());
        // If PyTorch itself multiplies in tf32, its errors are the measure.
        assert_eq!(refusal(1, &compared(&short, &short, &exact)), None);
    }

    #[test]
    fn small_numbers_count_beside_large_ones() {
        // A running sum: the errors of its large numbers would hide that the first ones are missing.
        let exact: Vec<f64> = (1..=1000).map(|i| f64::from(i) * 1e3).collect();
        let baseline: Vec<f32> = exact.iter().map(|&x| (x * (1.0 + 3e-5)) as f32).collect();
        let mut result = baseline.clone();
        result[0] = 990.0;
        let refused = refusal(0, &compared(&result, &baseline, &exact)).unwrap();
        assert!(refused.contains("1 of 1000 numbers are off by more than a thousandth"), "{refused}");
    }

    #[test]
    fn what_is_not_a_number_does_not_pass() {
        let exact = numbers(100);
        let baseline = singles(&exact);
        let mut result = baseline.clone();
        result[7] = f32::NAN;
        assert!(
            refusal(0, &compared(&result, &baseline, &exact))
                .unwrap()
                .contains("1 of 100 numbers are not finite")
        );
        let unknown = Error { rms: f64::NAN, ..Error::default() };
        let strange = Compared::Float {
            count: 1,
            scale_rms: 1.0,
            scale_max: 1.0,
            error: unknown,
            baseline: Error::default(),
        };
        assert!(refusal(0, &strange).is_some());
    }

    #[test]
    fn integers_are_right_or_wrong() {
        assert_eq!(refusal(0, &Compared::Whole { count: 10, differ: 0, baseline_differ: 0 }), None);
        assert!(refusal(0, &Compared::Whole { count: 10, differ: 1, baseline_differ: 0 }).is_some());
        // Ties that PyTorch itself decides otherwise in f32.
        assert_eq!(refusal(0, &Compared::Whole { count: 10, differ: 2, baseline_differ: 1 }), None);
    }
}
