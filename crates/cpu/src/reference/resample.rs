//! Ops that change an image's size.

use kinora_graph::{
    Tensor, TensorType,
    op::{Interpolation, Pool, PoolKind, Resample, Upsample},
};

use super::{broadcast_index, elements, integers, rounded};

/// Resizes images.
pub(super) fn upsample(op: Upsample, x: &Tensor, result: &TensorType) -> Tensor {
    let [images, height, width, channels] = dimensions(x);
    let values = elements(x);
    let at = |image: usize, row: usize, column: usize, channel: usize| {
        values[((image * height + row) * width + column) * channels + channel]
    };
    let mut y = Vec::with_capacity(result.elements());
    for image in 0..images {
        for out_y in 0..op.size[0] {
            for out_x in 0..op.size[1] {
                for channel in 0..channels {
                    y.push(match op.interpolation {
                        Interpolation::Nearest => {
                            at(image, out_y * height / op.size[0], out_x * width / op.size[1], channel)
                        }
                        Interpolation::Bilinear => {
                            let (top, bottom, down) = between(out_y, height, op.size[0]);
                            let (left, right, across) = between(out_x, width, op.size[1]);
                            let row = |row| {
                                (1.0 - across) * at(image, row, left, channel)
                                    + across * at(image, row, right, channel)
                            };
                            (1.0 - down) * row(top) + down * row(bottom)
                        }
                    });
                }
            }
        }
    }
    rounded(result, &y)
}

/// The two samples that an output position lies between, and how far it is towards the second. Centres are at half
/// pixels (PyTorch's `align_corners=False`) and edges are held.
fn between(index: usize, extent: usize, size: usize) -> (usize, usize, f64) {
    let centre = (index as f64 + 0.5) * extent as f64 / size as f64 - 0.5;
    let position = centre.clamp(0.0, (extent - 1) as f64);
    let first = position.floor() as usize;
    (first, (first + 1).min(extent - 1), position - first as f64)
}

/// Pools windows of an image.
pub(super) fn pool(op: Pool, x: &Tensor, result: &TensorType) -> Tensor {
    let [images, height, width, channels] = dimensions(x);
    let values = elements(x);
    let mut y = Vec::with_capacity(result.elements());
    for image in 0..images {
        for out_y in 0..result.shape[1] {
            for out_x in 0..result.shape[2] {
                for channel in 0..channels {
                    let (mut sum, mut largest) = (0.0, f64::NEG_INFINITY);
                    for tap_y in 0..op.kernel[0] {
                        for tap_x in 0..op.kernel[1] {
                            let row = (out_y * op.stride[0] + tap_y).checked_sub(op.padding[0]);
                            let column = (out_x * op.stride[1] + tap_x).checked_sub(op.padding[1]);
                            let (Some(row), Some(column)) = (row, column) else { continue };
                            if row >= height || column >= width {
                                continue;
                            }
                            let value =
                                values[((image * height + row) * width + column) * channels + channel];
                            sum += value;
                            // A NaN stays: nothing compares greater than it.
                            if value > largest || value.is_nan() {
                                largest = value;
                            }
                        }
                    }
                    y.push(match op.kind {
                        // Padding counts as zeros, so the divisor is the whole window.
                        PoolKind::Average => sum / (op.kernel[0] * op.kernel[1]) as f64,
                        PoolKind::Max => largest,
                    });
                }
            }
        }
    }
    rounded(result, &y)
}

/// Resizes an axis of bytes, in fixed point.
pub(super) fn resample(op: Resample, inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let (x, first, weights) = (inputs[0], integers(inputs[1]), integers(inputs[2]));
    let (from, to, taps) = (x.shape()[op.axis], first.len(), weights.len() / first.len());
    let inner: usize = x.shape()[op.axis + 1..].iter().product();
    let mut y = Tensor::zeros(result.clone());
    for (place, y) in y.bytes_mut().iter_mut().enumerate() {
        let (outer, i, channel) = (place / (to * inner), place / inner % to, place % inner);
        let mut sum = Resample::HALF;
        for tap in 0..taps {
            let neighbour = (i64::from(first[i]) + tap as i64).clamp(0, from as i64 - 1) as usize;
            let value = i32::from(x.bytes()[(outer * from + neighbour) * inner + channel]);
            sum = sum.wrapping_add(value.wrapping_mul(weights[i * taps + tap]));
        }
        *y = (sum >> Resample::FRACTION_BITS).clamp(0, 255) as u8;
    }
    y
}

/// The mean over the axes that are 1 in the result.
pub(super) fn mean(x: &Tensor, result: &TensorType) -> Tensor {
    let values = elements(x);
    let mut y = vec![0.0; result.elements()];
    for (i, value) in values.iter().enumerate() {
        y[broadcast_index(&result.shape, x.shape(), i)] += value;
    }
    let count = (values.len() / y.len()) as f64;
    for sum in &mut y {
        *sum /= count;
    }
    rounded(result, &y)
}

