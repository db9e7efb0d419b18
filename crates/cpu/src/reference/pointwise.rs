//! Ops on single elements.

use kinora_graph::{
    Tensor, TensorType,
    op::{Scale, TemporalBlend},
};

use super::{broadcast_index, elements, rounded};

/// A function of two operands that broadcast together.
pub(super) fn broadcast(inputs: &[&Tensor], result: &TensorType, f: impl Fn(f64, f64) -> f64) -> Tensor {
    let (a, b) = (elements(inputs[0]), elements(inputs[1]));
    let y: Vec<f64> = (0..result.elements())
        .map(|i| {
            let from_a = broadcast_index(inputs[0].shape(), &result.shape, i);
            let from_b = broadcast_index(inputs[1].shape(), &result.shape, i);
            f(a[from_a], b[from_b])
        })
        .collect();
    rounded(result, &y)
}

/// `factor · x + offset`.
pub(super) fn scale(op: Scale, x: &Tensor, result: &TensorType) -> Tensor {
    let (factor, offset) = (f64::from(op.factor), f64::from(op.offset));
    let y: Vec<f64> = elements(x).into_iter().map(|x| factor * x + offset).collect();
    rounded(result, &y)
}

/// `α·a + (1−α)·b`, with one α or one per image.
pub(super) fn blend(inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let [a, b, alpha] = [0, 1, 2].map(|i| elements(inputs[i]));
    let per_image = result.elements() / result.shape[0];
    let y: Vec<f64> = (0..result.elements())
        .map(|i| {
            let alpha = if alpha.len() == 1 { alpha[0] } else { alpha[i / per_image] };
            alpha * a[i] + (1.0 - alpha) * b[i]
        })
        .collect();
    rounded(result, &y)
}

/// A frame blended with the previous one, less where they differ.
pub(super) fn temporal_blend(op: TemporalBlend, inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let [current, previous, strength] = [0, 1, 2].map(|i| elements(inputs[i]));
    let channels = result.shape.channels();
    let mut y = Vec::with_capacity(result.elements());
    for pixel in 0..result.shape.rows() {
        let span = pixel * channels..(pixel + 1) * channels;
        let weight = match op.threshold {
            Some(threshold) => {
                let differences = span.clone().map(|i| (current[i] - previous[i]).abs());
                let difference = differences.sum::<f64>() / channels as f64;
                strength[0] * (1.0 - difference / f64::from(threshold)).max(0.0)
            }
            None => strength[0],
        };
        for i in span {
            y.push(current[i] + weight * (previous[i] - current[i]));
        }
    }
    rounded(result, &y)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, Op};

    use super::{super::testing::*, *};

    #[test]
    fn sums_and_products_broadcast() {
        let column = floats(&[2, 1], &[1.0, 2.0]);
        let row = floats(&[3], &[10.0, 20.0, 30.0]);
        assert_eq!(values(Op::Add, &[&column, &row]), [11.0, 21.0, 31.0, 12.0, 22.0, 32.0]);
        assert_eq!(values(Op::Mul, &[&column, &row]), [10.0, 20.0, 30.0, 20.0, 40.0, 60.0]);
        // A scalar, and an axis in the middle.
        assert_eq!(values(Op::Add, &[&floats(&[], &[1.0]), &row]), [11.0, 21.0, 31.0]);
        let y = values(Op::Add, &[&counting(&[2, 2, 2]), &floats(&[2, 1, 2], &[10.0, 20.0, 30.0, 40.0])]);
        assert_eq!(y, [11.0, 22.0, 13.0, 24.0, 35.0, 46.0, 37.0, 48.0]);
        assert_eq!(run_one(Op::Add, &[&floats(&[0, 3], &[]), &row]).shape()[..], [0, 3]);
    }

    #[test]
    fn the_first_operand_gives_the_type() {
        let a = floats(&[1], &[1.0]).cast(DType::F16);
        assert_eq!(run_one(Op::Mul, &[&a, &floats(&[2], &[2.0, 3.0])]).dtype(), DType::F16);
    }

    #[test]
    fn a_scale_multiplies_and_adds() {
        let op = Scale { factor: 2.0, offset: -1.0 };
        assert_eq!(values(Op::Scale(op), &[&counting(&[3])]), [1.0, 3.0, 5.0]);
    }

    #[test]
    fn a_blend_has_one_weight_or_one_an_image() {
        let (a, b) = (floats(&[2, 2], &[4.0, 8.0, 4.0, 8.0]), floats(&[2, 2], &[0.0; 4]));
        assert_eq!(values(Op::Blend, &[&a, &b, &floats(&[1], &[0.25])]), [1.0, 2.0, 1.0, 2.0]);
        assert_eq!(values(Op::Blend, &[&a, &b, &floats(&[2], &[0.25, 1.0])]), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(values(Op::Blend, &[&b, &a, &floats(&[1], &[0.25])]), [3.0, 6.0, 3.0, 6.0]);
    }

    #[test]
    fn a_temporal_blend_moves_still_pixels_and_leaves_moving_ones() {
        // Three pixels of two channels, with mean differences of 0, 1 and 4.
        let current = floats(&[1, 1, 3, 2], &[5.0, 5.0, 1.0, 3.0, 4.0, 4.0]);
        let previous = floats(&[1, 1, 3, 2], &[5.0, 5.0, 2.0, 2.0, 0.0, 8.0]);
        let strength = floats(&[1], &[0.5]);
        let run = |threshold| {
            values(Op::TemporalBlend(TemporalBlend { threshold }), &[&current, &previous, &strength])
        };
        assert_eq!(run(None), [5.0, 5.0, 1.5, 2.5, 2.0, 6.0]);
        // Weights of 0.5, 0.5 · (1 − 1/2) and none.
        assert_eq!(run(Some(2.0)), [5.0, 5.0, 1.25, 2.75, 4.0, 4.0]);
    }

    #[test]
    fn casts_round_half_to_even_and_saturate() {
        let x = floats(&[5], &[-1.0, 0.5, 1.5, 300.0, f32::NAN]);
        assert_eq!(run_one(Op::Cast(DType::U8), &[&x]), bytes(&[5], &[0, 0, 2, 255, 0]));
        // 2²⁴ + 1 is no f32; integers convert without passing through one.
        let x = ints(&[3], &[-7, 200, 16_777_217]);
        assert_eq!(run_one(Op::Cast(DType::U8), &[&x]), bytes(&[3], &[0, 200, 255]));
        assert_eq!(run_one(Op::Cast(DType::I32), &[&x]), x);
        assert_eq!(run_one(Op::Cast(DType::I32), &[&bytes(&[2], &[0, 255])]), ints(&[2], &[0, 255]));
    }
}
