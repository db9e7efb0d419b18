//! Image processing equal to diffusers', transformers' and Pillow's: a photo becomes what the two encoders read, and
//! decoded frames become pixels.
//!
//! Images are plain 8-bit RGB; reading files is not done here. Results lie as everywhere in Kinora, channels last.

mod antialias;
mod axis;
mod clip;
mod error;
mod frames;
mod lanczos;

pub use clip::{CLIP_SIZE, ClipPreprocessor};
pub use error::ImageError;
pub use frames::{frames_to_bytes, preprocess};

/// The most pixels an image may have. Pillow refuses larger files as well.
pub const MOST_PIXELS: usize = 178_956_970;

/// Channels of an image.
const CHANNELS: usize = 3;

/// An image of 8-bit RGB pixels, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbImage {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl RgbImage {
    /// An image of `width · height · 3` bytes.
    ///
    /// # Errors
    /// Where the size is none that [`check_size`](Self::check_size) takes, or the bytes are not as many.
    pub fn new(width: usize, height: usize, pixels: Vec<u8>) -> Result<Self, ImageError> {
        let expected = Self::check_size(width, height)?;
        if pixels.len() != expected {
            return Err(ImageError::Bytes { width, height, expected, got: pixels.len() });
        }
        Ok(RgbImage { width, height, pixels })
    }

    /// How many bytes an image of this size has. Ask before decoding a file.
    ///
    /// # Errors
    /// Where the image would have no pixel, or more than [`MOST_PIXELS`].
    pub fn check_size(width: usize, height: usize) -> Result<usize, ImageError> {
        match width.checked_mul(height) {
            Some(0) => Err(ImageError::Empty { width, height }),
            Some(pixels) if pixels <= MOST_PIXELS => Ok(pixels * CHANNELS),
            _ => Err(ImageError::TooLarge { width, height }),
        }
    }

    /// Its width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Its height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Its bytes.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The image in another size, by Pillow's Lanczos filter, equal to its result in every byte.
    ///
    /// # Errors
    /// Where the size is none that [`check_size`](Self::check_size) takes.
    pub fn resize_lanczos(&self, width: usize, height: usize) -> Result<RgbImage, ImageError> {
        Self::check_size(width, height)?;
        Ok(lanczos::resize(self, width, height))
    }
}
