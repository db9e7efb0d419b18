//! How a video is read.

use kinora_models::image::Colour;

use crate::{setters::setters, video::FrameRate};

/// How a video is read.
///
/// ```
/// use kinora::video::{FrameRate, input::InputOptions};
///
/// let camera = InputOptions::new().raw_size([640, 480]).frame_rate(FrameRate::new(30.0)?);
/// # Ok::<(), kinora::video::VideoError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputOptions {
    /// What is seen through transparent pixels.
    pub background: Colour,
    /// Width and height of raw RGB, which has no header. If it is given, the input is raw RGB.
    pub raw_size: Option<[usize; 2]>,
    /// The rate of what does not say its own: raw RGB, pictures, some Y4M.
    pub frame_rate: Option<FrameRate>,
}

impl InputOptions {
    /// A black background, and a file that says what it is.
    pub fn new() -> Self {
        Self { background: Colour::BLACK, raw_size: None, frame_rate: None }
    }

    setters! {
        background: Colour,
        raw_size: impl Into<Option<[usize; 2]>>,
        frame_rate: impl Into<Option<FrameRate>>,
    }

    /// The rate of what does not say its own: 25 frames per second if none was given, as ffmpeg assumes.
    pub(super) fn rate(&self) -> FrameRate {
        self.frame_rate.unwrap_or(FrameRate::ASSUMED)
    }
}

impl Default for InputOptions {
    fn default() -> Self {
        Self::new()
    }
}
