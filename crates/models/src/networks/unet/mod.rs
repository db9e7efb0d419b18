//! `UNetSpatioTemporalConditionModel`: the denoising network of Stable Video Diffusion.
//!
//! Every weight has the name that it has in diffusers' files.

mod config;
#[cfg(test)]
mod tests;
mod time;
mod transformer;

pub use config::{PerBlock, UnetConfig};
pub use time::time_embedding;

pub(super) use config::SETTINGS;

use kinora_graph::{DType, GraphBuilder, GraphError, Tensor, ValueId};

use super::{
    NetworkError,
    layers::Layers,
    resnet::{Resnet, Weighs, spatio_temporal_resnet},
    step_cache::Extent,
    unet_blocks::BlockLayers,
};
use transformer::transformer;

/// What the network reads.
#[derive(Clone, Copy, Debug)]
pub struct UnetInputs {
    /// Noisy latents, scaled, and image latents: `[batch·frames, height, width, in_channels]` of the network's type.
    pub sample: ValueId,
    /// The result of [`time_embedding`], `[1 or batch·frames, 4 · first block's channels]`.
    pub time: ValueId,
    /// The image embedding, `[batch, tokens, cross_attention_dim]`, of the network's type; one serves all frames.
    pub context: ValueId,
    /// Frames of a clip.
    pub frames: usize,
}

/// What the blocks read beside the activations.
struct Conditions {
    /// The time embedding, `[1 or images, width]`.
    time: ValueId,
    /// The image embedding, `[batch, tokens, channels]`.
    context: ValueId,
    /// Frames of a clip.
    frames: usize,
    /// 0, 1, 2 … to the last frame.
    frame_numbers: ValueId,
}

impl BlockLayers for Conditions {
    fn resnet(
        &self,
        l: &mut Layers<'_>,
        x: ValueId,
        out: usize,
        epsilon: f32,
    ) -> Result<ValueId, GraphError> {
        let resnet = Resnet { out, epsilon, time: Some(self.time) };
        spatio_temporal_resnet(l, x, &resnet, epsilon, self.frames, Weighs::Spatial)
    }

    fn transformer(
        &self,
        l: &mut Layers<'_>,
        x: ValueId,
        heads: usize,
        depth: usize,
    ) -> Result<ValueId, GraphError> {
        transformer(l, x, heads, depth, self)
    }
}

/// No clip comes near it; it keeps a wrong argument from asking for a constant without end.
pub(crate) const MAX_FRAMES: usize = 1 << 12;

/// Adds the network to a graph. The result is the prediction, `[batch·frames, height, width, out_channels]`.
///
/// # Errors
/// If the configuration is refused or the inputs do not fit it.
pub fn unet(
    g: &mut GraphBuilder,
    config: &UnetConfig,
    dtype: DType,
    inputs: &UnetInputs,
) -> Result<ValueId, NetworkError> {
    unet_with(g, config, dtype, inputs, Extent::Whole)
}

/// The same, or as much of it as a step computes.
///
/// # Errors
/// As [`unet`]; if there are no outer blocks, or more than the network has blocks.
pub fn unet_with(
    g: &mut GraphBuilder,
    config: &UnetConfig,
    dtype: DType,
    inputs: &UnetInputs,
    extent: Extent,
) -> Result<ValueId, NetworkError> {
    config.check()?;
    let shape = config.shape()?;
    if let Some(blocks) = extent.blocks() {
        SETTINGS.within("the number of outer blocks", blocks, 1..=shape.skip_count())?;
    }
    let l = &mut Layers { g, dtype };
    let conditions = &conditions(l, inputs)?;
    Ok(shape.build(l, inputs.sample, conditions, None, extent)?)
}

fn conditions(l: &mut Layers<'_>, inputs: &UnetInputs) -> Result<Conditions, NetworkError> {
    let UnetInputs { sample, time, context, frames } = *inputs;
    let images = l.g.shape(sample).first().copied().unwrap_or(0);
    SETTINGS.within("the number of frames", frames, 1..=MAX_FRAMES)?;
    SETTINGS.require(images > 0 && images.is_multiple_of(frames), "the number of images", images, || {
        format!("it must be a multiple of the {frames} frames of a clip")
    })?;
    let numbers: Vec<f32> = (0..frames).map(|frame| frame as f32).collect();
    let frame_numbers = l.g.constant("frame_numbers", Tensor::from_slice([frames], &numbers)?)?;
    Ok(Conditions { time, context, frames, frame_numbers })
}
