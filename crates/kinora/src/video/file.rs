//! A video that is being written.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kinora_models::image::RgbImage;

use super::{
    VideoError, VideoFormat, VideoOptions, clock::Clock, error::EncodeError, gif, gif::GifEncoder,
    is_standard_stream, mp4::Mp4Encoder, names_a_folder, output::Output, png::PngSequence, raw::RawEncoder,
    y4m::Y4mEncoder,
};
use crate::{files, files::Inputs};

/// What [`VideoFile::finish`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenVideo {
    /// The files, in the order of their frames; one, except for PNG; none for standard output.
    pub files: Vec<PathBuf>,
    /// How many frames they hold.
    pub frames: usize,
    /// Numbered files that follow on from the clip's last one, and were left alone because Kinora did not write them or they have
    /// changed since. Programs that read numbered files take them for a part of the clip.
    pub left: Vec<PathBuf>,
    /// Folders that hold files of a clip whose writer was killed. They could not be put back, because other files have
    /// taken their names.
    pub unrestored: Vec<PathBuf>,
}

/// A video that is being written.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("clip.mp4");
/// use std::time::Duration;
///
/// use kinora::{RgbImage, video::{FrameRate, VideoFile, VideoOptions}};
///
/// let mut file = VideoFile::create(&path, &VideoOptions::new(FrameRate::new(30.0)?))?;
/// let gray = RgbImage::new(64, 48, vec![128; 64 * 48 * 3])?;
/// file.write_frame(&gray)?;
/// // A camera that was late.
/// file.write_frame_at(&gray, Duration::from_millis(50))?;
/// assert_eq!(file.finish()?.frames, 2);
/// # Ok(())
/// # }
/// ```
pub struct VideoFile {
    path: PathBuf,
    /// Gone once a write has failed, and its temporary files with it.
    encoder: Option<Encoder>,
    size: Option<(usize, usize)>,
    frames: usize,
    clock: Clock,
}

enum Encoder {
    Mp4(Box<Mp4Encoder<Output>>),
    Gif(GifEncoder<Output>),
    Png(PngSequence),
    Y4m(Y4mEncoder<Output>),
    Raw(RawEncoder<Output>),
}

impl Encoder {
    fn create(path: &Path, format: VideoFormat, options: &VideoOptions) -> Result<Self, VideoError> {
        let rate = options.frame_rate;
        let inputs = Inputs::new(&options.protect);
        let output = || Output::create(path, options.overwrite, &inputs);
        Ok(match format {
            VideoFormat::Mp4 => {
                let encoder = Mp4Encoder::new(output()?, files::folder(path), rate, options.quality);
                let encoder = encoder
                    .with_audio(options.audio.clone())
                    .map_err(|error| EncodeError::Audio(error).at(path))?;
                Self::Mp4(Box::new(encoder))
            }
            VideoFormat::Gif => {
                gif::check_rate(rate)?;
                Self::Gif(GifEncoder::new(output()?))
            }
            VideoFormat::Png => Self::Png(PngSequence::create(path, options, inputs)?),
            VideoFormat::Y4m => Self::Y4m(Y4mEncoder::new(output()?, rate)),
            VideoFormat::Raw => Self::Raw(RawEncoder::new(output()?)),
        })
    }

    fn write_frame(&mut self, frame: &RgbImage, time: Duration) -> Result<(), EncodeError> {
        match self {
            Self::Mp4(encoder) => encoder.write_frame(frame, time),
            Self::Gif(encoder) => encoder.write_frame(frame, time),
            Self::Png(encoder) => encoder.write_frame(frame),
            Self::Y4m(encoder) => encoder.write_frame(frame),
            Self::Raw(encoder) => encoder.write_frame(frame),
        }
    }
}

