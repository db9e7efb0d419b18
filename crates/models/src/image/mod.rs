//! Image processing equal to diffusers', transformers' and Pillow's: a photo becomes what the two encoders read, and
//! decoded frames become pixels.
//!
//! Images are plain 8-bit RGB; reading files is not done here. Results lie as everywhere in Kinora, channels last.

mod antialias;
mod axis;
mod canny;
mod clip;
mod colour;
mod error;
mod fit;
mod frames;
pub(crate) mod lanczos;
mod rgb;

pub use clip::{CLIP_SIZE, ClipPreprocessor};
pub use colour::{Colour, NotAColour};
pub use error::ImageError;
pub use fit::{Fit, UnknownFit};
pub(crate) use fit::{Placed, Span};
pub use frames::preprocess;
pub use rgb::{MAX_PIXELS, MAX_SIDE, RgbImage};

use rgb::CHANNELS;
