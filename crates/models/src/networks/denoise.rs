//! One denoising step of a clip: scaling, guidance, UNet and sampler in one graph.
//!
//! The latents stay f32 from step to step, whatever the network computes in: what a step rounds off would otherwise add
//! up over all of them.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, TensorType, ValueId,
    op::{STEP_COLUMNS, SamplerStep},
};

use super::{
    error::{MAX_EXTENT, NetworkError},
    step_cache::Extent,
    unet::{MAX_FRAMES, SETTINGS, UnetConfig, UnetInputs, time_embedding, unet_with},
};

/// What a sampler needs beside the latents, the prediction and its row of coefficients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplerNeeds {
    /// The denoised latents of the step before (DPM-Solver++ 2M).
    pub history: bool,
    /// Fresh noise at every step (LCM, DDIM with eta).
    pub noise: bool,
    /// Limits the denoised latents to ± this.
    pub clip: Option<f32>,
}

/// What a denoising step is built for.
#[derive(Clone, Debug, PartialEq)]
pub struct DenoiseConfig {
    /// The network.
    pub unet: UnetConfig,
    /// Frames of the clip.
    pub frames: usize,
    /// Height of the latents.
    pub height: usize,
    /// Width of the latents.
    pub width: usize,
    /// Steps of the run: the rows of its tables.
    pub steps: usize,
    /// Classifier-free guidance: the network runs on two halves, the unconditional one first.
    pub guided: bool,
    /// What the sampler needs.
    pub sampler: SamplerNeeds,
    /// How the network stores weights and activations.
    pub dtype: DType,
    /// How much of the network the step computes.
    pub extent: Extent,
}

impl DenoiseConfig {
    /// Builds the graph.
    ///
    /// Inputs, with `C` the latents' channels (the UNet's `out_channels`), all f32 but for the step:
    ///
    /// | input | shape | when |
    /// | --- | --- | --- |
    /// | `image_latents` | `[1, height, width, in_channels − C]` | clip |
    /// | `image_embedding` | `[1, 1, cross_attention_dim]` | clip |
    /// | `added_time_ids` | `[ids]`: fps − 1, motion bucket, noise augmentation | clip |
    /// | `timesteps`, `input_scales` | `[steps]` | clip |
    /// | `table` | `[steps, 8]`, rows of [`StepCoefficients`](kinora_graph::op::StepCoefficients) | clip |
    /// | `guidance`, if guided | `[frames]` | clip |
    /// | `latents` | `[frames, height, width, C]` | step |
    /// | `step` | i32 `[1]`, the row of the tables | step |
    /// | `history`, `noise`, if the sampler needs them | as `latents` | step |
    /// | [`DEEP`](super::step_cache::DEEP), if the step is shallow | of both halves, in the network's type | step |
    ///
    /// The conditions are those of the conditional half alone: the unconditional one's are zeros, which the graph makes.
    /// Results: `next`, the latents of the next step, and `denoised`, its estimate of the clean ones; and [`DEEP`](super::step_cache::DEEP)
    /// of both halves, if the step keeps it.
    ///
    /// # Errors
    /// If the UNet's configuration is refused, there are no steps, an extent is 0 or too large, or the network cannot be cut where
    /// it is asked to be.
    pub fn build(&self) -> Result<Graph, NetworkError> {
        self.unet.check()?;
        let (latent_channels, image_channels) = self.channels()?;
        SETTINGS.within("the number of frames", self.frames, 1..=MAX_FRAMES)?;
        SETTINGS.within("the latents' height", self.height, 1..=MAX_EXTENT)?;
        SETTINGS.within("the latents' width", self.width, 1..=MAX_EXTENT)?;
        SETTINGS.within("the number of steps", self.steps, 1..=MAX_EXTENT)?;
        let mut builder = GraphBuilder::new("denoise");
        let g = &mut builder;
        let f32_input = |g: &mut GraphBuilder, name: &str, shape: &[usize], phase| {
            g.input(name, TensorType::new(DType::F32, shape), phase)
        };
        let (frames, height, width, steps) = (self.frames, self.height, self.width, self.steps);
        let clip = Phase::Clip;
        let image = f32_input(g, "image_latents", &[1, height, width, image_channels], clip)?;
        let embedding = f32_input(g, "image_embedding", &[1, 1, self.unet.context_channels()?], clip)?;
        let ids = f32_input(g, "added_time_ids", &[self.unet.added_time_ids()?], clip)?;
        let timesteps = f32_input(g, "timesteps", &[steps], clip)?;
        let scales = f32_input(g, "input_scales", &[steps], clip)?;
        let table = f32_input(g, "table", &[steps, STEP_COLUMNS], clip)?;
        let shape = [frames, height, width, latent_channels];
        let latents = f32_input(g, "latents", &shape, Phase::Step)?;
        let step = g.input("step", TensorType::new(DType::I32, [1]), Phase::Step)?;

        let times = time_embedding(g, &self.unet, self.dtype, timesteps, ids)?;
        let time = g.embedding("time_row", times, step)?;
        let noisy = self.scaled(g, latents, scales, step)?;
        let image = self.halves(g, "image", image, frames)?;
        let sample = g.concat("sample", &[noisy, image], 3)?;
        let context = self.halves(g, "context", embedding, 1)?;
        let inputs = UnetInputs { sample, time, context, frames };
        let prediction = unet_with(g, &self.unet, self.dtype, &inputs, self.extent)?;

        let mut operands = vec![latents, prediction, table, step];
        if self.guided {
            operands.push(f32_input(g, "guidance", &[frames], clip)?);
        }
        let SamplerNeeds { history, noise, clip } = self.sampler;
        for name in [history.then_some("history"), noise.then_some("noise")].into_iter().flatten() {
            operands.push(f32_input(g, name, &shape, Phase::Step)?);
        }
        let sampler = SamplerStep {
            guided: self.guided,
            history,
            noise,
            blend: false,
            clip,
            emit_denoised: true,
            emit_scaled: false,
        };
        let results = g.sampler_step("sampler", &operands, sampler)?;
        for (name, &value) in ["next", "denoised"].iter().zip(&results) {
            g.output(name, value)?;
        }
        SETTINGS.sized(builder.finish(), "block_out_channels")
    }

