//! What a video gives: its frames, and what is known about them.

use std::{path::PathBuf, time::Duration};

use kinora_models::image::RgbImage;

use crate::video::{AudioTrack, FrameRate};

/// A frame of a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its pixels. Its size may differ from the frame before: numbered pictures may have any, and H.264 may change it.
    pub image: RgbImage,
    /// When it is shown, counted from the first frame.
    pub time: Duration,
}

/// How the frames of a video follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// Each is shown for as long as the others.
    Constant(FrameRate),
    /// Each has a time of its own.
    Variable {
        /// The rate that would give as many frames in the same time.
        mean: FrameRate,
    },
    /// That is not known before the frames are read.
    Unknown,
}

impl Timing {
    /// The rate, or the mean rate, if it is known.
    pub fn frame_rate(self) -> Option<FrameRate> {
        match self {
            Timing::Constant(rate) | Timing::Variable { mean: rate } => Some(rate),
            Timing::Unknown => None,
        }
    }
}

/// What is known about a video before its frames are read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VideoInfo {
    /// What it is: `MP4`, `Y4M`, `GIF`, `pictures`, `picture`, `raw RGB`.
    pub format: &'static str,
    /// The first frame's width.
    pub width: usize,
    /// The first frame's height.
    pub height: usize,
    /// How the frames follow each other.
    pub timing: Timing,
    /// How many frames there are.
    pub frames: Option<u64>,
    /// Whether there is sound.
    pub has_audio: bool,
    /// Whether the first frame lies on the background, because something of it is transparent.
    pub has_alpha: bool,
    /// The files that are read, which must not be written to: see [`VideoOptions::protect`](crate::video::VideoOptions::protect).
    pub files: Vec<PathBuf>,
    /// Sentences about what is left out or taken another way than the file says.
    pub notes: Vec<String>,
    /// The sound, if it can be copied.
    pub(super) audio: Option<AudioTrack>,
}

impl VideoInfo {
    /// A video of which no more than this is known.
    pub(super) fn new(format: &'static str, [width, height]: [usize; 2], timing: Timing) -> Self {
        Self {
            format,
            width,
            height,
            timing,
            frames: None,
            has_audio: false,
            has_alpha: false,
            files: Vec::new(),
            notes: Vec::new(),
            audio: None,
        }
    }
}
