//! Several frames in work at once, each at its own noise level: the stream batch (Kodaira et al. 2023).
//!
//! A pass of the network over the batch advances every frame by one step. The newest comes in, the oldest comes out, and the
//! others are handed on to the next pass. So a frame costs one pass however many steps it takes, and comes out as many passes
//! later as there are steps after the first.

use kinora_graph::{
    DType, Graph, GraphBuilder, GraphError, Phase, Tensor, ValueId,
    op::{STEP_COLUMNS, SamplerStep},
};

use super::{FrameConfig, SETTINGS, Start, TIME_IDS, UNET, input};
use crate::networks::{
    NetworkError,
    unet2d::{AddedConditions, TimeInputs, Unet2dInputs, time_embedding, unet2d},
};

/// How a stream is guided away from a negative prompt, or from the noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamGuidance {
    /// Not at all.
    None,
    /// By the negative prompt for every frame in work, which doubles the batch.
    Full,
    /// By the negative prompt for the newest frame alone; the others by the noise that is in them.
    Initialize,
    /// By the noise that is in the frames, which costs nothing.
    SelfNegative,
}

impl StreamGuidance {
    /// Whether there is a negative prompt.
    pub fn has_negative(self) -> bool {
        matches!(self, StreamGuidance::Full | StreamGuidance::Initialize)
    }

    /// Whether the noise in the frames is handed on.
    pub fn has_stock(self) -> bool {
        matches!(self, StreamGuidance::Initialize | StreamGuidance::SelfNegative)
    }
}

/// What the graph of a stream batch is built for.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// A frame: its steps are the frames in work. Its `guided` is not read, and it starts from a picture.
    pub frame: FrameConfig,
    /// The guidance. If it [has a stock](StreamGuidance::has_stock), the model must predict noise.
    pub guidance: StreamGuidance,
}

impl StreamConfig {
    /// Builds the graph.
    ///
    /// Inputs are those of [`FrameConfig::build`] without `fresh`, but, with `n` the steps:
    ///
    /// | input | shape | when |
    /// | --- | --- | --- |
    /// | `prompts` (and `pooled`, `time_ids`) | `[P, …]`, `P` 2 with a negative prompt, which is first | clip |
    /// | `noise` | f32 `[n, height, width, C]`: that of every step | clip |
    /// | `guidance`, unless it is none | f32 `[1]` | clip |
    /// | `delta`, with a stock | f32 `[1]`: how much of the stock counts | clip |
    /// | `noise_table`, if `n` > 1, with a stock | f32 `[n, 8]`: [`Schedule::noise_table`] | clip |
    /// | `buffer`, if `n` > 1 | f32 `[n − 1, height, width, C]`: the frames in work, the newest first | step |
    /// | `stock`, if `n` > 1, with a stock | as `buffer`: the noise that is in them | step |
    ///
    /// Results: `frame`, `latents`, and `buffer` and `stock` for the next frame. The first frames in work may be zeros: what
    /// comes out of them is no picture.
    ///
    /// [`Schedule::noise_table`]: crate::schedulers::Schedule::noise_table
    ///
    /// # Errors
    /// As [`FrameConfig::build`]; if the sampler reads the step before.
    pub fn build(&self) -> Result<Graph, NetworkError> {
        let frame = &self.frame;
        let [_, height, width, channels] = frame.checked_shape()?;
        let n = frame.steps;
        SETTINGS.require(!frame.sampler.history, "the scheduler", "of second order", || {
            "a stream batch has no step before; use another".to_owned()
        })?;
        SETTINGS.require(frame.start == Start::Picture, "the start", "noise", || {
            "a stream starts from pictures".to_owned()
        })?;
        SETTINGS.require(frame.control.is_none(), "a ControlNet", "given", || {
            "the frames of a stream batch would need a picture each; take steps one after the other"
                .to_owned()
        })?;
        SETTINGS.require(frame.memory == 0, "the number of remembered frames", frame.memory, || {
            "a stream batch remembers none; take steps one after the other".to_owned()
        })?;
        let clipped = frame.sampler.clip.is_some() && self.guidance.has_stock();
        SETTINGS.require(!clipped, "clip_sample", true, || {
            "guidance by noise needs a step that is linear; set it to false, or guide otherwise".to_owned()
        })?;
        let mut builder = GraphBuilder::new("stream");
        let g = &mut builder;
        let noise = input(g, "noise", &[n, height, width, channels], Phase::Clip)?;
        let noise = rows(g, "noise", noise, n)?;
        let mut latents = vec![frame.start(g, noise[0])?];
        let mut stock = vec![noise[0]];
        if n > 1 {
            let others = input(g, "buffer", &[n - 1, height, width, channels], Phase::Step)?;
            latents.extend(rows(g, "buffer", others, n - 1)?);
            if self.guidance.has_stock() {
                let others = input(g, "stock", &[n - 1, height, width, channels], Phase::Step)?;
                stock.extend(rows(g, "stock", others, n - 1)?);
            }
        }
        let predictions = self.predict(g, &latents, &mut stock)?;
        let sampler = self.sampler(g)?;
        let mut moved = Vec::with_capacity(n);
        let mut moved_noise = Vec::new();
        for i in 0..n {
            let step = Step { index: i, prediction: predictions[i], noise: noise.get(i + 1).copied() };
            moved.push(self.advance(g, "latents", latents[i], sampler.table, &sampler, &step)?);
            if let (Some(table), true) = (sampler.noise_table, i + 1 < n) {
                moved_noise.push(self.advance(g, "stock", stock[i], table, &sampler, &step)?);
            }
        }
        if n > 1 {
            let buffer = g.concat("buffer.next", &moved[..n - 1], 0)?;
            g.output("buffer", buffer)?;
            if !moved_noise.is_empty() {
                let stock = g.concat("stock.next", &moved_noise, 0)?;
                g.output("stock", stock)?;
            }
        }
        frame.finish(g, moved[n - 1])?;
        SETTINGS.sized(builder.finish(), "block_out_channels")
    }

