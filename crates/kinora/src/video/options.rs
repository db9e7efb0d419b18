//! How a video is written.

use std::path::PathBuf;

use super::{AudioTrack, FrameRate, VideoFormat};
use crate::setters::setters;

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
    /// The format, if the path's extension is not to decide. Standard output takes [`VideoFormat::Y4m`] and [`VideoFormat::Raw`].
    pub format: Option<VideoFormat>,
    /// Sound that is copied beside the frames, up to their end. Only some formats [hold it](VideoFormat::holds_audio).
    pub audio: Option<AudioTrack>,
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
            format: None,
            audio: None,
        }
    }

    setters! {
        frame_rate: FrameRate,
        quality: u8,
        overwrite: bool,
        frames: impl Into<Option<usize>>,
        protect: impl Into<Vec<PathBuf>>,
        format: impl Into<Option<VideoFormat>>,
        audio: impl Into<Option<AudioTrack>>,
    }
}
