//! The one way to compare a result with an expected tensor.
//!
//! An element's error is `|got − expected|` over the smaller of
//! - the largest `|expected|` of the tensor, so that the worst error counts against the tensor's range, and
//! - `|expected| + rms(expected)` of the element, so that among large elements a small one is held to the tensor's
//!   typical size and not to its largest.
//!
//! A tensor's error is its worst element's. The bars are those of the storage the result is in: f32 arithmetic leaves
//! 1e-5, f16 has 11 significant bits (half an ulp is 5e-4) and bf16 has 8 (half an ulp is 4e-3). e4m3 has 4: a number may be
//! its neighbour, which is up to an eighth away.

use kinora_graph::{DType, Op, Tensor, TensorType, op::Statistics};
use kinora_runtime::Tensors;

/// The largest error a result of this type may have. Integers must be equal.
pub fn bar(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F8E4M3 => 0.125,
        DType::U8 | DType::I32 => 0.0,
    }
}

/// The element of a result that is furthest off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    pub index: usize,
    pub expected: f32,
    pub got: f32,
    pub error: f64,
}

/// The worst element of two tensors of the same length, or `None` if they are empty.
pub fn worst(expected: &[f32], got: &[f32]) -> Option<Worst> {
    assert_eq!(expected.len(), got.len(), "only tensors of the same shape are compared");
    let finite = || expected.iter().map(|&x| f64::from(x)).filter(|x| x.is_finite());
    let largest = finite().fold(0.0, |a: f64, x| a.max(x.abs()));
    let rms = (finite().map(|x| x * x).sum::<f64>() / finite().count().max(1) as f64).sqrt();
    let error = |e: f32, g: f32| {
        if e == g || (e.is_nan() && g.is_nan()) {
            return 0.0;
        }
        let scale = largest.min(f64::from(e).abs() + rms).max(f64::from(f32::MIN_POSITIVE));
        let error = (f64::from(g) - f64::from(e)).abs() / scale;
        if error.is_nan() { f64::INFINITY } else { error }
    };
    expected
        .iter()
        .zip(got)
        .enumerate()
        .map(|(index, (&expected, &got))| Worst { index, expected, got, error: error(expected, got) })
        .max_by(|a, b| a.error.total_cmp(&b.error))
}

/// How a result differs from the expected tensor.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Mismatch {
    /// It has another shape, or another type if it must be exact.
    #[error("expected {expected}, got {got}")]
    Type { expected: TensorType, got: TensorType },
    /// An element is over the bar.
    #[error(
        "element {} of {ty}: expected {}, got {}, error {:.2e} over {bar:.1e}",
        worst.index, worst.expected, worst.got, worst.error
    )]
    Off { ty: TensorType, worst: Worst, bar: f64 },
    /// An element has other bits.
    #[error(
        "element {index} of {ty}: expected {expected} ({expected_bits:02x?}), got {got} ({got_bits:02x?}), and it must be exact"
    )]
    Inexact {
        ty: TensorType,
        index: usize,
        expected: f32,
        expected_bits: Vec<u8>,
        got: f32,
        got_bits: Vec<u8>,
    },
}

impl Mismatch {
    fn of_types(expected: &Tensor, got: &Tensor) -> Mismatch {
        Mismatch::Type { expected: expected.ty().clone(), got: got.ty().clone() }
    }
}

/// Whether `got` is within the bar of its own element type; if not, says where it is furthest off.
pub fn close(expected: &Tensor, got: &Tensor) -> Result<(), Mismatch> {
    close_beyond(0.0, expected, got)
}

/// As [`close`], of elements that are off by more than `floor`.
pub fn close_beyond(floor: f64, expected: &Tensor, got: &Tensor) -> Result<(), Mismatch> {
    if expected.shape() != got.shape() {
        return Err(Mismatch::of_types(expected, got));
    }
    let bar = bar(got.dtype());
    let mut values = got.to_f32();
    let wanted = expected.to_f32();
    for (got, &expected) in values.iter_mut().zip(&wanted) {
        if (f64::from(*got) - f64::from(expected)).abs() <= floor {
            *got = expected;
        }
    }
    match worst(&wanted, &values) {
        Some(worst) if worst.error > bar => Err(Mismatch::Off { ty: got.ty().clone(), worst, bar }),
        _ => Ok(()),
    }
}

