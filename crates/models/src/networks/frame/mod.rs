//! One frame of live video: bytes in, bytes out, and everything between them in one graph.
//!
//! A device runs a graph as one launch, so a frame costs the host one call. Prompts and timesteps are inputs of the clip
//! phase: their keys, values and embeddings are computed when they change, not for every frame.

mod autoencoder;
mod input;
mod parts;
mod steps;
mod stream;

pub use autoencoder::Autoencoder;
pub use input::FrameInput;
pub use parts::{CONTROLNET, Parts, UNET, VAE};
pub use stream::{StreamConfig, StreamGuidance};

use kinora_graph::{DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId, op::TemporalBlend};

use super::{
    controlnet::ControlNetConfig,
    denoise::SamplerNeeds,
    error::{MAX_EXTENT, NetworkError, Settings},
    unet2d::Unet2dConfig,
};

const SETTINGS: Settings = Settings { network: "frame", class: "UNet2DConditionModel" };
/// More steps than any frame is given: each is a UNet of its own in the graph.
pub const MAX_STEPS: usize = 50;
/// More frames than are worth remembering: each costs as much attention as the frame itself.
pub const MAX_MEMORY: usize = 4;
/// Original size, crop and target size, of Stable Diffusion XL.
const TIME_IDS: usize = 6;

/// What a frame starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// A picture, encoded and mixed with noise.
    Picture,
    /// Noise alone.
    Noise,
}

/// What the graph of a frame is built for.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameConfig {
    /// The denoising network.
    pub unet: Unet2dConfig,
    /// What turns pixels into latents, and latents into pixels.
    pub autoencoder: Autoencoder,
    /// Pixels from top to bottom.
    pub height: usize,
    /// Pixels from left to right.
    pub width: usize,
    /// The frames that come in, if they have another size.
    pub input: Option<FrameInput>,
    /// What it starts from.
    pub start: Start,
    /// Denoising steps, one after the other.
    pub steps: usize,
    /// Classifier-free guidance: the network runs on two halves, the unconditional one first.
    pub guided: bool,
    /// Tokens of a prompt.
    pub tokens: usize,
    /// What the sampler needs.
    pub sampler: SamplerNeeds,
    /// Blends the latents with those of the frame before.
    pub blended: bool,
    /// The network that steers the UNet by a picture.
    pub control: Option<ControlNetConfig>,
    /// How many previous frames self-attention sees; 0 for none.
    pub memory: usize,
    /// How the networks store weights and activations.
    pub dtype: DType,
}

impl FrameConfig {
    /// Builds the graph. Weights are named after their network and their name in its file: `unet.conv_in.weight`.
    ///
    /// Inputs, with `C` the latents' channels and `P` prompts, 2 if guided, the negative one first:
    ///
    /// | input | shape | when |
    /// | --- | --- | --- |
    /// | `prompts` | f32 `[P, tokens, cross_attention_dim]` | clip |
    /// | `pooled`, `time_ids`, of Stable Diffusion XL | f32 `[P, channels]`, `[P, 6]` | clip |
    /// | `guidance_embedding`, of models that were distilled with guidance | f32 `[1]`: the scale less 1 | clip |
    /// | `timesteps`, `input_scales` | f32 `[steps]` | clip |
    /// | `table` | f32 `[steps, 8]`, rows of [`StepCoefficients`](kinora_graph::op::StepCoefficients) | clip |
    /// | `mix` | f32 `[2]`: the weights of picture and noise at the start | clip |
    /// | `noise` | f32 `[1, height, width, C]` | clip |
    /// | `fresh`, if the sampler needs it | f32 `[steps, height, width, C]` | clip |
    /// | `guidance`, if guided | f32 `[1]` | clip |
    /// | `frame`, unless it starts from noise | bytes `[1, height, width, 3]`, or of the input's size | step |
    /// | `previous`, `blend`, if blended | f32 `[1, height, width, C]`, `[1]` | step |
    /// | `memory.fresh`, if frames are remembered | f32 `[1]`: 1 for the first frame, otherwise 0 | step |
    /// | `memory.…`, the same: [`rings`](crate::networks::memory::rings) | `[P, memory · tokens, channels]`, of `dtype` | step |
    /// | `control`, with a ControlNet | bytes `[1, height, width, conditioning_channels]` | step |
    /// | `control_scale`, with a ControlNet | f32 `[1]`: how much it steers | clip |
    ///
    /// Results: `frame`, bytes `[1, height, width, 3]`, `latents`, f32, those that were decoded, and the rings for the next frame.
    ///
    /// # Errors
    /// If a configuration is refused, the parts do not fit each other, or the size or the number of steps is out of range.
    pub fn build(&self) -> Result<Graph, NetworkError> {
        let shape = self.checked_shape()?;
        let mut builder = GraphBuilder::new("frame");
        let g = &mut builder;
        let noise = input(g, "noise", &shape, Phase::Clip)?;
        let latents = self.start(g, noise)?;
        let latents = self.denoised(g, latents, &shape)?;
        self.finish(g, latents)?;
        SETTINGS.sized(builder.finish(), "block_out_channels")
    }

    /// The graph of the steps alone: its input `latents`, of the step phase, are the noisy ones of the first step, and its result
    /// `latents` the denoised ones. The other inputs are those of a frame, without `mix` and `noise`.
    ///
    /// # Errors
    /// As [`FrameConfig::build`].
    pub fn denoiser(&self) -> Result<Graph, NetworkError> {
        let shape = self.checked_shape()?;
        let mut builder = GraphBuilder::new("frame");
        let g = &mut builder;
        let latents = input(g, "latents", &shape, Phase::Step)?;
        let latents = self.denoised(g, latents, &shape)?;
        g.output("latents", latents)?;
        SETTINGS.sized(builder.finish(), "block_out_channels")
    }

