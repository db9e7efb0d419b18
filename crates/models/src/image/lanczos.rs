//! Pillow's Lanczos resize of 8-bit images: two passes in fixed point, rounded to 8 bits after each.

use kinora_graph::op::Resample;
use rayon::prelude::*;

use super::{CHANNELS, RgbImage, axis::Axis};

/// Lobes of the filter on either side.
const SUPPORT: f64 = 3.0;
/// Bytes of the result that are worth a task of their own.
const GRAIN: usize = 16 * 1024;
/// Neighbouring bytes whose sums are kept at a time, beside each other so that the compiler makes vectors of them.
const CHUNK: usize = 256;

pub(super) fn resize(image: &RgbImage, width: usize, height: usize) -> RgbImage {
    let bytes = match (width != image.width, height != image.height) {
        (true, true) if down_first(image.size(), [width, height]) => {
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
pub(crate) fn down_first([from_width, from_height]: [usize; 2], [width, height]: [usize; 2]) -> bool {
    // A width that grows loses less than nothing.
    height < from_height && from_height - height + 2 * width > 2 * from_width
}

/// What [`Resample`] reads to resize an axis: the first neighbour of each result, and as many weights for each, with zeros behind
/// those that have fewer neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub first: Vec<i32>,
    pub weights: Vec<i32>,
    pub taps: usize,
}

impl Tables {
    /// For an axis of at most [`MAX_SIDE`](super::MAX_SIDE) pixels.
    pub fn new(from: usize, to: usize) -> Self {
        let axis = weights(from, to);
        let taps = axis.iter().map(|(_, weights)| weights.len()).max().unwrap_or(0);
        let padded = |weights: &[i32]| {
            let zeros = std::iter::repeat_n(0, taps - weights.len());
            weights.iter().copied().chain(zeros).collect::<Vec<i32>>()
        };
        Tables {
            first: axis.iter().map(|(first, _)| first as i32).collect(),
            weights: axis.iter().flat_map(|(_, weights)| padded(weights)).collect(),
            taps,
        }
    }
}

/// Resizes every row.
fn across(pixels: &[u8], from: usize, to: usize) -> Vec<u8> {
    let axis = weights(from, to);
    let rows = pixels.len() / (from * CHANNELS);
    let mut result = vec![0; rows * to * CHANNELS];
    let row = |(row, result): (&[u8], &mut [u8])| {
        let row = row.as_chunks::<CHANNELS>().0;
        for ((first, weights), result) in axis.iter().zip(result.as_chunks_mut::<CHANNELS>().0) {
            let mut sums = [Resample::HALF; CHANNELS];
            for (pixel, weight) in row[first..].iter().zip(weights) {
                for (sum, &channel) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(channel) * weight;
                }
            }
            *result = sums.map(rounded);
        }
    };
    let rows = pixels.par_chunks_exact(from * CHANNELS).zip(result.par_chunks_exact_mut(to * CHANNELS));
    rows.with_min_len(GRAIN / (to * CHANNELS) + 1).for_each(row);
    result
}

/// Resizes every column, a row of results at a time.
fn down(pixels: &[u8], width: usize, from: usize, to: usize) -> Vec<u8> {
    let row = width * CHANNELS;
    let axis = weights(from, to);
    let runs: Vec<(usize, &[i32])> = axis.iter().collect();
    let mut result = vec![0; to * row];
    let sum_row = |(&(first, weights), result): (&(usize, &[i32]), &mut [u8])| {
        for (at, result) in (0..).step_by(CHUNK).zip(result.chunks_mut(CHUNK)) {
            let mut sums = [Resample::HALF; CHUNK];
            for (y, weight) in (first..).zip(weights) {
                let pixels = &pixels[y * row + at..][..result.len()];
                for (sum, &channel) in sums.iter_mut().zip(pixels) {
                    *sum += i32::from(channel) * weight;
                }
            }
            for (result, sum) in result.iter_mut().zip(sums) {
                *result = rounded(sum);
            }
        }
    };
    let results = runs.par_iter().zip(result.par_chunks_exact_mut(row));
    results.with_min_len(GRAIN / row + 1).for_each(sum_row);
    result
}

fn rounded(sum: i32) -> u8 {
    (sum >> Resample::FRACTION_BITS).clamp(0, 255) as u8
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
            (weight * f64::from(1 << Resample::FRACTION_BITS) + 0.5f64.copysign(weight)) as i32
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
