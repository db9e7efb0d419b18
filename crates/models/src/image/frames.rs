//! What the autoencoder reads, and what becomes of its frames.

use super::{ImageError, RgbImage};

/// The autoencoder's input for an image: resized, `[height, width, 3]`, from −1 to 1. Equal to diffusers' `preprocess`.
///
/// # Errors
/// Where the size has no pixels or too many.
pub fn preprocess(image: &RgbImage, width: usize, height: usize) -> Result<Vec<f32>, ImageError> {
    let resized = image.resize_lanczos(width, height)?;
    Ok(resized.pixels().iter().map(|&byte| 2.0 * (f32::from(byte) / 255.0) - 1.0).collect())
}

/// The bytes of decoded frames, whose values are −1 to 1 and beyond. Equal to diffusers' `postprocess_video`.
/// What is not a number becomes 0.
pub fn frames_to_bytes(frames: &[f32]) -> Vec<u8> {
    let byte = |&value: &f32| ((value * 0.5 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8;
    frames.iter().map(byte).collect()
}
