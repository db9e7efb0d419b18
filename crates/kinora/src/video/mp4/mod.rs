//! H.264 in an MP4 file.

mod audio;
mod boxes;
mod h264;
mod movie;
mod openh264;
mod sample_table;

use std::{
    io::{self, Seek, SeekFrom, Write},
    path::Path,
    time::Duration,
};

use tempfile::{SpooledTempFile, spooled_tempfile_in};

use super::{AudioTrack, FrameRate, RgbImage, error::EncodeError};
use audio::AudioCopy;
use h264::H264Encoder;
use movie::Movie;

/// Compressed frames stay in memory up to here, then go to an unnamed temporary file. A clip of a model is shorter.
const MEMORY: usize = 64 << 20;

/// Sound follows its pictures in pieces of this length, so that a player need not jump to and fro.
const PIECE: Duration = Duration::from_millis(500);

/// Compresses frames as they come, and writes the file when all are known: its index comes first, so that a browser can
/// play while it still downloads.
pub(super) struct Mp4Encoder<W> {
    sink: W,
    rate: FrameRate,
    encoder: H264Encoder,
    samples: SpooledTempFile,
    /// How many bytes of samples there are.
    position: u64,
    movie: Option<Movie>,
    audio: Option<AudioCopy>,
    /// When the sound goes on.
    next_piece: Duration,
}

impl<W: Write> Mp4Encoder<W> {
    /// A writer to `sink` that may put temporary data into `folder`.
    pub(super) fn new(sink: W, folder: &Path, rate: FrameRate, quality: u8) -> Self {
        Self {
            sink,
            rate,
            encoder: H264Encoder::new(rate, quality),
            samples: spooled_tempfile_in(MEMORY, folder),
            position: 0,
            movie: None,
            audio: None,
            next_piece: PIECE,
        }
    }

    /// The same with sound beside the frames.
    pub(super) fn with_audio(mut self, track: Option<AudioTrack>) -> io::Result<Self> {
        self.audio = track.map(AudioCopy::open).transpose()?;
        Ok(self)
    }

    pub(super) fn write_frame(&mut self, frame: &RgbImage, time: Duration) -> Result<(), EncodeError> {
        let sample = self.encoder.encode(frame, time)?;
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
        movie.push(self.position, length, sample.is_sync, time);
        self.position += u64::from(length);
        if time >= self.next_piece {
            self.copy_audio(time)?;
            self.next_piece = time + PIECE;
        }
        Ok(())
    }

    fn copy_audio(&mut self, until: Duration) -> Result<(), EncodeError> {
        if let Some(audio) = &mut self.audio {
            audio.copy_until(until, &mut self.samples, &mut self.position).map_err(EncodeError::Audio)?;
        }
        Ok(())
    }

    /// The last frame is shown until `end`.
    pub(super) fn finish(mut self, end: Duration) -> Result<W, EncodeError> {
        self.copy_audio(end)?;
        if let Some(movie) = self.movie {
            let audio = self.audio.as_ref().filter(|audio| audio.table().count() > 0);
            self.sink.write_all(&movie.head(self.position, end, audio)?)?;
            self.samples.seek(SeekFrom::Start(0))?;
            io::copy(&mut self.samples, &mut self.sink)?;
        }
        Ok(self.sink)
    }
}
