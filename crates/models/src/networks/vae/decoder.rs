//! From latents to the frames of a clip, or to images.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId,
    op::{Conv, Interpolation},
};

use super::{EPSILON, VaeConfig, attention::mid_attention, config::SETTINGS};
use crate::networks::{
    NetworkError,
    layers::Layers,
    pixels::{Pixels, bytes},
    resnet::{Resnet, Weighs, conv_out, resnet, spatio_temporal_resnet},
};

/// Added to the variances of the norms over all frames.
const TEMPORAL_EPSILON: f32 = 1e-5;

/// What a decoder is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// Frames decoded together. If the decoder is temporal they see each other: other chunks of a clip give other pixels.
    pub frames: usize,
    /// Latents from top to bottom; see [`VaeConfig::pixels_per_latent`].
    pub height: usize,
    /// Latents from left to right.
    pub width: usize,
    /// How weights and activations are stored.
    pub dtype: DType,
    /// Whether the latents are those of the diffusion model, which are divided by [`VaeConfig::scaling_factor`] first.
    pub scaled: bool,
    /// What the frames are made of.
    pub pixels: Pixels,
}

/// The decoder as a graph. Input: `latents [frames, height, width, channels]`. Result: `frames [frames, height', width',
/// channels]`.
///
/// # Errors
/// If no network can be built from the configuration and the size.
pub fn decoder(config: &VaeConfig, request: &Decode) -> Result<Graph, NetworkError> {
    config.check()?;
    let &Decode { frames, height, width, dtype, .. } = request;
    let mut g = GraphBuilder::new("vae_decoder");
    let ty = TensorType::new(dtype, [frames, height, width, config.latent_channels]);
    let mut x = g.input("latents", ty, Phase::Step)?;
    if request.scaled {
        x = g.scale("latents.unscaled", x, 1.0 / config.scaling_factor, 0.0)?;
    }
    x = decode(&mut Layers { g: &mut g, dtype }, x, config, frames)?;
    if request.pixels == Pixels::Bytes {
        x = bytes(&mut g, x, 127.5, 127.5)?;
    }
    g.output("frames", x)?;
    SETTINGS.sized(g.finish(), "block_out_channels")
}

/// Adds the decoder to a graph: from latents to pixels of about −1 to 1.
pub(crate) fn decode(
    l: &mut Layers<'_>,
    latents: ValueId,
    config: &VaeConfig,
    frames: usize,
) -> Result<ValueId, GraphError> {
    let clip = config.temporal.then_some(frames);
    let x = match clip {
        Some(_) => latents,
        None => l.conv("post_quant_conv", latents, config.latent_channels, Conv::spatial([1, 1], 1, 0))?,
    };
    l.scope("decoder", |l| pixels(l, x, config, clip))
}

/// `clip` is the number of frames that see each other, if they do.
fn pixels(
    l: &mut Layers<'_>,
    latents: ValueId,
    config: &VaeConfig,
    clip: Option<usize>,
) -> Result<ValueId, GraphError> {
    let layers = config.layers_per_block;
    let mut x = l.conv3x3("conv_in", latents, config.deepest())?;
    x = l.scope("mid_block", |l| mid_block(l, x, layers, clip))?;
    let last = config.block_out_channels.len() - 1;
    for (level, &channels) in config.block_out_channels.iter().rev().enumerate() {
        x = l.scope(format!("up_blocks.{level}"), |l| {
            up_block(l, x, channels, layers + 1, clip, level < last)
        })?;
    }
    x = conv_out(l, x, EPSILON, config.out_channels)?;
    match clip {
        Some(frames) => l.conv("time_conv_out", x, config.out_channels, Conv::temporal(3, frames)),
        None => Ok(x),
    }
}

/// Of a temporal decoder, diffusers makes as many residual blocks as the other levels have, but runs only those that its one
/// attention stands between: the first two.
fn mid_block(
    l: &mut Layers<'_>,
    x: ValueId,
    layers: usize,
    clip: Option<usize>,
) -> Result<ValueId, GraphError> {
    let channels = l.channels(x);
    let x = l.scope("resnets.0", |l| block(l, x, channels, clip))?;
    if layers == 1 && clip.is_some() {
        return Ok(x);
    }
    let x = l.scope("attentions.0", |l| mid_attention(l, x))?;
    l.scope("resnets.1", |l| block(l, x, channels, clip))
}

fn up_block(
    l: &mut Layers<'_>,
    mut x: ValueId,
    channels: usize,
    layers: usize,
    clip: Option<usize>,
    doubles: bool,
) -> Result<ValueId, GraphError> {
    for layer in 0..layers {
        x = l.scope(format!("resnets.{layer}"), |l| block(l, x, channels, clip))?;
    }
    if !doubles {
        return Ok(x);
    }
    let size = [l.g.shape(x)[1], l.g.shape(x)[2]].map(|extent| extent.saturating_mul(2));
    x = l.g.upsample("upsamplers.0", x, Interpolation::Nearest, size)?;
    l.conv3x3("upsamplers.0.conv", x, channels)
}

fn block(l: &mut Layers<'_>, x: ValueId, out: usize, clip: Option<usize>) -> Result<ValueId, GraphError> {
    let spatial = Resnet { out, epsilon: EPSILON, time: None };
    match clip {
        Some(frames) => spatio_temporal_resnet(l, x, &spatial, TEMPORAL_EPSILON, frames, Weighs::Temporal),
        None => resnet(l, x, &spatial),
    }
}
