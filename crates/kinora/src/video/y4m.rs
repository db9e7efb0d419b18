//! YUV4MPEG2: a line of text, then every frame's planes as they are.

use std::io::Write;

use super::{
    FrameRate, RgbImage,
    error::EncodeError,
    ycbcr::{self, Planes},
};

/// Writes uncompressed 4:4:4 frames.
///
/// The format has no field for the colour matrix. BT.601 is what ffmpeg and players assume for such a file.
pub(super) struct Y4mEncoder<W> {
    sink: W,
    rate: FrameRate,
    started: bool,
}

impl<W: Write> Y4mEncoder<W> {
    pub(super) fn new(sink: W, rate: FrameRate) -> Self {
        Self { sink, rate, started: false }
    }

    pub(super) fn write_frame(&mut self, frame: &RgbImage) -> Result<(), EncodeError> {
        if !self.started {
            writeln!(
                self.sink,
                "YUV4MPEG2 W{} H{} F{}:{} Ip A1:1 C444 XCOLORRANGE=LIMITED",
                frame.width(),
                frame.height(),
                self.rate.numerator(),
                self.rate.denominator(),
            )?;
            self.started = true;
        }
        let Planes { luma, blue, red } = ycbcr::BT601.full(frame);
        self.sink.write_all(b"FRAME\n")?;
        for plane in [luma, blue, red] {
            self.sink.write_all(&plane)?;
        }
        // Whoever reads a pipe is to see the frame now.
        Ok(self.sink.flush()?)
    }

    pub(super) fn finish(self) -> Result<W, EncodeError> {
        Ok(self.sink)
    }
}
