//! The sound of a video that is read, to be copied to one that is written.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

/// The sound of a video: see [`FrameSource::audio`](super::input::FrameSource::audio). It is copied as it is, without being decoded.
///
/// It names places in a file, which must stay as it is until the copy is finished.
#[derive(Clone, PartialEq, Eq)]
pub struct AudioTrack(pub(super) Arc<Sound>);

/// What an [`AudioTrack`] is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sound {
    /// The file that holds the samples.
    pub(super) path: PathBuf,
    /// The kind of sound, as people call it.
    pub(super) codec: &'static str,
    /// The box that describes the samples.
    pub(super) entry: Vec<u8>,
    /// Ticks per second.
    pub(super) timescale: u32,
    /// The samples in their order.
    pub(super) samples: Vec<SoundSample>,
    /// Ticks at the beginning that are not heard.
    pub(super) skip: u64,
    /// How long after the video's first frame it begins.
    pub(super) delay: Duration,
}

/// A piece of sound: where it lies in its file, and how long it is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SoundSample {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) ticks: u32,
}

impl AudioTrack {
    /// The kind of sound, for example `AAC`.
    pub fn codec(&self) -> &'static str {
        self.0.codec
    }
}

impl fmt::Debug for AudioTrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sound { path, codec, timescale, samples, .. } = &*self.0;
        f.debug_struct("AudioTrack")
            .field("path", path)
            .field("codec", codec)
            .field("timescale", timescale)
            .field("samples", &samples.len())
            .finish_non_exhaustive()
    }
}
