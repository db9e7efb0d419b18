//! Pillow's Lanczos resize of 8-bit images: two passes in fixed point, rounded to 8 bits after each.

use super::{CHANNELS, RgbImage, axis::Axis};

/// Lobes of the filter on either side.
const SUPPORT: f64 = 3.0;
/// Fraction bits of a weight: what 32 bits leave beside the pixel, the sign, and one for the filter's overshoot.
const FRACTION_BITS: u32 = 32 - 8 - 2;

pub(super) fn resize(image: &RgbImage, width: usize, height: usize) -> RgbImage {
    let bytes = match (width != image.width, height != image.height) {
        (true, true) if down_first(image, width, height) => {
            across(&down(&image.bytes, image.width, image.height, height), image.width, width)
        }
        (true, true) => down(&across(&image.bytes, image.width, width), width, image.height, height),
        (true, false) => across(&image.bytes, image.width, width),
        (false, true) => down(&image.bytes, width, image.height, height),
        (false, false) => image.bytes.clone(),
    };
    RgbImage { width, height, bytes }
}

/// Whether the columns are resized before the rows: if the height loses more than twice the pixels that the width
/// does. The order decides roundings. This is Pillow's rule since its version 13; before, rows always came first. By it
/// the image between the passes is never larger than the larger of the two.
fn down_first(image: &RgbImage, width: usize, height: usize) -> bool {
    // A width that grows loses less than nothing.
    height < image.height && image.height - height + 2 * width > 2 * image.width
}

/// Resizes every row.
fn across(pixels: &[u8], from: usize, to: usize) -> Vec<u8> {
    let axis = weights(from, to);
    let rows = pixels.len() / (from * CHANNELS);
    let mut result = vec![0; rows * to * CHANNELS];
    for (row, result) in pixels.chunks_exact(from * CHANNELS).zip(result.chunks_exact_mut(to * CHANNELS)) {
        let row = row.as_chunks::<CHANNELS>().0;
        for ((first, weights), result) in axis.iter().zip(result.as_chunks_mut::<CHANNELS>().0) {
            let mut sums = [HALF; CHANNELS];
            for (pixel, weight) in row[first..].iter().zip(weights) {
                for (sum, &channel) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(channel) * weight;
                }
            }
            *result = sums.map(rounded);
        }
    }
    result
}

/// Resizes every column, a row of results at a time.
fn down(pixels: &[u8], width: usize, from: usize, to: usize) -> Vec<u8> {
    let row = width * CHANNELS;
    let mut result = vec![0; to * row];
    let mut sums = vec![0; row];
    for ((first, weights), result) in weights(from, to).iter().zip(result.chunks_exact_mut(row)) {
        sums.fill(HALF);
        for (pixels, weight) in pixels.chunks_exact(row).skip(first).zip(weights) {
            for (sum, &channel) in sums.iter_mut().zip(pixels) {
                *sum += i32::from(channel) * weight;
            }
        }
        for (result, &sum) in result.iter_mut().zip(&sums) {
            *result = rounded(sum);
        }
    }
    result
}

/// Half of the last bit kept, with which a sum begins so that cutting it off rounds.
const HALF: i32 = 1 << (FRACTION_BITS - 1);

fn rounded(sum: i32) -> u8 {
    (sum >> FRACTION_BITS).clamp(0, 255) as u8
}

fn weights(from: usize, to: usize) -> Axis<i32> {
    let scale = from as f64 / to as f64;
    // An enlarged image is interpolated; only a reduced one needs the filter widened.
    let stretch = scale.max(1.0);
    let support = SUPPORT * stretch;
    Axis::new((0..to).map(|i| {
        let center = (i as f64 + 0.5) * scale;
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let weights: Vec<f64> =
            (first..end).map(|x| lanczos((x as f64 - center + 0.5) * (1.0 / stretch))).collect();
        let sum: f64 = weights.iter().sum();
        let fixed = move |weight: f64| {
            let weight = if sum == 0.0 { weight } else { weight / sum };
            (weight * f64::from(1 << FRACTION_BITS) + 0.5f64.copysign(weight)) as i32
        };
        (first, weights.into_iter().map(fixed))
    }))
}

fn lanczos(x: f64) -> f64 {
    if (-SUPPORT..SUPPORT).contains(&x) { sinc(x) * sinc(x / SUPPORT) } else { 0.0 }
}

fn sinc(x: f64) -> f64 {
    let angle = x * std::f64::consts::PI;
    if x == 0.0 { 1.0 } else { angle.sin() / angle }
}
