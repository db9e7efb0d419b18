//! The antialiased resize of Stable Video Diffusion's image encoder: a Gaussian blur by the factor of reduction, then
//! bicubic interpolation with the corners kept.
//!
//! Both are weighted sums along each axis, so they are joined into one per axis: of the blurred image only what the
//! interpolation reads is ever computed, and a photo of any size takes little memory.

use super::{CHANNELS, RgbImage, axis::Axis};

/// The cubic kernel's parameter in PyTorch.
const CUBIC: f64 = -0.75;

/// The image with values from −1 to 1, `[height, width, 3]`.
pub(super) fn resize(image: &RgbImage, width: usize, height: usize) -> Vec<f64> {
    let across = weights(image.width, width);
    let mut narrow = vec![0.0; image.height * width * CHANNELS];
    let rows = image.pixels().chunks_exact(image.width);
    for (row, result) in rows.zip(narrow.chunks_exact_mut(width * CHANNELS)) {
        for ((first, weights), result) in across.iter().zip(result.as_chunks_mut::<CHANNELS>().0) {
            let mut sums = [0.0; CHANNELS];
            for (pixel, weight) in row[first..].iter().zip(weights) {
                for (sum, &channel) in sums.iter_mut().zip(pixel) {
                    *sum += f64::from(channel) * weight;
                }
            }
            // All weights of a result sum to one, so the range may be shifted after the sum.
            *result = sums.map(|sum| (sum / 127.5 - 1.0) as f32);
        }
    }
    let row = width * CHANNELS;
    let mut result = vec![0.0; height * row];
    for ((first, weights), result) in weights(image.height, height).iter().zip(result.chunks_exact_mut(row)) {
        for (values, weight) in narrow.chunks_exact(row).skip(first).zip(weights) {
            for (sum, &value) in result.iter_mut().zip(values) {
                *sum += f64::from(value) * weight;
            }
        }
    }
    result
}

/// The weights of the blur and the interpolation together.
fn weights(from: usize, to: usize) -> Axis<f64> {
    let blur = gaussian(from as f64 / to as f64);
    let reach = blur.len() / 2;
    // PyTorch finds the place in f32; in a large image that decides the weights' third digit.
    let scale = if to > 1 { (from - 1) as f32 / (to - 1) as f32 } else { 0.0 };
    Axis::new((0..to).map(move |i| {
        let place = scale * i as f32;
        let whole = (place as usize).min(from - 1);
        let taps = cubic(f64::from((place - whole as f32).clamp(0.0, 1.0)));
        // Neighbours beyond the edge are the edge; what the blur reads beyond it is reflected.
        let centers = [whole.saturating_sub(1), whole, (whole + 1).min(from - 1), (whole + 2).min(from - 1)];
        let first = centers[0].saturating_sub(reach);
        let end = (centers[3] + reach + 1).min(from);
        let mut run = vec![0.0; end - first];
        for (center, tap) in centers.into_iter().zip(taps) {
            for (offset, weight) in blur.iter().enumerate() {
                run[reflected(center + offset, reach, from) - first] += tap * weight;
            }
        }
        (first, run)
    }))
}

/// The place `shifted − reach`, reflected into `0..count` without repeating the edge.
fn reflected(shifted: usize, reach: usize, count: usize) -> usize {
    let inside = shifted.abs_diff(reach);
    // Only an axis of one pixel is shorter than the reach; it is all edge.
    if inside < count { inside } else { (2 * (count - 1)).saturating_sub(inside) }
}

/// The blur for a factor of reduction, of odd length.
fn gaussian(factor: f64) -> Vec<f64> {
    let sigma = ((factor - 1.0) / 2.0).max(0.001);
    // Two standard deviations to either side.
    let length = (4.0 * sigma).max(3.0) as usize | 1;
    let sigma = sigma as f32;
    let weight = |i: usize| {
        let x = i as f32 - (length / 2) as f32;
        f64::from((-(x * x) / (2.0 * (sigma * sigma))).exp())
    };
    let weights: Vec<f64> = (0..length).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// The cubic kernel's weights of four neighbours, `t` after the second.
fn cubic(t: f64) -> [f64; 4] {
    let near = |x: f64| ((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((CUBIC * x - 5.0 * CUBIC) * x + 8.0 * CUBIC) * x - 4.0 * CUBIC;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}