    /// Channels of the latents, and of the image's latents beside them.
    fn channels(&self) -> Result<(usize, usize), NetworkError> {
        let UnetConfig { in_channels, out_channels, .. } = self.unet;
        match in_channels.checked_sub(out_channels) {
            Some(image) if image > 0 => Ok((out_channels, image)),
            _ => {
                let rule = format!(
                    "beside the {out_channels} channels of the latents, out_channels, it must hold the image's"
                );
                Err(SETTINGS.refused("in_channels", in_channels, rule))
            }
        }
    }

    /// The latents as the network reads them at this step, once for each half.
    fn scaled(
        &self,
        g: &mut GraphBuilder,
        latents: ValueId,
        scales: ValueId,
        step: ValueId,
    ) -> Result<ValueId, GraphError> {
        let scales = g.reshape("input_scale_rows", scales, [self.steps, 1])?;
        let scale = g.embedding("input_scale_row", scales, step)?;
        let scale = g.reshape("input_scale", scale, [1])?;
        let scaled = g.mul("scaled", latents, scale)?;
        let scaled = g.cast("scaled_cast", scaled, self.dtype)?;
        let halves = if self.guided { 2 } else { 1 };
        g.concat("scaled_halves", &vec![scaled; halves], 0)
    }

    /// A condition in the network's type, `copies` times along the first axis, after as many zeros if guided.
    fn halves(
        &self,
        g: &mut GraphBuilder,
        name: &str,
        condition: ValueId,
        copies: usize,
    ) -> Result<ValueId, GraphError> {
        let condition = g.cast(&format!("{name}_cast"), condition, self.dtype)?;
        let mut parts = vec![condition; copies];
        if self.guided {
            let zeros = g.scale(&format!("{name}_unconditional"), condition, 0.0, 0.0)?;
            parts.splice(0..0, vec![zeros; copies]);
        }
        g.concat(&format!("{name}_halves"), &parts, 0)
    }
}
