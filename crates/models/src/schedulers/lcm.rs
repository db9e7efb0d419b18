//! Latent consistency models (Luo et al. 2023).

use kinora_graph::op::StepCoefficients;

use super::{
    Schedule,
    config::Fields,
    ddim::{clip, sigma},
    error::SchedulerError,
    prediction::Predicted,
    training::{LATENT_BETAS, Training},
};

/// The data's standard deviation, which diffusers fixes.
const SIGMA_DATA: f64 = 0.5;
/// Far more than the 10 of every published model; its product with a timestep can still be squared.
const MAX_SCALING: f64 = 1e6;

#[derive(Clone, Debug)]
pub(super) struct Lcm {
    pub(super) training: Training,
    predicted: Predicted,
    /// The steps that the model was distilled with, from which a run takes some.
    pub(super) original_steps: usize,
    timestep_scaling: f64,
    clip: Option<f32>,
}

impl Lcm {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        const ORIGINAL: &str = "original_inference_steps";
        const SCALING: &str = "timestep_scaling";
        fields.refuse_flag("thresholding", "set it to false, or use `clip_sample`")?;
        let training = Training::read(fields, LATENT_BETAS)?;
        let original = fields.integer(ORIGINAL, 50)?;
        let original_steps = usize::try_from(original)
            .ok()
            .filter(|steps| (1..=training.len()).contains(steps))
            .ok_or_else(|| fields.bad(ORIGINAL, original.into(), &format!("from 1 to {}", training.len())))?;
        let timestep_scaling = fields.number(SCALING, 10.0)?;
        if !(timestep_scaling > 0.0 && timestep_scaling <= MAX_SCALING) {
            let expected = format!("a number above 0, at most {MAX_SCALING}");
            return Err(fields.bad(SCALING, timestep_scaling.into(), &expected));
        }
        Ok(Lcm {
            predicted: Predicted::read(fields)?,
            original_steps,
            timestep_scaling,
            clip: clip(fields, false)?,
            training,
        })
    }

    /// A run of at most `original` steps, from the noisiest of as many of the steps that the model was distilled with.
    pub(super) fn schedule(&self, original: usize, steps: usize) -> Schedule {
        let length = self.training.len() / self.original_steps;
        // Evenly spread over the original steps.
        let spread = original as f64 / steps as f64;
        let timesteps: Vec<usize> =
            (0..steps).map(|i| (original - (i as f64 * spread).floor() as usize) * length - 1).collect();
        self.over(&timesteps)
    }

    /// A run over these timesteps.
    pub(super) fn over(&self, timesteps: &[usize]) -> Schedule {
        let steps = timesteps.len();
        let alphas: Vec<f64> = timesteps.iter().map(|&t| f64::from(self.training.alphas[t])).collect();
        let coefficients: Vec<StepCoefficients> = (0..steps)
            .map(|i| {
                let (timestep, next) = (timesteps[i] as f64, alphas.get(i + 1).copied());
                self.predicted.step(|kind| {
                    StepCoefficients::lcm(kind, alphas[i], next, timestep, self.timestep_scaling, SIGMA_DATA)
                })
            })
            .collect();
        Schedule {
            timesteps: timesteps.iter().map(|&timestep| timestep as f32).collect(),
            sigmas: alphas.iter().map(|&alpha| sigma(alpha)).chain([0.0]).collect(),
            input_scales: vec![1.0; steps],
            coefficients,
            initial_noise_scale: 1.0,
            needs_history: false,
            needs_noise: steps > 1,
            clip: self.clip,
        }
    }
}
