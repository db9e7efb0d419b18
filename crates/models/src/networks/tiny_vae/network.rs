//! From images to latents and back.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId,
    op::{Activation, Conv, Interpolation},
};

use super::{TinyVaeConfig, config::SETTINGS};
use crate::networks::{
    NetworkError,
    layers::Layers,
    pixels::{Pixels, bytes},
};

/// Latents beyond this are brought nearer: the decoder reads `LIMIT · tanh(x / LIMIT)`.
const LIMIT: f32 = 3.0;

/// What an encoder or a decoder is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Images at a time. Each is encoded or decoded by itself.
    pub images: usize,
    /// What the network reads, from top to bottom: pixels for an encoder, latents for a decoder.
    pub height: usize,
    /// The same from left to right.
    pub width: usize,
    /// How weights and activations are stored.
    pub dtype: DType,
    /// What images are made of.
    pub pixels: Pixels,
}

/// The encoder as a graph.
///
/// Input: `image [images, height, width, channels]`. Result: `latents [images, height', width', channels]`, **not**
/// multiplied by [`TinyVaeConfig::scaling_factor`].
///
/// # Errors
/// If no network can be built from the configuration and the size.
pub fn encoder(config: &TinyVaeConfig, batch: &Batch) -> Result<Graph, NetworkError> {
    config.check()?;
    let &Batch { images, height, width, dtype, pixels } = batch;
    let mut g = GraphBuilder::new("tiny_vae_encoder");
    let ty = TensorType::new(pixels.dtype(dtype), [images, height, width, config.in_channels]);
    let image = g.input("image", ty, Phase::Step)?;
    // The first layer reads numbers from 0 to 1.
    let x = match pixels {
        Pixels::Signed => g.scale("image.range", image, 0.5, 0.5)?,
        Pixels::Bytes => {
            let x = g.cast("image.cast", image, dtype)?;
            g.scale("image.range", x, 1.0 / 255.0, 0.0)?
        }
    };
    let latents = encode(&mut Layers { g: &mut g, dtype }, x, config)?;
    g.output("latents", latents)?;
    SETTINGS.sized(g.finish(), "encoder_block_out_channels")
}

/// The decoder as a graph.
///
/// Input: `latents [images, height, width, channels]`, divided by [`TinyVaeConfig::scaling_factor`]. Result:
/// `frames [images, height', width', channels]`.
///
/// # Errors
/// If no network can be built from the configuration and the size.
pub fn decoder(config: &TinyVaeConfig, batch: &Batch) -> Result<Graph, NetworkError> {
    config.check()?;
    let &Batch { images, height, width, dtype, pixels } = batch;
    let mut g = GraphBuilder::new("tiny_vae_decoder");
    let ty = TensorType::new(dtype, [images, height, width, config.latent_channels]);
    let latents = g.input("latents", ty, Phase::Step)?;
    let x = decode(&mut Layers { g: &mut g, dtype }, latents, config)?;
    let frames = match pixels {
        Pixels::Signed => g.scale("frames.range", x, 2.0, -1.0)?,
        Pixels::Bytes => bytes(&mut g, x, 255.0, 0.0)?,
    };
    g.output("frames", frames)?;
    SETTINGS.sized(g.finish(), "decoder_block_out_channels")
}

/// Adds the encoder to a graph: from pixels of 0 to 1 to latents.
pub(crate) fn encode(
    l: &mut Layers<'_>,
    pixels: ValueId,
    config: &TinyVaeConfig,
) -> Result<ValueId, GraphError> {
    l.scope("encoder", |l| latents(l, pixels, config))
}

/// Adds the decoder to a graph: from latents to pixels of about 0 to 1.
pub(crate) fn decode(
    l: &mut Layers<'_>,
    latents: ValueId,
    config: &TinyVaeConfig,
) -> Result<ValueId, GraphError> {
    let x = l.g.scale("latents.range", latents, 1.0 / LIMIT, 0.0)?;
    let x = l.g.activate("latents.tanh", x, Activation::Tanh)?;
    let x = l.g.scale("latents.limited", x, LIMIT, 0.0)?;
    l.scope("decoder", |l| image(l, x, config))
}

/// Names a network's layers by their place in it.
struct Numbers(usize);

impl Numbers {
    fn next(&mut self) -> String {
        self.0 += 1;
        format!("layers.{}", self.0 - 1)
    }
}

fn latents(l: &mut Layers<'_>, mut x: ValueId, config: &TinyVaeConfig) -> Result<ValueId, GraphError> {
    let (mut numbers, width) = (Numbers(0), config.encoder_width());
    for (level, &blocks) in config.num_encoder_blocks.iter().enumerate() {
        let name = numbers.next();
        x = match level {
            0 => l.conv3x3(&name, x, width)?,
            _ => l.conv_without_bias(&name, x, width, Conv::spatial([3, 3], 2, 1))?,
        };
        x = residual_blocks(l, x, blocks, &mut numbers)?;
    }
    l.conv3x3(&numbers.next(), x, config.latent_channels)
}

fn image(l: &mut Layers<'_>, latents: ValueId, config: &TinyVaeConfig) -> Result<ValueId, GraphError> {
    let (mut numbers, width) = (Numbers(0), config.decoder_width());
    let mut x = l.conv3x3(&numbers.next(), latents, width)?;
    x = l.g.activate(&numbers.next(), x, Activation::Relu)?;
    let last = config.num_decoder_blocks.len() - 1;
    for (level, &blocks) in config.num_decoder_blocks.iter().enumerate() {
        x = residual_blocks(l, x, blocks, &mut numbers)?;
        if level < last {
            let size = [l.g.shape(x)[1], l.g.shape(x)[2]].map(|extent| extent.saturating_mul(2));
            x = l.g.upsample(&numbers.next(), x, Interpolation::Nearest, size)?;
            x = l.conv_without_bias(&numbers.next(), x, width, Conv::spatial([3, 3], 1, 1))?;
        }
    }
    l.conv3x3(&numbers.next(), x, config.out_channels)
}

/// Three convolutions around a residual, each block's result activated: `AutoencoderTinyBlock`s.
fn residual_blocks(
    l: &mut Layers<'_>,
    mut x: ValueId,
    blocks: usize,
    numbers: &mut Numbers,
) -> Result<ValueId, GraphError> {
    let width = l.channels(x);
    for _ in 0..blocks {
        x = l.scope(numbers.next(), |l| {
            let h = l.conv3x3("conv.0", x, width)?;
            let h = l.g.activate("conv.1", h, Activation::Relu)?;
            let h = l.conv3x3("conv.2", h, width)?;
            let h = l.g.activate("conv.3", h, Activation::Relu)?;
            let h = l.conv3x3("conv.4", h, width)?;
            let h = l.g.add("residual", h, x)?;
            l.g.activate("fuse", h, Activation::Relu)
        })?;
    }
    Ok(x)
}
