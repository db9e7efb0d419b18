//! What the autoencoder reads.

use super::{ImageError, RgbImage};

/// The autoencoder's input for an image: resized, `[height, width, 3]`, from −1 to 1. Equal to diffusers' `preprocess`.
///
/// # Errors
/// If the size is empty or too large.
pub fn preprocess(image: &RgbImage, width: usize, height: usize) -> Result<Vec<f32>, ImageError> {
    let resized = image.resize_lanczos(width, height)?;
    Ok(resized.bytes().iter().map(|&byte| 2.0 * (f32::from(byte) / 255.0) - 1.0).collect())
}
