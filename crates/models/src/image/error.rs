//! What can be wrong with an image.

use serde_json::Value;
use thiserror::Error;

use super::{MAX_PIXELS, MAX_SIDE};
use crate::json::shown_value;

/// Why an image cannot be processed.
#[derive(Debug, Error)]
pub enum ImageError {
    /// An image without pixels.
    #[error("an image of {width}×{height} has no pixels")]
    Empty {
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
    },
    /// An image with too many pixels, or too long a side.
    #[error(
        "an image of {width}×{height} has more than {MAX_PIXELS} pixels or a side of more than {MAX_SIDE}; make it smaller \
         first"
    )]
    TooLarge {
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
    },
    /// Bytes that are not the image's.
    #[error("an image of {width}×{height} has {expected} bytes of RGB, but {got} were given")]
    Bytes {
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
        /// The bytes that it has.
        expected: usize,
        /// The bytes that were given.
        got: usize,
    },
    /// A field of `preprocessor_config.json` that makes no sense.
    #[error("`{field}` is {}, but must be {expected}", shown_value(value))]
    Config {
        /// The field.
        field: &'static str,
        /// Its value.
        value: Value,
        /// What it could be.
        expected: &'static str,
    },
}
