//! Latents as small pictures, for a look at a clip that is still being made.

use kinora_graph::Tensor;
use kinora_models::image::{ImageError, RgbImage};

use super::{GenerateError, configs::COLOURS};

/// What a clip looks like so far: the clean latents that the network expects after a denoising step.
#[derive(Clone, Copy, Debug)]
pub struct Preview<'a> {
    latents: &'a Tensor,
    colours: &'a LatentColours,
}

impl<'a> Preview<'a> {
    pub(super) fn new(latents: &'a Tensor, colours: &'a LatentColours) -> Self {
        Preview { latents, colours }
    }

    /// The latents: f32 `[frames, height, width, channels]`, the clip's height and width divided by the autoencoder's
    /// [`pixels_per_latent`](kinora_models::networks::vae::VaeConfig::pixels_per_latent).
    pub fn latents(&self) -> &'a Tensor {
        self.latents
    }

    /// The frames as pictures with one pixel for each latent. They cost next to nothing, because a linear map makes them and not the
    /// decoder: colours and large shapes are those of the clip, details are missing.
    ///
    /// The map from latents to colours is fitted to the photo and its own latents, so that it suits every autoencoder.
    pub fn frames(&self) -> Vec<RgbImage> {
        let [_, height, width, channels] = self.latents.shape()[..] else { return Vec::new() };
        let values = self.latents.to_f32();
        let frame = |values: &[f32]| self.colours.image(values, width, height).ok();
        values.chunks_exact((height * width * channels).max(1)).filter_map(frame).collect()
    }
}

/// What the channels of latents mean in red, green and blue: the linear map that explains a photo by its latents best.
#[derive(Clone, Debug)]
pub(super) struct LatentColours {
    /// For each channel what it adds to the colours, from 0 to 255.
    weights: Vec<[f64; COLOURS]>,
    offset: [f64; COLOURS],
}

impl LatentColours {
    /// Fits the map by least squares. `latents` are the photo's, `[1, height, width, channels]`; those of a clip are `scale` times as
    /// large.
    pub fn fit(photo: &RgbImage, latents: &Tensor, scale: f32) -> Result<Self, GenerateError> {
        let [_, height, width, channels] = latents.shape()[..] else {
            return Ok(LatentColours { weights: Vec::new(), offset: [0.0; COLOURS] });
        };
        let small = photo.resize_lanczos(width, height)?;
        let values: Vec<f64> = latents.to_f32().into_iter().map(|x| f64::from(x * scale)).collect();
        let count = (width * height) as f64;
        let latent_means = means(values.chunks_exact(channels), channels, count);
        let pixels: Vec<f64> = small.bytes().iter().copied().map(f64::from).collect();
        let colour_means = means(pixels.chunks_exact(COLOURS), COLOURS, count);

        // The normal equations of the deviations from the means: one row for each channel, the colours on their right.
        let mut rows = vec![vec![0.0; channels + COLOURS]; channels];
        for (latent, pixel) in values.chunks_exact(channels).zip(pixels.chunks_exact(COLOURS)) {
            let deviations = |values: &[f64], means: &[f64]| -> Vec<f64> {
                values.iter().zip(means).map(|(value, mean)| value - mean).collect()
            };
            let known = deviations(latent, &latent_means);
            let all: Vec<f64> = known.iter().copied().chain(deviations(pixel, &colour_means)).collect();
            for (row, known) in rows.iter_mut().zip(&known) {
                row.iter_mut().zip(&all).for_each(|(sum, value)| *sum += known * value);
            }
        }
        // A little is added to the diagonal, so that a photo of one colour has an answer too: that colour.
        let trace: f64 = rows.iter().enumerate().map(|(at, row)| row[at]).sum();
        let ridge = (trace / channels as f64).max(1.0) * 1e-4;
        rows.iter_mut().enumerate().for_each(|(at, row)| row[at] += ridge);
        let weights = solve(rows);
        let explained = |colour: usize| -> f64 {
            weights.iter().zip(&latent_means).map(|(weight, mean)| weight[colour] * mean).sum()
        };
        let offset = [0, 1, 2].map(|colour| colour_means[colour] - explained(colour));
        Ok(LatentColours { weights, offset })
    }

    /// The picture of one frame's latents, `[height, width, channels]`.
    fn image(&self, latents: &[f32], width: usize, height: usize) -> Result<RgbImage, ImageError> {
        let pixel = |latent: &[f32]| {
            let mut colours = self.offset;
            for (&value, weights) in latent.iter().zip(&self.weights) {
                colours.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += f64::from(value) * weight);
            }
            colours.map(|colour| colour.round().clamp(0.0, 255.0) as u8)
        };
        let bytes = latents.chunks_exact(self.weights.len().max(1)).flat_map(pixel).collect();
        RgbImage::new(width, height, bytes)
    }
}

fn means<'v>(rows: impl Iterator<Item = &'v [f64]>, columns: usize, count: f64) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    for row in rows {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums.into_iter().map(|sum| sum / count).collect()
}

/// Solves a positive definite system whose rows have the right sides behind them, by Gaussian elimination.
fn solve(mut rows: Vec<Vec<f64>>) -> Vec<[f64; COLOURS]> {
    let count = rows.len();
    for pivot in 0..count {
        let pivot_row = rows[pivot].clone();
        for (at, row) in rows.iter_mut().enumerate() {
            if at != pivot {
                let factor = row[pivot] / pivot_row[pivot];
                row.iter_mut().zip(&pivot_row).for_each(|(value, above)| *value -= factor * above);
            }
        }
    }
    let solution = |(at, row): (usize, &Vec<f64>)| [0, 1, 2].map(|colour| row[count + colour] / row[at]);
    rows.iter().enumerate().map(solution).collect()
}
