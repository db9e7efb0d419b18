//! `UNet2DConditionModel`: the denoising network of Stable Diffusion 1.5, 2.1, Turbo and XL, and of latent consistency models.
//!
//! Every weight has the name that it has in diffusers' files. Time embedding and context are inputs of their own: if they are
//! known in the clip phase, so are their projections in every block, and a step does not repeat them.

mod config;
mod time;
mod transformer;

pub(super) use config::FIXED_LAYERS;
pub use config::Unet2dConfig;
pub use time::{AddedConditions, TimeInputs, time_embedding};

use kinora_graph::{DType, GraphBuilder, GraphError, ValueId};

use super::{
    NetworkError,
    layers::Layers,
    memory::Memory,
    resnet::{Resnet, resnet},
    step_cache::Extent,
    unet_blocks::{BlockLayers, Residuals},
};
use config::SETTINGS;
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
pub(super) struct Conditions {
    time: ValueId,
    context: ValueId,
    linear_projection: bool,
    memory: Option<Memory>,
}

impl Conditions {
    /// Those of the inputs, if these fit the configuration.
    pub(super) fn new(
        g: &GraphBuilder,
        config: &Unet2dConfig,
        inputs: &Unet2dInputs,
    ) -> Result<Self, NetworkError> {
        config.check()?;
        let &Unet2dInputs { sample, time, context } = inputs;
        let channels = g.shape(context).channels();
        SETTINGS.agrees("cross_attention_dim", config.context_channels()?, ("the context", channels))?;
        let channels = g.shape(sample).channels();
        SETTINGS.agrees("in_channels", config.in_channels, ("the sample", channels))?;
        Ok(Conditions { time, context, linear_projection: config.use_linear_projection, memory: None })
    }
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
    unet2d_with(g, config, dtype, inputs, None, None)
}

/// The same with what a [ControlNet](super::controlnet) adds, and with a memory of the frames before.
///
/// # Errors
/// As [`unet2d`]; if the residuals are not those of a network of this shape.
pub fn unet2d_with(
    g: &mut GraphBuilder,
    config: &Unet2dConfig,
    dtype: DType,
    inputs: &Unet2dInputs,
    added: Option<&Residuals>,
    memory: Option<Memory>,
) -> Result<ValueId, NetworkError> {
    let conditions = Conditions { memory, ..Conditions::new(g, config, inputs)? };
    let shape = config.shape()?;
    if let Some(added) = added {
        config.fits_residuals(&shape, added.down.len())?;
    }
    Ok(shape.build(&mut Layers { g, dtype }, inputs.sample, &conditions, added, Extent::Whole)?)
}
