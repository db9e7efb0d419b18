//! From images to the latents that are most likely theirs.

use kinora_graph::{DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId, op::Conv};

use super::{EPSILON, VaeConfig, attention::mid_attention, config::SETTINGS};
use crate::networks::{
    NetworkError,
    layers::Layers,
    resnet::{Resnet, conv_out, resnet},
};

/// What an encoder is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encode {
    /// Images at a time.
    pub images: usize,
    /// Pixels of an image from top to bottom.
    pub height: usize,
    /// Pixels of an image from left to right.
    pub width: usize,
    /// How weights and activations are stored; see [`VaeConfig::force_upcast`].
    pub dtype: DType,
}

/// The encoder as a graph.
///
/// Input: `image [images, height, width, channels]` from −1 to 1. Result: `latents [images, height', width', channels]`,
/// the mode of the distribution that the encoder gives, **not** multiplied by [`VaeConfig::scaling_factor`].
///
/// # Errors
/// If no network can be built from the configuration and the size.
pub fn encoder(config: &VaeConfig, request: &Encode) -> Result<Graph, NetworkError> {
    config.check()?;
    let &Encode { images, height, width, dtype } = request;
    let mut g = GraphBuilder::new("vae_encoder");
    let image =
        g.input("image", TensorType::new(dtype, [images, height, width, config.in_channels]), Phase::Step)?;
    let latents = encode(&mut Layers { g: &mut g, dtype }, image, config)?;
    g.output("latents", latents)?;
    SETTINGS.sized(g.finish(), "block_out_channels")
}

/// Adds the encoder to a graph: from pixels of −1 to 1 to latents.
pub(crate) fn encode(l: &mut Layers<'_>, image: ValueId, config: &VaeConfig) -> Result<ValueId, GraphError> {
    let moments = l.scope("encoder", |l| moments(l, image, config))?;
    mode(l, moments, config.latent_channels)
}

/// Mean and logarithm of the variance of every latent, before the last mixing of channels.
fn moments(l: &mut Layers<'_>, image: ValueId, config: &VaeConfig) -> Result<ValueId, GraphError> {
    let mut x = l.conv3x3("conv_in", image, config.block_out_channels[0])?;
    let last = config.block_out_channels.len() - 1;
    for (level, &channels) in config.block_out_channels.iter().enumerate() {
        x = l.scope(format!("down_blocks.{level}"), |l| {
            down_block(l, x, channels, config.layers_per_block, level < last)
        })?;
    }
    x = l.scope("mid_block", |l| mid_block(l, x))?;
    conv_out(l, x, EPSILON, 2 * config.latent_channels)
}

fn down_block(
    l: &mut Layers<'_>,
    mut x: ValueId,
    channels: usize,
    layers: usize,
    halves: bool,
) -> Result<ValueId, GraphError> {
    for layer in 0..layers {
        x = l.scope(format!("resnets.{layer}"), |l| resnet(l, x, &block(channels)))?;
    }
    if !halves {
        return Ok(x);
    }
    // Padded below and at the right alone, unlike the UNet's.
    let half = Conv { padding: [[0, 0], [0, 1], [0, 1]], ..Conv::spatial([3, 3], 2, 0) };
    l.conv("downsamplers.0.conv", x, channels, half)
}

fn mid_block(l: &mut Layers<'_>, x: ValueId) -> Result<ValueId, GraphError> {
    let block = block(l.channels(x));
    let x = l.scope("resnets.0", |l| resnet(l, x, &block))?;
    let x = l.scope("attentions.0", |l| mid_attention(l, x))?;
    l.scope("resnets.1", |l| resnet(l, x, &block))
}

fn block(out: usize) -> Resnet {
    Resnet { out, epsilon: EPSILON, time: None }
}

/// The distribution's mode is its mean: the first half of the channels. The rest is not computed.
fn mode(l: &mut Layers<'_>, moments: ValueId, latents: usize) -> Result<ValueId, GraphError> {
    let weight = l.parameter("quant_conv.weight", &[2 * latents, 1, 1, 1, 2 * latents])?;
    let bias = l.parameter("quant_conv.bias", &[2 * latents])?;
    let weight = l.g.slice("quant_conv.weight.mean", weight, 0, 0, latents)?;
    let bias = l.g.slice("quant_conv.bias.mean", bias, 0, 0, latents)?;
    l.g.conv("quant_conv", moments, weight, Some(bias), Conv::spatial([1, 1], 1, 0))
}
