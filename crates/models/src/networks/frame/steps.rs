//! Denoising steps one after the other.

use kinora_graph::{
    DType, GraphBuilder, GraphError, Phase, Tensor, TensorType, ValueId,
    op::{STEP_COLUMNS, SamplerStep},
};

use super::{CONTROLNET, FrameConfig, TIME_IDS, UNET, input};
use crate::networks::{
    NetworkError,
    controlnet::{ControlNetConfig, condition, controlnet},
    memory::{FRESH, Memory},
    unet2d::{AddedConditions, TimeInputs, Unet2dInputs, time_embedding, unet2d_with},
};

impl FrameConfig {
    /// What the network attends to, and the time embedding of every step.
    pub(super) fn conditions(&self, g: &mut GraphBuilder) -> Result<Conditions, NetworkError> {
        let (prompts, clip) = (self.prompts(), Phase::Clip);
        let context = input(g, "prompts", &[prompts, self.tokens, self.unet.context_channels()?], clip)?;
        let context = g.cast("prompts.cast", context, self.dtype)?;
        let timesteps = input(g, "timesteps", &[self.steps], clip)?;
        let guidance = match self.unet.time_cond_proj_dim {
            Some(_) => Some(input(g, "guidance_embedding", &[1], clip)?),
            None => None,
        };
        let added = match self.unet.pooled_channels(TIME_IDS)? {
            Some(channels) => {
                let pooled = input(g, "pooled", &[prompts, channels], clip)?;
                let pooled = g.cast("pooled.cast", pooled, self.dtype)?;
                Some((pooled, input(g, "time_ids", &[prompts, TIME_IDS], clip)?))
            }
            None => None,
        };
        let mut control = match &self.control {
            Some(config) => Some(self.control(g, config)?),
            None => None,
        };
        let mut times = Vec::with_capacity(self.steps);
        for step in 0..self.steps {
            let timesteps = g.slice(&format!("timesteps.{step}"), timesteps, 0, step, 1)?;
            let added = added.map(|(text, time_ids)| AddedConditions { text, time_ids });
            let inputs = TimeInputs { timesteps, guidance, added };
            times.push(g.scope(UNET, |g| time_embedding(g, &self.unet, self.dtype, &inputs))?);
            if let (Some(config), Some(control)) = (&self.control, &mut control) {
                // It was not distilled with the guidance that the UNet may read.
                let inputs = TimeInputs { guidance: None, ..inputs };
                let time = g.scope(CONTROLNET, |g| time_embedding(g, &config.unet, self.dtype, &inputs))?;
                control.times.push(time);
            }
        }
        let fresh = match self.memory {
            0 => None,
            _ => Some(input(g, FRESH, &[1], Phase::Step)?),
        };
        Ok(Conditions { context, times, control, fresh })
    }

    /// What a ControlNet makes of its picture, once for all steps.
    fn control(&self, g: &mut GraphBuilder, config: &ControlNetConfig) -> Result<Control, NetworkError> {
        let shape = [1, self.height, self.width, config.conditioning_channels];
        let picture = g.input("control", TensorType::new(DType::U8, shape), Phase::Step)?;
        let picture = g.cast("control.cast", picture, self.dtype)?;
        let picture = g.scale("control.range", picture, 1.0 / 255.0, 0.0)?;
        let condition = g.scope(CONTROLNET, |g| condition(g, config, self.dtype, picture))?;
        let scale = input(g, "control_scale", &[1], Phase::Clip)?;
        Ok(Control { condition, scale, times: Vec::with_capacity(self.steps) })
    }

    /// The network's prediction at a step.
    fn predict(
        &self,
        g: &mut GraphBuilder,
        step: usize,
        sample: ValueId,
        conditions: &Conditions,
    ) -> Result<ValueId, NetworkError> {
        let context = conditions.context;
        let residuals = match (&self.control, &conditions.control) {
            (Some(config), Some(control)) => {
                let inputs = Unet2dInputs { sample, time: control.times[step], context };
                let steering = (control.condition, control.scale);
                Some(g.scope(CONTROLNET, |g| controlnet(g, config, self.dtype, &inputs, steering))?)
            }
            _ => None,
        };
        let memory = conditions.fresh.map(|fresh| Memory { frames: self.memory, step, fresh });
        let inputs = Unet2dInputs { sample, time: conditions.times[step], context };
        g.scope(UNET, |g| unet2d_with(g, &self.unet, self.dtype, &inputs, residuals.as_ref(), memory))
    }

    pub(super) fn sampler(&self, g: &mut GraphBuilder, shape: &[usize; 4]) -> Result<Sampler, GraphError> {
        let clip = Phase::Clip;
        let [_, height, width, channels] = *shape;
        Ok(Sampler {
            scales: input(g, "input_scales", &[self.steps], clip)?,
            table: input(g, "table", &[self.steps, STEP_COLUMNS], clip)?,
            guidance: if self.guided { Some(input(g, "guidance", &[1], clip)?) } else { None },
            fresh: match self.sampler.noise {
                true => Some(input(g, "fresh", &[self.steps, height, width, channels], clip)?),
                false => None,
            },
        })
    }

    /// From the latents of a step to those of the next. If the sampler reads what the step before denoised, so are the
    /// results.
    pub(super) fn step(
        &self,
        g: &mut GraphBuilder,
        step: usize,
        (latents, history): (ValueId, Option<ValueId>),
        conditions: &Conditions,
        sampler: &Sampler,
    ) -> Result<Vec<ValueId>, NetworkError> {
        let name = format!("steps.{step}");
        let scale = g.slice(&format!("{name}.input_scale"), sampler.scales, 0, step, 1)?;
        let sample = g.mul(&format!("{name}.scaled"), latents, scale)?;
        let sample = g.cast(&format!("{name}.cast"), sample, self.dtype)?;
        let sample = g.concat(&format!("{name}.sample"), &vec![sample; self.prompts()], 0)?;
        let prediction = self.predict(g, step, sample, conditions)?;
        let row = Tensor::from_slice([1], &[step as i32])?;
        let row = g.constant(&format!("{name}.row"), row)?;
        let mut operands = vec![latents, prediction, sampler.table, row];
        operands.extend(sampler.guidance);
        operands.extend(history);
        if let Some(fresh) = sampler.fresh {
            operands.push(g.slice(&format!("{name}.fresh"), fresh, 0, step, 1)?);
        }
        let op = SamplerStep {
            guided: self.guided,
            // The first step has none, and its row's weight for it is 0.
            history: history.is_some(),
            noise: sampler.fresh.is_some(),
            blend: false,
            clip: self.sampler.clip,
            emit_denoised: self.sampler.history && step + 1 < self.steps,
            emit_scaled: false,
        };
        Ok(g.sampler_step(&format!("{name}.sampler"), &operands, op)?)
    }
}

/// What the UNet reads beside the latents.
pub(super) struct Conditions {
    context: ValueId,
    /// The time embedding of each step.
    times: Vec<ValueId>,
    control: Option<Control>,
    /// Whether the frame is the first, if frames are remembered.
    fresh: Option<ValueId>,
}

/// What a ControlNet reads beside the latents.
struct Control {
    condition: ValueId,
    scale: ValueId,
    /// The time embedding of each step.
    times: Vec<ValueId>,
}

/// What the sampler reads beside latents and prediction.
pub(super) struct Sampler {
    scales: ValueId,
    table: ValueId,
    guidance: Option<ValueId>,
    fresh: Option<ValueId>,
}
