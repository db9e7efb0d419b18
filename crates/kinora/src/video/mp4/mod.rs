//! H.264 in an MP4 file.

mod boxes;
mod h264;
mod openh264;

use std::{
    io::{self, Seek, SeekFrom, Write},
    path::Path,
};

use tempfile::{SpooledTempFile, spooled_tempfile_in};

use super::{FrameRate, RgbImage, error::EncodeError};
use boxes::Movie;
use h264::H264Encoder;

/// Compressed frames stay in memory up to here, then go to an unnamed temporary file. A clip of a model is shorter.
const MEMORY: usize = 64 << 20;

/// Compresses frames as they come, and writes the file when all are known: its index comes first, so that a browser can
/// play while it still downloads.
pub(super) struct Mp4Encoder<W> {
    sink: W,
    rate: FrameRate,
    encoder: H264Encoder,
    samples: SpooledTempFile,
    movie: Option<Movie>,
}

impl<W: Write> Mp4Encoder<W> {
    /// A writer to `sink` that may put temporary data into `folder`.
    pub(super) fn new(sink: W, folder: &Path, rate: FrameRate, quality: u8) -> Self {
        let samples = spooled_tempfile_in(MEMORY, folder);
        Self { sink, rate, encoder: H264Encoder::new(rate, quality), samples, movie: None }
    }

    pub(super) fn write_frame(&mut self, frame: &RgbImage) -> Result<(), EncodeError> {
        let sample = self.encoder.encode(frame)?;
        let movie = match &mut self.movie {
            Some(movie) => movie,
            None => {
                let sets = sample.parameter_sets.ok_or_else(|| {
                    EncodeError::Codec("the first frame came without its parameter sets".into())
                })?;
                self.movie.insert(Movie::new(sample.size, self.rate, sets))
            }
        };
        let length = u32::try_from(sample.data.len())
            .map_err(|_| EncodeError::Codec("a compressed frame of more than 4 GiB".into()))?;
        self.samples.write_all(&sample.data)?;
        movie.push(length, sample.is_sync);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<W, EncodeError> {
        if let Some(movie) = self.movie {
            let bytes = self.samples.stream_position()?;
            self.sink.write_all(&movie.head(bytes)?)?;
            self.samples.seek(SeekFrom::Start(0))?;
            io::copy(&mut self.samples, &mut self.sink)?;
        }
        Ok(self.sink)
    }
}