    /// Height and width of the latents.
    ///
    /// # Errors
    /// If the frame's size is not a multiple of what the networks halve.
    pub fn latent_size(&self) -> Result<[usize; 2], NetworkError> {
        let factor = self.autoencoder.pixels_per_latent();
        for (name, extent) in [("the height", self.height), ("the width", self.width)] {
            SETTINGS.within(name, extent, 1..=MAX_EXTENT)?;
            SETTINGS.require(extent.is_multiple_of(factor), name, extent, || {
                format!("it must be a multiple of {factor}")
            })?;
        }
        Ok([self.height / factor, self.width / factor])
    }

    /// The shape of a frame's latents, if all fits.
    fn checked_shape(&self) -> Result<[usize; 4], NetworkError> {
        self.unet.check()?;
        self.autoencoder.check()?;
        let [height, width] = self.latent_size()?;
        SETTINGS.within("the number of steps", self.steps, 1..=MAX_STEPS)?;
        SETTINGS.within("the number of tokens", self.tokens, 1..=MAX_EXTENT)?;
        SETTINGS.within("the number of remembered frames", self.memory, 0..=MAX_MEMORY)?;
        self.check_channels()?;
        if let Some(control) = &self.control {
            self.check_control(control)?;
        }
        if let Some(input) = &self.input {
            input.check(self.autoencoder.colours())?;
        }
        Ok([1, height, width, self.unet.in_channels])
    }

    fn check_channels(&self) -> Result<(), NetworkError> {
        let latents = self.autoencoder.latent_channels();
        for (setting, channels) in
            [("in_channels", self.unet.in_channels), ("out_channels", self.unet.out_channels)]
        {
            SETTINGS.require(channels == latents, setting, channels, || {
                format!("the autoencoder's latents have {latents} channels, and they must agree")
            })?;
        }
        Ok(())
    }

    /// Whether a ControlNet is one for the UNet and the autoencoder.
    fn check_control(&self, control: &ControlNetConfig) -> Result<(), NetworkError> {
        control.check()?;
        let unet = &self.unet;
        for (setting, got, expected) in [
            ("in_channels", control.unet.in_channels, unet.in_channels),
            ("cross_attention_dim", control.unet.context_channels()?, unet.context_channels()?),
            ("block_out_channels", control.unet.block_out_channels[0], unet.block_out_channels[0]),
            (
                "conditioning_embedding_out_channels",
                control.pixels_per_latent(),
                self.autoencoder.pixels_per_latent(),
            ),
        ] {
            control.agrees(setting, got, expected)?;
        }
        Ok(())
    }

    fn prompts(&self) -> usize {
        if self.guided { 2 } else { 1 }
    }

    /// The noisy latents of the first step, in f32.
    fn start(&self, g: &mut GraphBuilder, noise: ValueId) -> Result<ValueId, NetworkError> {
        let mix = input(g, "mix", &[2], Phase::Clip)?;
        let weight = g.slice("start.noise_weight", mix, 0, 1, 1)?;
        let noise = g.mul("start.noise", noise, weight)?;
        if self.start == Start::Noise {
            return Ok(noise);
        }
        let colours = self.autoencoder.colours();
        let frame = match &self.input {
            Some(input) => {
                let frame = g.input("frame", input.ty(colours), Phase::Step)?;
                input.fitted(g, frame, [self.width, self.height])?
            }
            None => {
                let ty = TensorType::new(DType::U8, [1, self.height, self.width, colours]);
                g.input("frame", ty, Phase::Step)?
            }
        };
        let picture = g.scope(VAE, |g| self.autoencoder.encode(g, frame, self.dtype))?;
        let weight = g.slice("start.picture_weight", mix, 0, 0, 1)?;
        let picture = g.mul("start.picture", picture, weight)?;
        Ok(g.add("start", picture, noise)?)
    }

    /// The latents after all steps.
    fn denoised(
        &self,
        g: &mut GraphBuilder,
        mut latents: ValueId,
        shape: &[usize; 4],
    ) -> Result<ValueId, NetworkError> {
        let conditions = self.conditions(g)?;
        let sampler = self.sampler(g, shape)?;
        let mut denoised = None;
        for step in 0..self.steps {
            let results = self.step(g, step, (latents, denoised), &conditions, &sampler)?;
            (latents, denoised) = (results[0], results.get(1).copied());
        }
        Ok(latents)
    }

    /// From the denoised latents to the results.
    fn finish(&self, g: &mut GraphBuilder, mut latents: ValueId) -> Result<(), GraphError> {
        if self.blended {
            let shape = g.shape(latents).clone();
            let previous = input(g, "previous", &shape, Phase::Step)?;
            let strength = input(g, "blend", &[1], Phase::Step)?;
            latents = g.temporal_blend("blended", latents, previous, strength, TemporalBlend::default())?;
        }
        g.output("latents", latents)?;
        let frame = g.scope(VAE, |g| self.autoencoder.decode(g, latents, self.dtype))?;
        g.output("frame", frame)
    }
}

fn input(g: &mut GraphBuilder, name: &str, shape: &[usize], phase: Phase) -> Result<ValueId, GraphError> {
    g.input(name, TensorType::new(DType::F32, shape), phase)
}
