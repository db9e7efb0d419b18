//! Clips that diffusers denoised, as `golden/make_denoise.py` and those that build on it describe them.

use kinora_graph::{
    DType, Tensor, TensorType,
    op::{Prediction, StepCoefficients},
};
use kinora_models::networks::{
    denoise::{DenoiseConfig, SamplerNeeds},
    step_cache::Extent,
    unet::UnetConfig,
};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::Value;

use super::networks::given;

/// A clip that diffusers denoised.
#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    pub config: Value,
    pub frames: usize,
    pub height: usize,
    pub width: usize,
    pub sigmas: Vec<f64>,
    pub timesteps: Vec<f32>,
    pub added_time_ids: Vec<f32>,
    pub guidance: Vec<f32>,
}

impl Case {
    /// A step of the clip, in f32.
    pub fn config(&self, guided: bool) -> DenoiseConfig {
        DenoiseConfig {
            unet: UnetConfig::from_json(&self.config.to_string()).unwrap(),
            frames: self.frames,
            height: self.height,
            width: self.width,
            steps: self.timesteps.len(),
            guided,
            sampler: SamplerNeeds::default(),
            dtype: DType::F32,
            extent: Extent::Whole,
        }
    }

    /// What a clip is given.
    pub fn clip_inputs(&self, config: &DenoiseConfig, guidance: Option<&[f32]>) -> Tensors {
        let steps = config.steps;
        let rows: Vec<f32> = self
            .sigmas
            .windows(2)
            .flat_map(|s| StepCoefficients::euler(Prediction::Velocity, s[0], s[1]).row())
            .collect();
        let scales: Vec<f32> =
            self.sigmas[..steps].iter().map(|s| (1.0 / (s * s + 1.0).sqrt()) as f32).collect();
        let channels = config.unet.in_channels - config.unet.out_channels;
        let made = |name: &str, shape: &[usize]| {
            (name.to_owned(), given(&self.name, name, &TensorType::new(DType::F32, shape), 1.0))
        };
        let known = |name: &str, shape: &[usize], numbers: &[f32]| {
            (name.to_owned(), Tensor::from_slice(shape, numbers).unwrap())
        };
        let mut inputs = Tensors::from([
            made("image_latents", &[1, config.height, config.width, channels]),
            made("image_embedding", &[1, 1, config.unet.context_channels().unwrap()]),
            known("added_time_ids", &[self.added_time_ids.len()], &self.added_time_ids),
            known("timesteps", &[steps], &self.timesteps),
            known("input_scales", &[steps], &scales),
            known("table", &[steps, 8], &rows),
        ]);
        inputs.extend(guidance.map(|guidance| known("guidance", &[guidance.len()], guidance)));
        inputs
    }

    /// The latents that the first step reads.
    pub fn latents(&self, config: &DenoiseConfig) -> Tensor {
        let shape = [config.frames, config.height, config.width, config.unet.out_channels];
        given(&self.name, "latents", &TensorType::new(DType::F32, shape), self.sigmas[0] as f32)
    }
}
