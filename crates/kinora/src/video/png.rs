//! Numbered PNG files, which appear together or not at all.

use std::{
    io,
    path::{Path, PathBuf},
};

use image::{
    ExtendedColorType, ImageEncoder,
    codecs::png::{CompressionType, FilterType, PngEncoder},
};

use super::{
    RgbImage, VideoError, VideoOptions, WrittenVideo,
    error::EncodeError,
    output::{check_free, unwritable},
};
use crate::files::{self, Inputs, Published, Sequence, manifest_path, numbered};

/// Frames as `clip-0001.png`, `clip-0002.png` … for the path `clip.png`, and the manifest `.clip.png.kinora`.
///
/// Overwriting replaces the whole clip: frames that an earlier clip has and the new one does not are removed, since programs that read the
/// sequence would take them for its end. The manifest tells them from other files with such names, which are left alone.
pub(super) struct PngSequence {
    overwrite: bool,
    inputs: Inputs,
    frames: Sequence,
    unrestored: Vec<PathBuf>,
}

impl PngSequence {
    pub(super) fn create(path: &Path, options: &VideoOptions, inputs: Inputs) -> Result<Self, VideoError> {
        let overwrite = options.overwrite;
        let unrestored = files::sweep(files::folder(path));
        for number in 1..=options.frames.unwrap_or(1) {
            check_free(&numbered(path, number), overwrite, &inputs)?;
        }
        let manifest = manifest_path(path);
        check_free(&manifest, overwrite || files::is_manifest(&manifest), &inputs)?;
        let frames = Sequence::create(path).map_err(|error| unwritable(path, error))?;
        Ok(Self { overwrite, inputs, frames, unrestored })
    }

    pub(super) fn write_frame(&mut self, frame: &RgbImage) -> Result<(), EncodeError> {
        Ok(self.frames.push(&encode(frame)?)?)
    }

    /// Gives every file its name; on an error, puts back what was there before.
    pub(super) fn publish(self) -> Result<WrittenVideo, VideoError> {
        let Published { files, left } = self.frames.publish(self.overwrite, &self.inputs)?;
        Ok(WrittenVideo { frames: files.len(), files, left, unrestored: self.unrestored })
    }
}

/// The bytes of a file. In memory, since the encoder would hide the kind of an I/O error.
pub(crate) fn encode(frame: &RgbImage) -> io::Result<Vec<u8>> {
    let (Ok(width), Ok(height)) = (u32::try_from(frame.width()), u32::try_from(frame.height())) else {
        return Err(io::Error::other("the frame is wider or higher than 2³² pixels"));
    };
    let mut bytes = Vec::new();
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive)
        .write_image(frame.bytes(), width, height, ExtendedColorType::Rgb8)
        .map_err(io::Error::other)?;
    Ok(bytes)
}
