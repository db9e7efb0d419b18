//! Videos that people take away: frames written to a file whose extension says its format.
//!
//! | name | what is written |
//! | --- | --- |
//! | `clip.mp4` | H.264, 4:2:0, playable in browsers while it still downloads |
//! | `clip.gif` | an animation that repeats for ever, a palette of 256 colours for every frame |
//! | `clip.png` | numbered files `clip-0001.png`, `clip-0002.png` … without loss |
//! | `clip.y4m` | uncompressed 4:4:4, for other programs |
//! | `-` | the same, to standard output: `… \| ffmpeg -i - clip.webm` |
//!
//! Nothing is ever half-written. Frames go to a temporary file beside the result, which is renamed when all of it is on
//! the disk. A [`VideoFile`] that is dropped before [`VideoFile::finish`] removes what it wrote. [`files`] says what
//! happens to files that exist, and if the process is killed.
//!
//! Numbered files take their names together. A hidden file beside them, `.clip.png.kinora`, keeps their lengths and times. If a shorter clip
//! overwrites them, the frames that it does not reach are removed, provided that they are still as they were written. Other
//! files with such names are left alone, and [`WrittenVideo::left`] names those that a program would read as a part of the clip.
//! If the process is killed while the files take their names, the next [`VideoFile::create`] in that folder puts the old clip back.

mod error;
mod frame_rate;
#[cfg(test)]
mod full_disk;
mod gif;
mod mp4;
mod output;
mod png;
mod y4m;
mod ycbcr;

use std::path::{Path, PathBuf};

use kinora_models::image::RgbImage;

pub use error::VideoError;
pub use frame_rate::FrameRate;

use crate::{files, files::Inputs, setters::setters};
use error::EncodeError;
use output::Output;

/// The format of a video file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VideoFormat {
    /// H.264 in an MP4 file.
    Mp4,
    /// An animated GIF.
    Gif,
    /// One PNG file for every frame.
    Png,
    /// Uncompressed YUV4MPEG2.
    Y4m,
}

impl VideoFormat {
    /// The format that a path asks for by its extension, in upper or lower case; `-` is [`VideoFormat::Y4m`].
    pub fn from_path(path: &Path) -> Result<Self, VideoError> {
        if is_standard_output(path) {
            return Ok(Self::Y4m);
        }
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("mp4") => Ok(Self::Mp4),
            Some("gif") => Ok(Self::Gif),
            Some("png") => Ok(Self::Png),
            Some("y4m") => Ok(Self::Y4m),
            _ => Err(VideoError::UnknownFormat { path: path.into() }),
        }
    }
}

fn is_standard_output(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether a path ends as only a folder's does, in a separator or `.`, which the standard library does not show.
fn names_a_folder(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let separator = |byte: &u8| std::path::is_separator(char::from(*byte));
    bytes.strip_suffix(b".").unwrap_or(bytes).last().is_some_and(separator)
}

/// How a video is written.
///
/// ```
/// use kinora::video::{FrameRate, VideoOptions};
///
/// let options = VideoOptions::new(FrameRate::new(24.0)?).quality(95).overwrite(true);
/// # Ok::<(), kinora::video::VideoError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VideoOptions {
    /// How fast the frames follow each other.
    pub frame_rate: FrameRate,
    /// From 1, the smallest file, to 100, the best picture. Only MP4 asks.
    pub quality: u8,
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
    /// How many frames there will be, if that is known: a numbered file in the way is then found before the work.
    pub frames: Option<usize>,
    /// Files that the video is made from. They are never replaced, even if overwriting is allowed, by whatever name they are reached.
    pub protect: Vec<PathBuf>,
}

impl VideoOptions {
    /// The quality if none is asked for: losses are not visible.
    pub const DEFAULT_QUALITY: u8 = 80;

