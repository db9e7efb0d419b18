//! What can be wrong with a photo.

use std::path::PathBuf;

use thiserror::Error;

use super::{BoxError, MAX_PIXELS, MAX_SIDE};
use crate::quantity;

/// Why a photo could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PhotoError {
    /// Nothing is at the path.
    #[error("there is no photo at `{}`; check the path", path.display())]
    Missing {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path is a folder.
    #[error("`{}` is a folder; give the path of one image file", path.display())]
    Folder {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path is a device or a socket.
    #[error("`{}` is a {kind}; give the path of one image file", path.display())]
    NotAFile {
        /// The path asked for.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The system refused to read the file.
    #[error("cannot read `{}`: {source}; check that you may read it", path.display())]
    Unreadable {
        /// The path asked for.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is far longer than an image.
    #[error("`{}` is longer than {limit} bytes, too long for a photo; give an image file", path.display())]
    TooManyBytes {
        /// The path asked for.
        path: PathBuf,
        /// The most bytes that are read.
        limit: u64,
    },
    /// The file has no bytes.
    #[error("{name} is empty (0 bytes); get a complete copy of it")]
    Empty {
        /// What was read.
        name: String,
    },
    /// The content is of no image format that is read.
    #[error(
        "{name} is not an image that Kinora reads (PNG, JPEG, WebP, GIF, BMP or TIFF, by content, not by name); \
         convert it to PNG or JPEG"
    )]
    NotAnImage {
        /// What was read.
        name: String,
    },
    /// The format is read, but not this variant of it.
    #[error(
        "{name} is a {format} file of a kind that Kinora does not read: {source}; convert it to an RGB PNG"
    )]
    Unsupported {
        /// What was read.
        name: String,
        /// The file's format.
        format: &'static str,
        /// The decoder's reason.
        source: BoxError,
    },
    /// The file is damaged or was cut off.
    #[error("{name} is a damaged or truncated {format} file: {source}; get a complete copy of it")]
    Damaged {
        /// What was read.
        name: String,
        /// The file's format.
        format: &'static str,
        /// The decoder's reason.
        source: BoxError,
    },
    /// The image is larger than the bound against decompression bombs.
    #[error(
        "{name} has {width}×{height} pixels; Kinora reads at most {MAX_PIXELS} (about 13,377×13,377), \
         and sides of at most {MAX_SIDE}; make it smaller first: a video needs far fewer"
    )]
    TooLarge {
        /// What was read.
        name: String,
        /// Its width.
        width: u64,
        /// Its height.
        height: u64,
    },
    /// The image would take more memory than may be used.
    #[error(
        "{name} takes {} of memory to open, but only {} may be used; make the picture smaller first: a video needs far \
         fewer pixels",
        quantity::bytes(*need), quantity::bytes(*limit)
    )]
    Memory {
        /// What was read.
        name: String,
        /// The bytes that it takes.
        need: u64,
        /// The bytes that may be used.
        limit: u64,
    },
}
