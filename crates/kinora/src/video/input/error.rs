//! What can be wrong with a video that is read.

use std::{collections::TryReserveError, io};

use kinora_models::image::{ImageError, MAX_PIXELS, MAX_SIDE};
use kinora_outside::Refused;
use thiserror::Error;

use crate::photo::PhotoError;

/// Why a video could not be read, or not to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InputError {
    /// Nothing is at the path.
    #[error("there is no video at {name}; check the path")]
    Missing {
        /// What was asked for.
        name: String,
    },
    /// The system refused to read.
    #[error("cannot read {name}: {source}; check that it is a file or a pipe that you may read")]
    Unreadable {
        /// What was asked for.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The content is of no format that is read.
    #[error(
        "{name} is not a video that Kinora reads (MP4, Y4M, GIF or pictures, by content, not by name); convert it: ffmpeg -i INPUT OUTPUT.y4m; \
         raw RGB needs its size"
    )]
    NotAVideo {
        /// What was read.
        name: String,
    },
    /// The format or its variant is known, and not read.
    #[error("{name} is {what}, which Kinora does not read; convert it: {remedy}")]
    Unsupported {
        /// What was read.
        name: String,
        /// What it is.
        what: String,
        /// A command that converts it.
        remedy: &'static str,
    },
    /// There is no frame in it.
    #[error("{name} has no frame; get a complete copy of it")]
    NoFrames {
        /// What was read.
        name: String,
    },
    /// The folder has no picture.
    #[error(
        "the folder {name} has no picture (.png, .jpg, .webp, .gif, .bmp, .tiff); give another folder or a file"
    )]
    NoPictures {
        /// The folder.
        name: String,
    },
    /// The video ends in the middle of a frame.
    #[error("{name} is truncated after frame {frames}; the frames before are whole")]
    Truncated {
        /// What was read.
        name: String,
        /// How many whole frames there were.
        frames: u64,
    },
    /// The file breaks its format's rules.
    #[error("{name} is damaged after frame {frames}: {reason}; get a complete copy of it")]
    Damaged {
        /// What was read.
        name: String,
        /// How many whole frames there were.
        frames: u64,
        /// What is wrong.
        reason: String,
    },
    /// A frame is too large.
    #[error(
        "{name} has frames of {width}×{height}; Kinora reads at most {MAX_PIXELS} pixels and sides of at most {MAX_SIDE}, at \
         least 1; scale it first: ffmpeg -i INPUT -vf scale=1280:-2 OUTPUT.y4m"
    )]
    Size {
        /// What was read.
        name: String,
        /// The frames' width.
        width: usize,
        /// The frames' height.
        height: usize,
    },
    /// The system has no memory for a frame.
    #[error("no memory for a frame of {name}, which takes {bytes} bytes; scale the video down first")]
    Memory {
        /// What was read.
        name: String,
        /// What the frame takes.
        bytes: usize,
    },
    /// A picture of a sequence cannot be read.
    #[error(transparent)]
    Picture(#[from] PhotoError),
}

impl InputError {
    /// Whether the video merely ends too early, after at least one frame: what was read is whole.
    pub fn is_truncation(&self) -> bool {
        matches!(self, Self::Truncated { frames: 1.., .. })
    }
}

/// What is wrong with a video, before its name is known.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    Truncated,
    Damaged(String),
    Unsupported { what: String, remedy: &'static str },
    Size([usize; 2]),
    Memory(usize),
    Picture(PhotoError),
}

/// Converts whatever ffmpeg reads to what Kinora reads.
const TO_Y4M: &str = "ffmpeg -i INPUT OUTPUT.y4m";

impl Fault {
    pub(super) fn damaged(reason: impl Into<String>) -> Self {
        Self::Damaged(reason.into())
    }

    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), remedy: TO_Y4M }
    }

    /// The same with another command that converts.
    pub(super) fn with_remedy(self, command: &'static str) -> Self {
        match self {
            Self::Unsupported { what, .. } => Self::Unsupported { what, remedy: command },
            other => other,
        }
    }

    pub(super) fn named(self, name: &str, frames: u64) -> InputError {
        let name = name.to_owned();
        match self {
            Self::Io(source) => unreadable(&name, source),
            Self::Truncated => InputError::Truncated { name, frames },
            Self::Damaged(reason) => InputError::Damaged { name, frames, reason },
            Self::Unsupported { what, remedy } => InputError::Unsupported { name, what, remedy },
            Self::Size([width, height]) => InputError::Size { name, width, height },
            Self::Memory(bytes) => InputError::Memory { name, bytes },
            Self::Picture(error) => InputError::Picture(error),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Truncated } else { Self::Io(error) }
    }
}

impl From<PhotoError> for Fault {
    fn from(error: PhotoError) -> Self {
        Self::Picture(error)
    }
}

impl From<ImageError> for Fault {
    fn from(error: ImageError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// An I/O error in the user's words.
pub(super) fn unreadable(name: &str, source: io::Error) -> InputError {
    let refused = source.get_ref().and_then(|inner| inner.downcast_ref::<Refused>());
    match (source.kind(), refused) {
        (io::ErrorKind::NotFound, None) => InputError::Missing { name: name.into() },
        _ => InputError::Unreadable { name: name.into(), source },
    }
}

/// Bytes for a frame, or the error that there is no memory for them.
pub(super) fn zeroed(bytes: usize) -> Result<Vec<u8>, Fault> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes).map_err(|_: TryReserveError| Fault::Memory(bytes))?;
    buffer.resize(bytes, 0);
    Ok(buffer)
}