impl VideoFile {
    /// Starts a video: finds out whether it can be written there, before any frame is computed for it.
    ///
    /// # Errors
    ///
    /// An unknown extension, options out of range or that the format cannot keep, a file that exists already or is an input, and a
    /// folder that is missing or may not be written to.
    pub fn create(path: impl AsRef<Path>, options: &VideoOptions) -> Result<Self, VideoError> {
        let path = path.as_ref();
        let format = options.format.map_or_else(|| VideoFormat::from_path(path), Ok)?;
        if names_a_folder(path) {
            return Err(VideoError::IsFolder { path: path.into() });
        }
        if !(1..=100).contains(&options.quality) {
            return Err(VideoError::Quality { quality: options.quality });
        }
        if options.audio.is_some() && !format.holds_audio() {
            return Err(VideoError::NoAudio { format: format.name() });
        }
        if is_standard_stream(path) && !format.is_stream() {
            return Err(VideoError::NotAStream { format: format.name() });
        }
        let encoder = Some(Encoder::create(path, format, options)?);
        let clock = Clock::new(options.frame_rate);
        Ok(Self { path: path.into(), encoder, size: None, frames: 0, clock })
    }

    /// Adds a frame, which is shown as long after the one before as the frame rate says. All frames have the size of the first.
    ///
    /// # Errors
    ///
    /// A frame of another size, or of a size the format cannot hold; a full disk or another failure to write. After an
    /// error nothing of the video is left, and the writer is of no further use.
    pub fn write_frame(&mut self, frame: &RgbImage) -> Result<(), VideoError> {
        self.write(frame, None)
    }

    /// Adds a frame that is shown at a time of its own. The first frame's time is the video's beginning. Formats that
    /// [keep no times](VideoFormat::keeps_times) show it as [`VideoFile::write_frame`] does.
    ///
    /// # Errors
    ///
    /// As [`VideoFile::write_frame`]; and if the time is not later than that of the frame before.
    pub fn write_frame_at(&mut self, frame: &RgbImage, time: Duration) -> Result<(), VideoError> {
        self.write(frame, Some(time))
    }

    fn write(&mut self, frame: &RgbImage, time: Option<Duration>) -> Result<(), VideoError> {
        let Some(encoder) = &mut self.encoder else {
            return Err(VideoError::Abandoned { path: self.path.clone() });
        };
        let size = (frame.width(), frame.height());
        let first = *self.size.get_or_insert(size);
        let number = self.frames + 1;
        let result = if first == size {
            let time = self.clock.tick(time, number);
            time.and_then(|time| encoder.write_frame(frame, time))
        } else {
            Err(EncodeError::FrameSize { number, size, first })
        };
        match result {
            Ok(()) => {
                self.frames = number;
                Ok(())
            }
            Err(error) => {
                self.encoder = None;
                Err(error.at(&self.path))
            }
        }
    }

    /// How many frames were written so far.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Completes the video and gives it its name.
    ///
    /// # Errors
    ///
    /// No frame was written, the disk is full, or the file has appeared meanwhile and may not be overwritten. Then
    /// nothing is left behind.
    pub fn finish(mut self) -> Result<WrittenVideo, VideoError> {
        let Some(encoder) = self.encoder.take() else {
            return Err(VideoError::Abandoned { path: self.path });
        };
        if self.frames == 0 {
            return Err(VideoError::NoFrames { path: self.path });
        }
        let end = self.clock.next();
        let mut frames = self.frames;
        let output = match encoder {
            Encoder::Mp4(encoder) => encoder.finish(end),
            Encoder::Gif(encoder) => {
                frames -= encoder.left_out();
                encoder.finish(end)
            }
            Encoder::Y4m(encoder) => encoder.finish(),
            Encoder::Raw(encoder) => encoder.finish(),
            Encoder::Png(encoder) => return encoder.publish(),
        };
        let files = output.map_err(|error| error.at(&self.path))?.publish()?;
        Ok(WrittenVideo { files, frames, left: Vec::new(), unrestored: Vec::new() })
    }
}
