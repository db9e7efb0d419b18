//! How far a result is from another that it is compared with.

/// How far a result is from a reference.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// The root mean square of the difference over that of the reference; the former alone if the reference is all zeros.
    pub relative_rms: f64,
    /// The largest difference.
    pub largest: f64,
    /// The largest difference over the reference's largest magnitude; the former alone if the reference is all zeros.
    pub relative_largest: f64,
    /// Whether every number of the result is finite.
    pub finite: bool,
}

impl Distance {
    /// Of a result with as many numbers as the reference: what `error` of `crates/bench/peers/svd_reference.py` computes.
    pub fn between(result: &[f32], reference: &[f32]) -> Distance {
        debug_assert_eq!(result.len(), reference.len());
        let (mut squares, mut scale, mut largest, mut magnitude) = (0.0, 0.0, 0.0, 0.0);
        for (&result, &reference) in result.iter().zip(reference) {
            let (result, reference) = (f64::from(result), f64::from(reference));
            let difference = result - reference;
            squares += difference * difference;
            scale += reference * reference;
            largest = f64::max(largest, difference.abs());
            magnitude = f64::max(magnitude, reference.abs());
        }
        let count = reference.len() as f64;
        let relative_rms = if scale > 0.0 { (squares / scale).sqrt() } else { (squares / count).sqrt() };
        // `max` ignores NaN.
        let largest = if relative_rms.is_nan() { f64::NAN } else { largest };
        let relative_largest = if magnitude > 0.0 { largest / magnitude } else { largest };
        let finite = result.iter().all(|number| number.is_finite());
        Distance { relative_rms, largest, relative_largest, finite }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_that_of_the_script() {
        let distance = Distance::between(&[3.0, -4.5, 0.25], &[3.0, -4.0, 0.0]);
        // error(torch.tensor([3.0, -4.5, 0.25]), torch.tensor([3.0, -4.0, 0.0]))
        assert!((distance.relative_rms - 0.111_803_398_874_989_47).abs() < 1e-15);
        assert_eq!((distance.largest, distance.relative_largest, distance.finite), (0.5, 0.125, true));
        let zeros = Distance::between(&[0.5, 0.5], &[0.0, 0.0]);
        assert_eq!((zeros.relative_rms, zeros.relative_largest), (0.5, 0.5));
    }

    #[test]
    fn numbers_that_are_not_finite_show() {
        let distance = Distance::between(&[1.0, f32::NAN], &[1.0, 2.0]);
        assert!(distance.relative_rms.is_nan() && distance.largest.is_nan() && !distance.finite);
        let distance = Distance::between(&[1.0, f32::INFINITY], &[1.0, 2.0]);
        assert!(distance.relative_rms.is_infinite() && distance.largest.is_infinite() && !distance.finite);
    }
}
