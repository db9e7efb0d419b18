//! What can go wrong when a video is written.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::is_standard_stream;
use crate::files::PublishError;

/// Why a video could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VideoError {
    /// The path's extension names no format.
    #[error(
        "cannot tell the format of `{}`; end the name in .mp4, .gif, .png (numbered files), .y4m or .rgb, or give - for \
         standard output", path.display()
    )]
    UnknownFormat {
        /// The path asked for.
        path: PathBuf,
    },
    /// The frame rate is not one.
    #[error("{asked} frames per second is not a frame rate; give a number from 0.001 to 1000")]
    FrameRate {
        /// The rate asked for.
        asked: String,
    },
    /// GIF counts time in hundredths of a second, and players slow down delays below two.
    #[error(
        "a GIF plays at most 50 frames per second, {asked:.3} were asked for; lower the rate or write an .mp4"
    )]
    GifFrameRate {
        /// The rate asked for.
        asked: f64,
    },
    /// GIF counts time in hundredths of a second, in 16 bits.
    #[error(
        "a GIF shows a frame for at most 655 seconds; raise the rate of {asked} frames per second or write an .mp4"
    )]
    GifTooSlow {
        /// The rate asked for.
        asked: f64,
    },
    /// The quality is out of range.
    #[error("quality {quality} is out of range; give 1 (smallest file) to 100 (best picture)")]
    Quality {
        /// The quality asked for.
        quality: u8,
    },
    /// The result exists.
    #[error("`{}` exists already; choose another name or allow overwriting", path.display())]
    Exists {
        /// The file that is in the way.
        path: PathBuf,
    },
    /// The result is a file that the video is made from.
    #[error("`{}` is an input and would be overwritten; choose another name for the output", path.display())]
    IsInput {
        /// The input.
        path: PathBuf,
    },
    /// The result is a folder.
    #[error("`{}` is a folder; give the name of a file", path.display())]
    IsFolder {
        /// The path asked for.
        path: PathBuf,
    },
    /// The folder for the result does not exist.
    #[error("there is no folder `{}` to write to; create it first", folder.display())]
    MissingFolder {
        /// The folder that is missing.
        folder: PathBuf,
    },
    /// The system refuses files at this place.
    #[error("cannot write `{}`: {source}; choose another folder or name, or change its permissions", path.display())]
    Unwritable {
        /// The path asked for.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The disk is full.
    #[error("no space left on the disk while writing `{}`; nothing was kept; free some space or write elsewhere", path.display())]
    DiskFull {
        /// The path asked for.
        path: PathBuf,
    },
    /// A write failed in another way.
    #[error("writing `{}` failed, nothing was kept: {source}", path.display())]
    Write {
        /// The path asked for.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Writing failed, and a file that was to be replaced could not be put back.
    #[error(
        "{failure}; files that were to be replaced could not be put back and are in `{}`: {source}; the next video that is written \
         to this folder tries again", folder.display()
    )]
    NotRestored {
        /// Why the video could not be written.
        failure: Box<VideoError>,
        /// Where the files are.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Standard output does not take the video any more.
    #[error("standard output took no more of the video: {source}; look at the program that reads it")]
    StandardOutput {
        /// The system's reason.
        source: io::Error,
    },
    /// A frame's size differs from the first frame's.
    #[error(
        "frame {number} has {}×{} pixels and the first has {}×{}; all frames of a video have one size", size.0, size.1, first.0, first.1
    )]
    FrameSize {
        /// The frame's number, from 1.
        number: usize,
        /// Its width and height.
        size: (usize, usize),
        /// The first frame's width and height.
        first: (usize, usize),
    },
    /// A frame is shown before the one in front of it.
    #[error(
        "frame {number} is not shown later than the frame before it; the times of a video's frames increase"
    )]
    FrameTime {
        /// The frame's number, from 1.
        number: usize,
    },
    /// The format has no place for sound.
    #[error("{format} holds no sound; write an .mp4, or leave the sound out")]
    NoAudio {
        /// The format's name.
        format: &'static str,
    },
    /// The sound cannot be read any more.
    #[error("the sound for `{}` cannot be read: {source}; nothing was kept; leave the sound out, or check its file", path.display())]
    Audio {
        /// The path of the video that was to be written.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Only uncompressed video goes to standard output.
    #[error("{format} cannot go to standard output; write Y4M or raw RGB there, or give the name of a file")]
    NotAStream {
        /// The format's name.
        format: &'static str,
    },
    /// The format cannot hold frames of this size.
    #[error(
        "{format} cannot hold frames of {width}×{height}: {bounds}; choose another size or format (.png and .y4m hold any)"
    )]
    UnsupportedSize {
        /// The format's name.
        format: &'static str,
        /// The frames' width.
        width: usize,
        /// The frames' height.
        height: usize,
        /// What it can hold.
        bounds: &'static str,
    },
    /// The H.264 encoder refused.
    #[error("the H.264 encoder failed on a frame for `{}`: {reason}; try another size, or write .y4m or .png", path.display())]
    Codec {
        /// The path asked for.
        path: PathBuf,
        /// The encoder's reason.
        reason: String,
    },
    /// No frame was written.
    #[error("no frame was written to `{}`, and a video needs at least one; nothing was kept", path.display())]
    NoFrames {
        /// The path asked for.
        path: PathBuf,
    },
    /// The writer was used after an error.
    #[error("writing `{}` failed before and was abandoned; start again", path.display())]
    Abandoned {
        /// The path asked for.
        path: PathBuf,
    },
}

impl VideoError {
    /// Whether the program that reads standard output has ended, as `head` and a player that is closed do.
    pub fn reader_is_gone(&self) -> bool {
        matches!(self, Self::StandardOutput { source } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// An I/O error of `path` in the user's words.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        if is_standard_stream(path) {
            return Self::StandardOutput { source };
        }
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            _ => Self::Write { path, source },
        }
    }
}

impl From<PublishError> for VideoError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Io { path, source } => Self::io(&path, source),
            PublishError::Input { path } => Self::IsInput { path },
            PublishError::Folder { path } => Self::IsFolder { path },
            PublishError::NotRestored { failure, folder, source } => {
                Self::NotRestored { failure: Box::new((*failure).into()), folder, source }
            }
        }
    }
}

/// What fails inside an encoder, which does not know its file's path.
#[derive(Debug)]
pub(super) enum EncodeError {
    /// Writing failed.
    Io(io::Error),
    /// H.264 encoding failed.
    Codec(String),
    /// See [`VideoError::UnsupportedSize`].
    UnsupportedSize { format: &'static str, width: usize, height: usize, bounds: &'static str },
    /// The sound cannot be read.
    Audio(io::Error),
    /// See [`VideoError::FrameTime`].
    FrameTime { number: usize },
    /// See [`VideoError::FrameSize`].
    FrameSize { number: usize, size: (usize, usize), first: (usize, usize) },
}

impl EncodeError {
    pub(super) fn at(self, path: &Path) -> VideoError {
        match self {
            Self::Io(source) => VideoError::io(path, source),
            Self::Codec(reason) => VideoError::Codec { path: path.into(), reason },
            Self::UnsupportedSize { format, width, height, bounds } => {
                VideoError::UnsupportedSize { format, width, height, bounds }
            }
            Self::Audio(source) => VideoError::Audio { path: path.into(), source },
            Self::FrameTime { number } => VideoError::FrameTime { number },
            Self::FrameSize { number, size, first } => VideoError::FrameSize { number, size, first },
        }
    }
}

impl From<io::Error> for EncodeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
