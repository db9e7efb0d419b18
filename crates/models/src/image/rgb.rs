//! The image type: 8-bit RGB.

use super::{ImageError, lanczos};

/// The most pixels an image may have. Above it Pillow refuses a file as a decompression bomb, and so do we: a few
/// kilobytes can claim gigabytes. The largest camera sensors have about 150 million.
pub const MAX_PIXELS: usize = 178_956_970;

/// The longest side an image may have. The rows or columns of a longer one, resized in one direction, would take far more
/// memory than the image itself. JPEG and GIF hold no longer ones.
pub const MAX_SIDE: usize = 65_535;

/// Channels of an image.
pub(super) const CHANNELS: usize = 3;

/// An image of 8-bit RGB pixels, row by row from the top left: a photo, a frame of a video, or anything between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbImage {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) bytes: Vec<u8>,
}

impl RgbImage {
    /// An image of `width · height · 3` bytes.
    ///
    /// # Errors
    /// If [`check_size`](Self::check_size) refuses the size, or the number of bytes is another.
    pub fn new(width: usize, height: usize, bytes: Vec<u8>) -> Result<Self, ImageError> {
        let expected = Self::check_size(width, height)?;
        if bytes.len() != expected {
            return Err(ImageError::Bytes { width, height, expected, got: bytes.len() });
        }
        Ok(RgbImage { width, height, bytes })
    }

    /// How many bytes an image of this size has. Ask before decoding a file.
    ///
    /// # Errors
    /// If the image would have no pixel, more than [`MAX_PIXELS`], or a side longer than [`MAX_SIDE`].
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

    /// Its width and height in pixels.
    pub fn size(&self) -> [usize; 2] {
        [self.width, self.height]
    }

    /// Red, green and blue of every pixel: `height · width · 3` bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of [`RgbImage::bytes`], without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether every byte is zero.
    pub fn is_black(&self) -> bool {
        self.bytes.iter().all(|&byte| byte == 0)
    }

    /// Its pixels.
    pub fn pixels(&self) -> &[[u8; CHANNELS]] {
        self.bytes.as_chunks().0
    }

    /// Its pixels, to be changed.
    pub fn pixels_mut(&mut self) -> &mut [[u8; CHANNELS]] {
        self.bytes.as_chunks_mut().0
    }

    /// The pixels of one row.
    ///
    /// # Panics
    /// If the image has no row `y`.
    pub fn row(&self, y: usize) -> &[[u8; CHANNELS]] {
        &self.pixels()[y * self.width..][..self.width]
    }

    /// The image in another size, by Pillow's Lanczos filter, equal to its result in every byte.
    ///
    /// # Errors
    /// If [`check_size`](Self::check_size) refuses the size.
    pub fn resize_lanczos(&self, width: usize, height: usize) -> Result<RgbImage, ImageError> {
        Self::check_size(width, height)?;
        Ok(lanczos::resize(self, width, height))
    }
}
