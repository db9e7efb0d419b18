//! Denoising diffusion implicit models (Song et al. 2020).

use kinora_graph::op::StepCoefficients;

use super::{
    Schedule,
    config::Fields,
    error::SchedulerError,
    prediction::Predicted,
    spacing::{Spacing, leading, linspace, trailing},
    training::{LINEAR_BETAS, Training},
};

#[derive(Clone, Debug)]
pub(super) struct Ddim {
    pub(super) training: Training,
    predicted: Predicted,
    spacing: Spacing,
    steps_offset: i64,
    /// ᾱ where the last step ends.
    final_alpha: f64,
    clip: Option<f32>,
    pub(super) eta: f64,
}

impl Ddim {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        fields.refuse_flag("thresholding", "set it to false, or use `clip_sample`")?;
        let training = Training::read(fields, LINEAR_BETAS)?;
        let predicted = Predicted::read(fields)?;
        let clip = clip(fields, true)?;
        if predicted == Predicted::Sample && clip.is_some() {
            let supported = "with `prediction_type` \"sample\" set it to false";
            return Err(fields.unsupported("clip_sample", true, supported));
        }
        let to_one = fields.flag("set_alpha_to_one", true)?;
        let first = training.alphas.first().copied().map_or(1.0, f64::from);
        Ok(Ddim {
            predicted,
            spacing: Spacing::read(fields, "leading")?,
            steps_offset: fields.steps_offset()?,
            final_alpha: if to_one { 1.0 } else { first },
            clip,
            eta: 0.0,
            training,
        })
    }

    pub(super) fn schedule(&self, class: &'static str, steps: usize) -> Result<Schedule, SchedulerError> {
        let trained = self.training.len();
        let timesteps: Vec<i64> = match self.spacing {
            Spacing::Linspace => {
                let even = linspace(0.0, (trained - 1) as f64, steps);
                even.into_iter().rev().map(|timestep| timestep.round_ties_even() as i64).collect()
            }
            Spacing::Leading => leading(trained / steps, steps).map(|t| t + self.steps_offset).collect(),
            Spacing::Trailing => trailing(trained as f64, trained as f64 / steps as f64, steps).collect(),
        };
        // Each step goes as far as steps of equal length do, whatever the spacing.
        let length = (trained / steps) as i64;
        let levels = timesteps
            .iter()
            .map(|&timestep| {
                let outside = || SchedulerError::Timestep { class, steps, timestep, last: trained - 1 };
                let from = self.alpha(timestep).ok_or_else(outside)?;
                Ok((from, self.alpha(timestep - length).unwrap_or(self.final_alpha)))
            })
            .collect::<Result<Vec<(f64, f64)>, SchedulerError>>()?;
        let step = |&(alpha, next): &(f64, f64)| {
            self.predicted.step(|kind| match self.clip {
                Some(_) => StepCoefficients::ddim_clipped(kind, alpha, next, self.eta),
                None => StepCoefficients::ddim(kind, alpha, next, self.eta),
            })
        };
        let end = levels.last().map(|&(_, next)| next);
        Ok(Schedule {
            timesteps: timesteps.iter().map(|&timestep| timestep as f32).collect(),
            sigmas: levels.iter().map(|&(alpha, _)| alpha).chain(end).map(sigma).collect(),
            input_scales: vec![1.0; steps],
            coefficients: levels.iter().map(step).collect(),
            initial_noise_scale: 1.0,
            needs_history: false,
            needs_noise: self.eta > 0.0,
            clip: self.clip,
        })
    }

    fn alpha(&self, timestep: i64) -> Option<f64> {
        let index = usize::try_from(timestep).ok()?;
        self.training.alphas.get(index).copied().map(f64::from)
    }
}

/// The limit of the denoised sample, if there is one.
pub(super) fn clip(fields: &Fields<'_>, default: bool) -> Result<Option<f32>, SchedulerError> {
    const RANGE: &str = "clip_sample_range";
    let clips = fields.flag("clip_sample", default)?;
    let range = fields.number(RANGE, 1.0)?;
    if clips && !(range > 0.0 && (range as f32).is_finite()) {
        return Err(fields.bad(RANGE, range.into(), "a number above 0"));
    }
    Ok(clips.then_some(range as f32))
}

/// σ of an ᾱ.
pub(super) fn sigma(alpha: f64) -> f64 {
    ((1.0 - alpha) / alpha).sqrt()
}
