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
pub use frames::preprocess;

/// The most pixels an image may have. Above it Pillow refuses a file as a decompression bomb, and so do we: a few
/// kilobytes can claim gigabytes. The largest camera sensors have about 150 million.
pub const MAX_PIXELS: usize = 178_956_970;

/// The longest side an image may have. The rows or columns of a longer one, resized in one direction, would take far more
/// memory than the image itself. JPEG and GIF hold no longer ones.
pub const MAX_SIDE: usize = 65_535;

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
    /// Where the image would have no pixel, more than [`MAX_PIXELS`], or a side longer than [`MAX_SIDE`].
    pub fn check_size(width: usize, height: usize) -> Result<usize, ImageError> {
        match width.checked_mul(height) {
            Some(0) => Err(ImageError::Empty { width, height }),
            Some(pixels) if pixels <= MAX_PIXELS && width.max(height) <= MAX_SIDE => Ok(pixels * CHANNELS),
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