    /// The network's prediction for each frame in work; two, the one to be guided away from first, if guided. What the
    /// negative prompt gives for the newest frame becomes its stock.
    fn predict(
        &self,
        g: &mut GraphBuilder,
        latents: &[ValueId],
        stock: &mut [ValueId],
    ) -> Result<Vec<ValueId>, NetworkError> {
        let n = self.frame.steps;
        let negatives = match self.guidance {
            StreamGuidance::Full => n,
            StreamGuidance::Initialize => 1,
            StreamGuidance::None | StreamGuidance::SelfNegative => 0,
        };
        let scales = input(g, "input_scales", &[n], Phase::Clip)?;
        let scales = rows(g, "input_scales", scales, n)?;
        let mut samples = Vec::with_capacity(n);
        for (i, (&latents, &scale)) in latents.iter().zip(&scales).enumerate() {
            samples.push(g.mul(&format!("scaled.{i}"), latents, scale)?);
        }
        samples.splice(0..0, samples[..negatives].to_vec());
        let sample = g.concat("sample", &samples, 0)?;
        let sample = g.cast("sample.cast", sample, self.frame.dtype)?;
        let (context, time) = self.conditions(g, negatives)?;
        let inputs = Unet2dInputs { sample, time, context };
        let all = g.scope(UNET, |g| unet2d(g, &self.frame.unet, self.frame.dtype, &inputs))?;
        let all = g.cast("prediction", all, DType::F32)?;
        let all = rows(g, "prediction", all, negatives + n)?;
        let (negative, positive) = all.split_at(negatives);
        let away = match self.guidance {
            StreamGuidance::None => return Ok(positive.to_vec()),
            StreamGuidance::Full => negative.to_vec(),
            StreamGuidance::Initialize | StreamGuidance::SelfNegative => {
                if let Some(&newest) = negative.first() {
                    stock[0] = newest;
                }
                let delta = input(g, "delta", &[1], Phase::Clip)?;
                let away = stock.iter().enumerate();
                away.map(|(i, &noise)| g.mul(&format!("away.{i}"), noise, delta)).collect::<Result<_, _>>()?
            }
        };
        let pairs = away.into_iter().zip(positive).enumerate();
        Ok(pairs
            .map(|(i, (away, &towards))| g.concat(&format!("guided.{i}"), &[away, towards], 0))
            .collect::<Result<_, _>>()?)
    }