/// Compares the results of an op, of the same types. Statistics are to be those of the elements that were stored: one that lies between two
/// numbers may have become another than in the reference.
///
/// # Errors
/// The first result that is off.
pub fn all_close(op: &Op, expected: &[Tensor], got: &[Tensor]) -> Result<(), Mismatch> {
    for (expected, got) in expected.iter().zip(got) {
        if expected.ty() != got.ty() {
            return Err(Mismatch::of_types(expected, got));
        }
    }
    let statistics = match op {
        Op::Conv(op) => op.statistics,
        Op::Linear(op) => op.statistics,
        _ => None,
    };
    match (statistics, got) {
        (Some(statistics), [result, found]) => {
            close(&expected[0], result)?;
            // Apart: variances may be far smaller than means.
            let wanted = statistics_of(result, statistics);
            (0..2).try_for_each(|which| close(&every_other(&wanted, which), &every_other(found, which)))
        }
        _ => expected.iter().zip(got).try_for_each(|(expected, got)| close(expected, got)),
    }
}

/// The means of statistics, or the variances.
fn every_other(statistics: &Tensor, first: usize) -> Tensor {
    let values: Vec<f32> = statistics.to_f32().into_iter().skip(first).step_by(2).collect();
    Tensor::from_f32(DType::F32, [values.len()], &values).unwrap()
}

/// The mean and the variance of each group of channels of each clip.
fn statistics_of(x: &Tensor, Statistics { groups, frames }: Statistics) -> Tensor {
    let (shape, values) = (x.shape(), x.to_f32());
    let members = shape.channels() / groups;
    let slabs = shape[0] / frames;
    let slab = values.len() / slabs.max(1);
    let mut found = Vec::new();
    for slab in values.chunks_exact(slab.max(1)) {
        for group in 0..groups {
            let rows = slab.chunks_exact(shape.channels());
            let own: Vec<f64> =
                rows.flat_map(|row| &row[group * members..][..members]).map(|&x| f64::from(x)).collect();
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            let variance = own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / own.len() as f64;
            found.extend([mean as f32, variance as f32]);
        }
    }
    Tensor::from_f32(DType::F32, [slabs, groups, 2], &found).unwrap()
}

/// What f64 arithmetic leaves when numbers of order one cancel, such as the deviation of a constant, times what a norm
/// makes of it. It counts as zero.
const NOTHING: f64 = 1e-9;

/// Panics if an element of a whole graph's results, by name, is further than `bar` from the expected one.
pub fn assert_all_close(label: &str, expected: &Tensors, got: &Tensors, bar: f64) {
    assert_eq!(expected.len(), got.len(), "{label}: number of results");
    for (name, expected) in expected {
        let got = &got[name];
        assert_eq!(expected.ty(), got.ty(), "{label}: {name}");
        let (wanted, mut values) = (expected.to_f32(), got.to_f32());
        for (got, &expected) in values.iter_mut().zip(&wanted) {
            if (f64::from(*got) - f64::from(expected)).abs() <= NOTHING {
                *got = expected;
            }
        }
        if let Some(worst) = worst(&wanted, &values) {
            assert!(worst.error <= bar, "{label}: {name} {}: {worst:?} over {bar:.1e}", expected.ty());
        }
    }
}

/// The minimum typical magnitude that [`distance`] is relative to. The graphs that are compared as a whole have numbers
/// of order one; if all of a result's numbers cancel, what is left is noise.
const TYPICAL: f64 = 1e-2;