    /// Default quality, any number of frames, and nothing is overwritten.
    pub fn new(frame_rate: FrameRate) -> Self {
        Self {
            frame_rate,
            quality: Self::DEFAULT_QUALITY,
            overwrite: false,
            frames: None,
            protect: Vec::new(),
        }
    }

    setters! {
        frame_rate: FrameRate,
        quality: u8,
        overwrite: bool,
        frames: impl Into<Option<usize>>,
        protect: impl Into<Vec<PathBuf>>,
    }
}

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
pub struct VideoFile {
    path: PathBuf,
    /// Gone once a write has failed, and its temporary files with it.
    encoder: Option<Encoder>,
    size: Option<(usize, usize)>,
    frames: usize,
}

enum Encoder {
    Mp4(Box<mp4::Mp4Encoder<Output>>),
    Gif(gif::GifEncoder<Output>),
    Png(png::PngSequence),
    Y4m(y4m::Y4mEncoder<Output>),
}

impl VideoFile {
    /// Starts a video: finds out whether it can be written there, before any frame is computed for it.
    ///
    /// # Errors
    ///
    /// An unknown extension, options out of range, a file that exists already or is an input, and a folder that is missing or
    /// may not be written to.
    pub fn create(path: impl AsRef<Path>, options: &VideoOptions) -> Result<Self, VideoError> {
        let path = path.as_ref();
        let format = VideoFormat::from_path(path)?;
        if names_a_folder(path) {
            return Err(VideoError::IsFolder { path: path.into() });
        }
        if !(1..=100).contains(&options.quality) {
            return Err(VideoError::Quality { quality: options.quality });
        }
        let rate = options.frame_rate;
        let inputs = Inputs::new(&options.protect);
        let output = || Output::create(path, options.overwrite, &inputs);
        let encoder = match format {
            VideoFormat::Mp4 => Encoder::Mp4(Box::new(mp4::Mp4Encoder::new(
                output()?,
                files::folder(path),
                rate,
                options.quality,
            ))),
            VideoFormat::Gif => Encoder::Gif(gif::GifEncoder::new(output()?, gif::Delays::new(rate)?)),
            VideoFormat::Png => Encoder::Png(png::PngSequence::create(path, options, inputs)?),
            VideoFormat::Y4m => Encoder::Y4m(y4m::Y4mEncoder::new(output()?, rate)),
        };
        Ok(Self { path: path.into(), encoder: Some(encoder), size: None, frames: 0 })
    }

    /// Adds a frame. All frames have the size of the first.
    ///
    /// # Errors
    ///
    /// A frame of another size, or of a size the format cannot hold; a full disk or another failure to write. After an
    /// error nothing of the video is left, and the writer is of no further use.
    pub fn write_frame(&mut self, frame: &RgbImage) -> Result<(), VideoError> {
        let Some(encoder) = &mut self.encoder else {
            return Err(VideoError::Abandoned { path: self.path.clone() });
        };
        let size = (frame.width(), frame.height());
        let first = *self.size.get_or_insert(size);
        let result = if first == size {
            match encoder {
                Encoder::Mp4(encoder) => encoder.write_frame(frame),
                Encoder::Gif(encoder) => encoder.write_frame(frame),
                Encoder::Png(encoder) => encoder.write_frame(frame),
                Encoder::Y4m(encoder) => encoder.write_frame(frame),
            }
        } else {
            Err(EncodeError::FrameSize { number: self.frames + 1, size, first })
        };
        self.frames += 1;
        result.map_err(|error| {
            self.encoder = None;
            error.at(&self.path)
        })
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
        let output = match encoder {
            Encoder::Mp4(encoder) => encoder.finish(),
            Encoder::Gif(encoder) => encoder.finish(),
            Encoder::Y4m(encoder) => encoder.finish(),
            Encoder::Png(encoder) => return encoder.publish(),
        };
        let files = output.map_err(|error| error.at(&self.path))?.publish()?;
        Ok(WrittenVideo { files, frames: self.frames, left: Vec::new(), unrestored: Vec::new() })
    }
}
