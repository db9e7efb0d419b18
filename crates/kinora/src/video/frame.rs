//! One picture of a video.

use super::VideoError;

/// One picture of a video: 8-bit RGB pixels, row by row from the top left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    width: usize,
    height: usize,
    data: Vec<u8>,
}

impl Frame {
    /// A frame of `height × width × 3` bytes.
    pub fn new(width: usize, height: usize, data: Vec<u8>) -> Result<Self, VideoError> {
        let bytes = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(3));
        if bytes != Some(data.len()) || data.is_empty() {
            return Err(VideoError::FrameBytes { width, height, bytes: data.len() });
        }
        Ok(Self { width, height, data })
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Red, green and blue of every pixel.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The bytes of [`Frame::data`], without a copy.
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// The pixels of one row.
    pub(super) fn row(&self, y: usize) -> &[[u8; 3]] {
        &self.data.as_chunks().0[y * self.width..][..self.width]
    }
}
