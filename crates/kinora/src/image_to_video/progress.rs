//! What a caller sees while a clip is made.

use std::ops::ControlFlow;

use kinora_graph::Tensor;
use serde::Serialize;

use super::GenerateError;

/// A stage of making a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Measuring a GPU's kernels against each other, where [`Tuning::Measure`](super::Tuning::Measure) asks for it: before
    /// everything else, and once for a shape.
    Tune,
    /// Compiling a GPU's kernels, while weights are loaded. It comes where they were not compiled before.
    Compile,
    /// Reading and packing the weights of a part. It comes before each of the others: parts are loaded when they are
    /// needed, and dropped after it, unless they are kept from one clip to the next.
    Load,
    /// What the photo shows, as an embedding.
    EncodeImage,
    /// The photo as latents.
    EncodeLatents,
    /// The denoising steps.
    Denoise,
    /// From latents to frames.
    Decode,
}

impl Stage {
    /// Its name, as in a report.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Tune => "tune",
            Stage::Compile => "compile",
            Stage::Load => "load",
            Stage::EncodeImage => "encode_image",
            Stage::EncodeLatents => "encode_latents",
            Stage::Denoise => "denoise",
            Stage::Decode => "decode",
        }
    }

    /// The stage in words.
    pub fn describe(self) -> &'static str {
        match self {
            Stage::Tune => "measuring kernels",
            Stage::Compile => "compiling kernels",
            Stage::Load => "loading weights",
            Stage::EncodeImage => "looking at the photo",
            Stage::EncodeLatents => "encoding the photo",
            Stage::Denoise => "denoising",
            Stage::Decode => "decoding frames",
        }
    }
}

/// How far a clip is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The stage that runs.
    pub stage: Stage,
    /// What is done of it: kernels measured or compiled, parts loaded, images encoded, steps taken, frames decoded. 0 when
    /// the stage begins.
    pub done: usize,
    /// What there is to do.
    pub total: usize,
    /// The network's idea of the clean latents after a denoising step: f32 `[frames, height, width, channels]`, the clip's
    /// height and width divided by the autoencoder's [`pixels_per_latent`](kinora_models::networks::vae::VaeConfig::pixels_per_latent).
    pub preview: Option<&'a Tensor>,
}

/// Is told how far a clip is, and may stop it. Not every call is from the thread that makes the clip.
pub type Observe<'a> = dyn FnMut(&Progress<'_>) -> ControlFlow<()> + Send + 'a;

/// Tells the observer; where it wants no more, that is an error.
pub(super) fn tell(observe: &mut Observe<'_>, progress: Progress<'_>) -> Result<(), GenerateError> {
    match observe(&progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(GenerateError::Cancelled),
    }
}
