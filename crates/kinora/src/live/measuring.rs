//! How large the activations of a model in fp8 are, measured before it draws its first frame.
//!
//! The UNet alone runs in f16, without an autoencoder. What it denoises are pictures of its own, after the stream's prompt: the
//! first from noise alone, each further one from the one before with less noise than that was made from, as frames are drawn. So
//! every strength and number of steps is near what was measured, and what a camera sees when it is switched on does not count. LoRAs
//! and a ControlNet are left out, so that what is kept beside the model is the model's own.

use std::sync::PoisonError;

use kinora_graph::{Graph, Tensor};
use kinora_models::{
    networks::{
        denoise::SamplerNeeds,
        frame::{FrameConfig, Parts, Start, UNET},
    },
    schedulers::Schedule,
};
use kinora_profile::Profiler;
use kinora_runtime::Tensors;

use super::{
    Guidance, LiveConfigs, LiveSettings, Model,
    frames::{Given, Shape},
    loading::Loading,
    memory,
    text::Embedding,
};
use crate::{
    image_to_video::{GenerateError, Noise, Observe, Precision, Progress, Stage},
    quantisation::Calibrating,
};

/// Its name in errors.
const PART: &str = "live network, whose activations are measured in f16 first,";
/// From which pictures are denoised, one after the other: from noise alone to most of a picture.
const STRENGTHS: [f64; 5] = [1.0, 0.8, 0.6, 0.4, 0.2];

impl Model {
    /// Measures how large activations are, unless that is known, or nobody needs to know.
    pub(super) fn calibrate(
        &self,
        settings: &LiveSettings,
        prompt: &Embedding,
        observe: &mut Observe<'_>,
    ) -> Result<(), GenerateError> {
        let Some(quantising) = &self.quantising else { return Ok(()) };
        // A second stream waits for what the first one finds.
        let _measuring = self.measuring.lock().unwrap_or_else(PoisonError::into_inner);
        if quantising.is_calibrated() {
            return Ok(());
        }
        let backend = Calibrating::new(quantising.inner());
        let profiler = &Profiler::default();
        let loading = Loading { backend: &backend, quantises: false, profiler, ledger: &self.ledger };
        let steps = Steps::new(&self.configs, settings)?;
        let graph = steps.graph()?;
        // Not the weights of frames: LoRAs may be merged into those.
        let weights = Parts(vec![(UNET, &self.unet)]);
        let mut loaded = loading.load((PART, memory::beside(&graph)), &graph, &weights, None, observe)?;
        let network = &mut *loaded.network;
        let failed = |source| GenerateError::run(PART, source);
        let mut tell = |done| {
            let progress = Progress { stage: Stage::Calibrate, done, total: STRENGTHS.len(), preview: None };
            if observe(&progress).is_break() { Err(GenerateError::Cancelled) } else { Ok(()) }
        };
        let (noise, mut latents) = (steps.noise()?, None);
        tell(0)?;
        for (done, schedule) in steps.schedules.iter().enumerate() {
            network.run_clip(&steps.conditions(schedule, prompt)?).map_err(failed)?;
            let noisy = noisy(latents.as_ref(), &noise, schedule)?;
            let given = Tensors::from([("latents".to_owned(), noisy)]);
            let mut results = network.run_step(&given).map_err(failed)?;
            let missing = GenerateError::NoResult { part: PART, name: "latents" };
            let denoised = results.remove("latents").ok_or(missing)?;
            if denoised.first_non_finite().is_some() {
                return Err(GenerateError::NotFinite { stage: Stage::Calibrate, precision: Precision::Fp8 });
            }
            latents = Some(denoised);
            tell(done + 1)?;
        }
        quantising.calibrate(backend.found());
        Ok(())
    }
}

/// The network that is measured.
#[cfg(feature = "cuda")]
pub(super) fn graph(configs: &LiveConfigs, settings: &LiveSettings) -> Result<Graph, GenerateError> {
    Steps::new(configs, settings)?.graph()
}

/// The steps that are measured, each by itself.
struct Steps<'a> {
    configs: &'a LiveConfigs,
    settings: LiveSettings,
    /// From every strength.
    schedules: Vec<Schedule>,
    shape: Shape,
}

impl<'a> Steps<'a> {
    /// One step without guidance.
    fn new(configs: &'a LiveConfigs, settings: &LiveSettings) -> Result<Self, GenerateError> {
        let settings = LiveSettings {
            steps: 1,
            timesteps: None,
            guidance: Guidance::None,
            stream_batch: false,
            blend: 0.0,
            memory_frames: 0,
            ..settings.clone()
        };
        let mut schedules = Vec::with_capacity(STRENGTHS.len());
        for strength in STRENGTHS {
            schedules.extend(configs.schedule(&settings.clone().strength(strength), Start::Picture)?);
        }
        let first = schedules.first().ok_or(GenerateError::NoResult { part: PART, name: "schedule" })?;
        let shape = Shape::new(configs, &settings, first, Start::Noise, None);
        Ok(Steps { configs, settings, schedules, shape })
    }

    fn config(&self) -> FrameConfig {
        let config = self.shape.config(self.configs, Precision::F16);
        // A single step needs nothing of another one.
        FrameConfig {
            sampler: SamplerNeeds { clip: config.sampler.clip, ..SamplerNeeds::default() },
            ..config
        }
    }

    fn graph(&self) -> Result<Graph, GenerateError> {
        Ok(self.config().denoiser()?)
    }

    /// The noise that pictures are mixed with, that of the stream's frames.
    fn noise(&self) -> Result<Tensor, GenerateError> {
        let config = self.config();
        let [height, width] = config.latent_size()?;
        let shape = [1, height, width, config.unet.in_channels];
        Ok(Tensor::from_slice(shape, &Noise::new(self.settings.seed).draw(config.dtype, shape))?)
    }

    fn conditions(&self, schedule: &Schedule, prompt: &Embedding) -> Result<Tensors, GenerateError> {
        let given = Given { positive: prompt, negative: prompt, strengths: &[] };
        self.shape.conditions(self.configs, (&self.settings, schedule), given)
    }
}

/// A picture with the noise of a step added. Before the first step there is no picture yet: it is noise alone.
fn noisy(picture: Option<&Tensor>, noise: &Tensor, schedule: &Schedule) -> Result<Tensor, GenerateError> {
    let [of_picture, of_noise] = schedule.mix().map(|weight| weight as f32);
    let mut values: Vec<f32> = noise.to_f32().iter().map(|noise| of_noise * noise).collect();
    if let Some(picture) = picture {
        values.iter_mut().zip(picture.to_f32()).for_each(|(value, picture)| *value += of_picture * picture);
    }
    Ok(Tensor::from_slice(noise.shape().clone(), &values)?)
}
