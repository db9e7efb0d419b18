//! A finished clip.

use std::path::Path;

use kinora_graph::Tensor;
use kinora_models::image::RgbImage;

use super::Report;
use crate::video::{FrameRate, VideoError, VideoFile, VideoOptions, WrittenVideo};

/// A finished clip.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Clip {
    /// Its frames.
    pub frames: Vec<RgbImage>,
    /// What the frames were decoded from: f32 `[frames, height, width, channels]`, the clip's height and width divided by the
    /// autoencoder's [`pixels_per_latent`](kinora_models::networks::vae::VaeConfig::pixels_per_latent).
    pub latents: Tensor,
    /// How it was made.
    pub report: Report,
}

impl Clip {
    /// Writes the clip to a file, in the format that its extension names: `.mp4`, `.gif`, `.png` (numbered files) or `.y4m`.
    /// It plays at the frame rate of [`Settings::fps`](field@super::Settings::fps). A file that exists is left alone.
    ///
    /// # Errors
    /// As [`Clip::save_with`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<WrittenVideo, VideoError> {
        self.save_with(path, &self.video_options()?)
    }

    /// Writes the clip to a file, as the options say.
    ///
    /// ```no_run
    /// # fn example(clip: &kinora::image_to_video::Clip) -> Result<(), kinora::video::VideoError> {
    /// clip.save_with("clip.mp4", &clip.video_options()?.quality(95).overwrite(true))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the extension names no format, the file exists and may not be overwritten, it cannot be written, the disk is full, or the format
    /// does not hold frames of this size. Nothing half-written is left behind.
    pub fn save_with(
        &self,
        path: impl AsRef<Path>,
        options: &VideoOptions,
    ) -> Result<WrittenVideo, VideoError> {
        let mut file = VideoFile::create(path, options)?;
        for frame in &self.frames {
            file.write_frame(frame)?;
        }
        file.finish()
    }

    /// The options that [`Clip::save`] writes with.
    ///
    /// # Errors
    /// If [`Settings::fps`](field@super::Settings::fps) is a rate that no file plays at.
    pub fn video_options(&self) -> Result<VideoOptions, VideoError> {
        let rate = FrameRate::new(self.report.settings.fps as f64)?;
        Ok(VideoOptions::new(rate).frames(self.frames.len()))
    }
}
