//! Videos that people take away: frames written to a file whose extension says its format.
//!
//! | name | what is written |
//! | --- | --- |
//! | `clip.mp4` | H.264, 4:2:0, playable in browsers while it still downloads |
//! | `clip.gif` | an animation that repeats for ever, a palette of 256 colours for every frame |
//! | `clip.png` | numbered files `clip-0001.png`, `clip-0002.png` … without loss |
//! | `clip.y4m` | uncompressed 4:4:4, for other programs |
//! | `clip.rgb` | raw RGB, three bytes a pixel and no header |
//! | `-` | Y4M to standard output, frame by frame: `… \| ffmpeg -i - clip.webm` |
//!
//! Frames are encoded as they come, at a constant rate or each at its own time, and memory does not grow with their number.
//! [`input`] reads videos the same way, and [`fit`] brings their frames to another size and back.
//!
//! Nothing is ever half-written. Frames go to a temporary file beside the result, which is renamed when all of it is on
//! the disk. A [`VideoFile`] that is dropped before [`VideoFile::finish`] removes what it wrote; one that is finished early is a whole
//! video of the frames so far. [`files`](crate::files) says what happens to files that exist, and if the process is killed.
//!
//! Numbered files take their names together. A hidden file beside them, `.clip.png.kinora`, keeps their lengths and times. If a shorter clip
//! overwrites them, the frames that it does not reach are removed, provided that they are still as they were written. Other
//! files with such names are left alone, and [`WrittenVideo::left`] names those that a program would read as a part of the clip.
//! If the process is killed while the files take their names, the next [`VideoFile::create`] in that folder puts the old clip back.

mod audio;
mod clock;
mod error;
mod file;
pub mod fit;
mod frame_rate;
#[cfg(test)]
mod full_disk;
mod gif;
pub mod input;
mod mp4;
mod options;
mod output;
pub(crate) mod png;
mod raw;
mod y4m;
mod ycbcr;

use std::path::Path;

use kinora_models::image::RgbImage;

pub use audio::AudioTrack;
pub use error::VideoError;
pub use file::{VideoFile, WrittenVideo};
pub use frame_rate::FrameRate;
pub use options::VideoOptions;

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
    /// Raw RGB.
    Raw,
}

impl VideoFormat {
    /// The format that a path asks for by its extension, in upper or lower case; `-` is [`VideoFormat::Y4m`].
    pub fn from_path(path: &Path) -> Result<Self, VideoError> {
        if is_standard_stream(path) {
            return Ok(Self::Y4m);
        }
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("mp4") => Ok(Self::Mp4),
            Some("gif") => Ok(Self::Gif),
            Some("png") => Ok(Self::Png),
            Some("y4m") => Ok(Self::Y4m),
            Some("rgb") => Ok(Self::Raw),
            _ => Err(VideoError::UnknownFormat { path: path.into() }),
        }
    }

    /// Its name as people know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mp4 => "MP4",
            Self::Gif => "GIF",
            Self::Png => "PNG",
            Self::Y4m => "Y4M",
            Self::Raw => "raw RGB",
        }
    }

    /// Whether [`VideoOptions::audio`] can go with the frames.
    pub fn holds_audio(self) -> bool {
        self == Self::Mp4
    }

    /// Whether every frame keeps the time that [`VideoFile::write_frame_at`] gives it. The others play at their constant rate.
    pub fn keeps_times(self) -> bool {
        matches!(self, Self::Mp4 | Self::Gif)
    }

    /// Whether it can be written to standard output, which cannot be gone back in.
    fn is_stream(self) -> bool {
        matches!(self, Self::Y4m | Self::Raw)
    }
}

/// Whether a path stands for standard input or output.
fn is_standard_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether a path ends as only a folder's does, in a separator or `.`, which the standard library does not show.
fn names_a_folder(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let separator = |byte: &u8| std::path::is_separator(char::from(*byte));
    bytes.strip_suffix(b".").unwrap_or(bytes).last().is_some_and(separator)
}