fn dimensions(x: &Tensor) -> [usize; 4] {
    [0, 1, 2, 3].map(|axis| x.shape()[axis])
}

#[cfg(test)]
mod tests {
    use kinora_graph::{Op, op::Mean};

    use super::{super::testing::*, *};

    fn resize(interpolation: Interpolation, size: [usize; 2], x: &Tensor) -> Vec<f32> {
        values(Op::Upsample(Upsample { interpolation, size }), &[x])
    }

    #[test]
    fn nearest_takes_the_floor() {
        let x = counting(&[1, 2, 2, 1]);
        let y = resize(Interpolation::Nearest, [4, 4], &x);
        assert_eq!(y, [1., 1., 2., 2., 1., 1., 2., 2., 3., 3., 4., 4., 3., 3., 4., 4.]);
        // floor(i · 3 / 5) is 0, 0, 1, 1, 2, and floor(i · 3 / 2) is 0, 1.
        let x = counting(&[1, 1, 3, 1]);
        assert_eq!(resize(Interpolation::Nearest, [1, 5], &x), [1.0, 1.0, 2.0, 2.0, 3.0]);
        assert_eq!(resize(Interpolation::Nearest, [1, 2], &x), [1.0, 2.0]);
    }

    #[test]
    fn channels_and_images_stay_apart() {
        let x = counting(&[2, 1, 1, 2]);
        for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
            assert_eq!(resize(interpolation, [1, 2], &x), [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        }
    }

    #[test]
    fn bilinear_has_half_pixel_centres_and_holds_the_edges() {
        // Centres at −0.25 (held), 0.25, 0.75, 1.25 (held).
        let x = floats(&[1, 1, 2, 1], &[0.0, 4.0]);
        assert_eq!(resize(Interpolation::Bilinear, [1, 4], &x), [0.0, 1.0, 3.0, 4.0]);
        assert_eq!(resize(Interpolation::Bilinear, [3, 1], &x), [2.0, 2.0, 2.0]);
        // Downwards: centres at 0.25 and 1.75 of 0, 4, 8.
        let x = floats(&[1, 3, 1, 1], &[0.0, 4.0, 8.0]);
        assert_eq!(resize(Interpolation::Bilinear, [2, 1], &x), [1.0, 7.0]);
        // Both axes at once.
        let x = floats(&[1, 2, 2, 1], &[0.0, 4.0, 8.0, 12.0]);
        let y = resize(Interpolation::Bilinear, [4, 4], &x);
        assert_eq!(y[..8], [0.0, 1.0, 3.0, 4.0, 2.0, 3.0, 5.0, 6.0]);
    }

    #[test]
    fn pools_divide_by_the_window_and_ignore_padding_in_the_maximum() {
        let x = floats(&[1, 1, 3, 1], &[-4.0, -8.0, -12.0]);
        let pool = |kind, kernel, stride, padding| {
            let op = Pool { kind, kernel: [1, kernel], stride: [1, stride], padding: [0, padding] };
            values(Op::Pool(op), &[&x])
        };
        assert_eq!(pool(PoolKind::Average, 2, 1, 0), [-6.0, -10.0]);
        assert_eq!(pool(PoolKind::Average, 2, 2, 1), [-2.0, -10.0]);
        assert_eq!(pool(PoolKind::Max, 2, 2, 1), [-4.0, -8.0]);
        assert_eq!(pool(PoolKind::Max, 3, 3, 0), [-4.0]);
        let x = counting(&[1, 2, 2, 2]);
        let op = Pool { kind: PoolKind::Average, kernel: [2, 2], stride: [2, 2], padding: [0, 0] };
        assert_eq!(values(Op::Pool(op), &[&x]), [4.0, 5.0]);
    }

    #[test]
    fn nan_is_the_largest() {
        let op = Pool { kind: PoolKind::Max, kernel: [1, 3], stride: [1, 1], padding: [0, 0] };
        for x in [[f32::NAN, 1.0, 2.0], [1.0, f32::NAN, 2.0], [1.0, 2.0, f32::NAN]] {
            assert!(values(Op::Pool(op), &[&floats(&[1, 1, 3, 1], &x)])[0].is_nan());
        }
    }

    #[test]
    fn means_over_some_axes() {
        let x = counting(&[2, 2, 2]);
        let mean = |axes: &[usize]| values(Op::Mean(Mean { axes: axes.to_vec() }), &[&x]);
        assert_eq!(mean(&[1]), [2.0, 3.0, 6.0, 7.0]);
        assert_eq!(mean(&[0, 2]), [3.5, 5.5]);
        assert_eq!(mean(&[0, 1, 2]), [4.5]);
        assert_eq!(mean(&[]), x.to_f32());
    }
}
