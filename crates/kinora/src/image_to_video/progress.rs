//! The progress of a clip.

use std::ops::ControlFlow;

use serde::Serialize;

use super::{GenerateError, Preview};

/// A stage of making a clip, or of live video.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Measuring a GPU's kernels against each other, if [`Tuning::Measure`](kinora_runtime::Tuning::Measure) asks for it: before
    /// everything else, and once for a shape.
    Tune,
    /// Measuring how large activations are, in f16, in [`Precision::Fp8`](super::Precision::Fp8): by the denoising steps of a model's
    /// first clip, or by some of its own pictures before the first frame of live video. It comes after loading what that takes, and
    /// before everything else but the prompt.
    Calibrate,
    /// Compiling a GPU's kernels, while weights are loaded. It comes only for those that were not compiled before.
    Compile,
    /// Reading and packing the weights of a part. It precedes each of the other stages: parts are loaded when they are
    /// needed and dropped afterwards, unless they are kept from one clip to the next.
    Load,
    /// What the photo shows, as an embedding.
    EncodeImage,
    /// The photo as latents.
    EncodeLatents,
    /// The denoising steps.
    Denoise,
    /// From latents to frames.
    Decode,
    /// What a prompt says, as an embedding.
    EncodeText,
    /// A frame of live video, from bytes to bytes.
    Draw,
}

impl Stage {
    /// Its name, as in a report.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Tune => "tune",
            Stage::Calibrate => "calibrate",
            Stage::Compile => "compile",
            Stage::Load => "load",
            Stage::EncodeImage => "encode_image",
            Stage::EncodeLatents => "encode_latents",
            Stage::Denoise => "denoise",
            Stage::Decode => "decode",
            Stage::EncodeText => "encode_text",
            Stage::Draw => "draw",
        }
    }

    /// The stage in words.
    pub fn describe(self) -> &'static str {
        match self {
            Stage::Tune => "measuring kernels",
            Stage::Calibrate => "measuring activations",
            Stage::Compile => "compiling kernels",
            Stage::Load => "loading weights",
            Stage::EncodeImage => "reading the photo",
            Stage::EncodeLatents => "encoding the photo",
            Stage::Denoise => "denoising",
            Stage::Decode => "decoding frames",
            Stage::EncodeText => "reading the prompt",
            Stage::Draw => "drawing frames",
        }
    }
}

/// How far a clip is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// The stage that runs.
    pub stage: Stage,
    /// How much of it is done: kernels measured or compiled, parts loaded, images encoded, steps taken, frames decoded.
    /// 0 when the stage begins.
    pub done: usize,
    /// How much there is in all.
    pub total: usize,
    /// What the clip looks like so far, after a denoising step.
    pub preview: Option<Preview<'a>>,
}

/// An observer: called as a clip progresses, and able to stop it. Not every call is from the thread that makes the clip.
pub type Observe<'a> = dyn FnMut(&Progress<'_>) -> ControlFlow<()> + Send + 'a;

/// Calls the observer; if it breaks, the clip is cancelled.
pub(super) fn tell(observe: &mut Observe<'_>, progress: Progress<'_>) -> Result<(), GenerateError> {
    match observe(&progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(GenerateError::Cancelled),
    }
}
