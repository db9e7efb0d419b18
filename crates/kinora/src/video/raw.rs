//! Raw RGB: three bytes for every pixel, and nothing else.

use std::io::Write;

use super::{RgbImage, error::EncodeError};

/// Writes frames as they are.
pub(super) struct RawEncoder<W> {
    sink: W,
}

impl<W: Write> RawEncoder<W> {
    pub(super) fn new(sink: W) -> Self {
        Self { sink }
    }

    pub(super) fn write_frame(&mut self, frame: &RgbImage) -> Result<(), EncodeError> {
        self.sink.write_all(frame.bytes())?;
        // Whoever reads a pipe is to see the frame now.
        Ok(self.sink.flush()?)
    }

    pub(super) fn finish(self) -> Result<W, EncodeError> {
        Ok(self.sink)
    }
}
