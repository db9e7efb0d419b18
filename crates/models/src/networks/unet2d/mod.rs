//! `UNet2DConditionModel`: the denoising network of Stable Diffusion 1.5, 2.1, Turbo and XL, and of latent consistency models.
//!
//! Every weight has the name that it has in diffusers' files. Time embedding and context are inputs of their own: if they are
//! known in the clip phase, so are their projections in every block, and a step does not repeat them.

mod config;
mod time;
mod transformer;

pub use config::Unet2dConfig;
pub use time::{AddedConditions, TimeInputs, time_embedding};

use kinora_graph::{DType, GraphBuilder, GraphError, ValueId};

use super::{
    NetworkError,
    layers::Layers,
    resnet::{Resnet, resnet},
    unet_blocks::BlockLayers,
};
use transformer::transformer;

/// What the network reads.
#[derive(Clone, Copy, Debug)]
pub struct Unet2dInputs {
    /// Noisy latents, scaled: `[images, height, width, in_channels]` of the network's type.
    pub sample: ValueId,
    /// The result of [`time_embedding`], `[1 or images, 4 · first block's channels]`.
    pub time: ValueId,
    /// The prompts, `[images or a divisor of it, tokens, cross_attention_dim]`, of the network's type: each serves as many
    /// consecutive images.
    pub context: ValueId,
}

/// What the blocks read beside the activations.
struct Conditions {
    time: ValueId,
    context: ValueId,
    linear_projection: bool,
}

impl BlockLayers for Conditions {
    fn resnet(
        &self,
        l: &mut Layers<'_>,
        x: ValueId,
        out: usize,
        epsilon: f32,
    ) -> Result<ValueId, GraphError> {
        resnet(l, x, &Resnet { out, epsilon, time: Some(self.time) })
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

/// Adds the network to a graph. The result is the prediction, `[images, height, width, out_channels]`.
///
/// # Errors
/// If the configuration is refused or the inputs do not fit it.
pub fn unet2d(
    g: &mut GraphBuilder,
    config: &Unet2dConfig,
    dtype: DType,
    inputs: &Unet2dInputs,
) -> Result<ValueId, NetworkError> {
    config.check()?;
    let &Unet2dInputs { sample, time, context } = inputs;
    let channels = g.shape(context).channels();
    config.fits("cross_attention_dim", config.context_channels()?, "the context", channels)?;
    let channels = g.shape(sample).channels();
    config.fits("in_channels", config.in_channels, "the sample", channels)?;
    let conditions = Conditions { time, context, linear_projection: config.use_linear_projection };
    Ok(config.shape()?.build(&mut Layers { g, dtype }, sample, &conditions)?)
}