    /// The context and the time embedding of each image: of the first `negatives` frames under the negative prompt, then of
    /// all under the prompt.
    fn conditions(&self, g: &mut GraphBuilder, negatives: usize) -> Result<(ValueId, ValueId), NetworkError> {
        let (FrameConfig { unet, dtype, steps, tokens, .. }, clip) = (&self.frame, Phase::Clip);
        let prompts = 1 + usize::from(negatives > 0);
        let context = input(g, "prompts", &[prompts, *tokens, unet.context_channels()?], clip)?;
        let context = g.cast("prompts.cast", context, *dtype)?;
        let context = rows(g, "prompts", context, prompts)?;
        let timesteps = input(g, "timesteps", &[*steps], clip)?;
        let guidance = match unet.time_cond_proj_dim {
            Some(_) => Some(input(g, "guidance_embedding", &[1], clip)?),
            None => None,
        };
        let mut added = Vec::new();
        if let Some(channels) = unet.pooled_channels(TIME_IDS)? {
            let pooled = input(g, "pooled", &[prompts, channels], clip)?;
            let pooled = g.cast("pooled.cast", pooled, *dtype)?;
            let ids = input(g, "time_ids", &[prompts, TIME_IDS], clip)?;
            let ids = rows(g, "time_ids", ids, prompts)?;
            let pooled = rows(g, "pooled", pooled, prompts)?;
            added.extend(
                pooled.into_iter().zip(ids).map(|(text, time_ids)| AddedConditions { text, time_ids }),
            );
        }
        let images = if negatives > 0 { vec![negatives, *steps] } else { vec![*steps] };
        let (mut contexts, mut times) = (Vec::new(), Vec::new());
        for (prompt, &images) in images.iter().enumerate() {
            contexts.extend(vec![context[prompt]; images]);
            let timesteps = g.slice(&format!("timesteps.{prompt}"), timesteps, 0, 0, images)?;
            let inputs = TimeInputs { timesteps, guidance, added: added.get(prompt).copied() };
            times.push(g.scope(UNET, |g| time_embedding(g, unet, *dtype, &inputs))?);
        }
        Ok((g.concat("contexts", &contexts, 0)?, g.concat("times", &times, 0)?))
    }

    fn sampler(&self, g: &mut GraphBuilder) -> Result<Sampler, GraphError> {
        let (n, clip) = (self.frame.steps, Phase::Clip);
        let guided = self.guidance != StreamGuidance::None;
        let has_stock = self.guidance.has_stock() && n > 1;
        let table = |g: &mut GraphBuilder, name| input(g, name, &[n, STEP_COLUMNS], clip);
        Ok(Sampler {
            table: table(g, "table")?,
            noise_table: if has_stock { Some(table(g, "noise_table")?) } else { None },
            guidance: if guided { Some(input(g, "guidance", &[1], clip)?) } else { None },
        })
    }

    /// A sample at the level of the next step.
    fn advance(
        &self,
        g: &mut GraphBuilder,
        what: &str,
        sample: ValueId,
        table: ValueId,
        sampler: &Sampler,
        step: &Step,
    ) -> Result<ValueId, NetworkError> {
        let name = format!("{what}.{}", step.index);
        let row = Tensor::from_slice([1], &[step.index as i32])?;
        let row = g.constant(&format!("{name}.row"), row)?;
        // The last step adds none.
        let noise = step.noise.filter(|_| self.frame.sampler.noise);
        let mut operands = vec![sample, step.prediction, table, row];
        operands.extend(sampler.guidance);
        operands.extend(noise);
        let op = SamplerStep {
            guided: sampler.guidance.is_some(),
            noise: noise.is_some(),
            clip: self.frame.sampler.clip,
            ..SamplerStep::default()
        };
        Ok(g.sampler_step(&format!("{name}.sampler"), &operands, op)?[0])
    }
}

/// What the sampler reads for every frame in work.
struct Sampler {
    table: ValueId,
    noise_table: Option<ValueId>,
    guidance: Option<ValueId>,
}

/// What it reads for one.
struct Step {
    index: usize,
    prediction: ValueId,
    /// That of the next step.
    noise: Option<ValueId>,
}

/// The rows of the first axis, each with that axis.
fn rows(g: &mut GraphBuilder, name: &str, x: ValueId, count: usize) -> Result<Vec<ValueId>, GraphError> {
    (0..count).map(|i| g.slice(&format!("{name}.{i}"), x, 0, i, 1)).collect()
}