/// How far `got` is from `expected` as a whole: the norm of their difference over the norm of `expected`, or of as many
/// numbers of a hundredth if that is more. Infinite if something that is not finite differs.
pub fn distance(expected: &[f32], got: &[f32]) -> f64 {
    assert_eq!(expected.len(), got.len(), "only tensors of the same shape are compared");
    let (mut difference, mut length) = (0.0, 0.0);
    for (&e, &g) in expected.iter().zip(got) {
        if e.is_finite() && g.is_finite() {
            difference += (f64::from(g) - f64::from(e)).powi(2);
            length += f64::from(e).powi(2);
        } else if e != g && !(e.is_nan() && g.is_nan()) {
            return f64::INFINITY;
        }
    }
    let least = TYPICAL.powi(2) * expected.len() as f64;
    if difference == 0.0 { 0.0 } else { (difference / length.max(least)).sqrt() }
}

/// Whether `got` has the very type and bits of `expected`; any NaN equals any other.
pub fn equal(expected: &Tensor, got: &Tensor) -> Result<(), Mismatch> {
    if expected.ty() != got.ty() {
        return Err(Mismatch::of_types(expected, got));
    }
    let size = expected.dtype().size();
    let (wanted, found) = (expected.to_f32(), got.to_f32());
    let bits = expected.bytes().chunks_exact(size).zip(got.bytes().chunks_exact(size));
    for (index, (e, g)) in bits.enumerate() {
        if e != g && !(wanted[index].is_nan() && found[index].is_nan()) {
            return Err(Mismatch::Inexact {
                ty: got.ty().clone(),
                index,
                expected: wanted[index],
                expected_bits: e.to_vec(),
                got: found[index],
                got_bits: g.to_vec(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_element_is_not_excused_by_a_large_one() {
        // rms = √(100² / 4) = 50, so the zero may be off by 50 bars, and the 100 by 100 bars.
        let expected = [100.0, 0.0, 0.0, 0.0];
        let off = |index: usize, by: f32| {
            let mut got = expected;
            got[index] += by;
            worst(&expected, &got).map(|w| (w.index, w.error))
        };
        assert_eq!(off(1, 0.5), Some((1, 0.01)));
        assert_eq!(off(0, 1.0), Some((0, 0.01)));
    }

    #[test]
    fn a_distance_is_that_of_the_whole() {
        assert_eq!(distance(&[3.0, 4.0, f32::INFINITY], &[3.0, 4.5, f32::INFINITY]), 0.1);
        assert_eq!(distance(&[0.0], &[0.0]), 0.0);
        assert_eq!(distance(&[0.0], &[1.0]), 100.0);
        // A norm of a constant: its deviation is nothing, or what rounding leaves of nothing.
        assert!(distance(&[0.0, 2.5e-16], &[0.0, 0.0]) < 1e-13);
        assert_eq!(distance(&[1.0, f32::NAN], &[1.0, 1.0]), f64::INFINITY);
    }

    #[test]
    fn what_is_not_a_number_is_never_close() {
        for got in [f32::NAN, f32::INFINITY] {
            assert_eq!(worst(&[1.0], &[got]).map(|w| w.error), Some(f64::INFINITY));
        }
        assert_eq!(worst(&[f32::INFINITY], &[1.0]).map(|w| w.error), Some(f64::INFINITY));
        assert_eq!(worst(&[f32::NAN], &[f32::NAN]).map(|w| w.error), Some(0.0));
    }

    #[test]
    fn expected_zeros_must_be_zeros() {
        assert_eq!(worst(&[0.0; 3], &[0.0; 3]).map(|w| w.error), Some(0.0));
        assert!(worst(&[0.0; 3], &[0.0, 1e-20, 0.0]).is_some_and(|w| w.error > 1e10 && w.index == 1));
    }

    #[test]
    fn exactness_sees_the_sign_of_zero_and_the_type() {
        let tensor = |x: f32| Tensor::from_slice([1], &[x]).unwrap();
        assert!(equal(&tensor(0.0), &tensor(0.0)).is_ok());
        assert!(equal(&tensor(0.0), &tensor(-0.0)).is_err());
        assert!(equal(&tensor(1.0), &tensor(1.0).cast(DType::F16)).is_err());
        assert!(equal(&tensor(f32::NAN), &tensor(-f32::NAN)).is_ok());
    }
}
