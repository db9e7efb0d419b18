//! The sampler step: guidance, prediction to clean sample, the move to the next noise level, and the blend with the
//! frame before.
//!
//! Euler, DDIM, DPM-Solver++ 2M and LCM, with an epsilon or a v prediction, are one linear form:
//!
//! ```text
//! guided   = uncond + guidance · (cond − uncond)
//! denoised = clip(denoised_sample · sample + denoised_prediction · guided)
//! next     = sample' · sample + denoised' · denoised + prediction' · guided
//!            + history · previous denoised + noise · fresh noise
//! next     = next + strength · (previous − next)                     if blended
//! scaled   = input_scale · next
//! ```
//!
//! so that one kernel serves all of them, and a step is a row of eight numbers, computed here in f64. The rows of a
//! whole run lie in one table; a step counter on the device picks the row, and no step waits for the host.

use serde::{Deserialize, Serialize};

use super::{OpError, TensorType, check};
use crate::DType;

/// Columns of the coefficient table.
pub const STEP_COLUMNS: usize = 8;

/// What the network predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prediction {
    /// The noise.
    Epsilon,
    /// The velocity, `√ᾱ · noise − √(1−ᾱ) · clean`.
    Velocity,
}

/// One row of the coefficient table: one step of a sampler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCoefficients {
    /// The sample's weight in the denoised sample.
    pub denoised_sample: f64,
    /// The guided prediction's weight in the denoised sample.
    pub denoised_prediction: f64,
    /// The sample's weight in the next sample.
    pub next_sample: f64,
    /// The denoised sample's weight in the next sample.
    pub next_denoised: f64,
    /// The previous step's denoised sample's weight in the next sample.
    pub next_history: f64,
    /// The fresh noise's weight in the next sample.
    pub next_noise: f64,
    /// What the next sample is multiplied by as the network's next input.
    pub input_scale: f64,
    /// The guided prediction's own weight in the next sample, if the denoised sample is clipped and does not contain
    /// it.
    pub next_prediction: f64,
}

impl StepCoefficients {
    /// An Euler step from noise level `sigma` to `next` (0 at the end), variance exploding.
    pub fn euler(prediction: Prediction, sigma: f64, next: f64) -> Self {
        let variance = sigma * sigma + 1.0;
        let (denoised_sample, denoised_prediction) = match prediction {
            Prediction::Epsilon => (1.0, -sigma),
            Prediction::Velocity => (1.0 / variance, -sigma / variance.sqrt()),
        };
        StepCoefficients {
            denoised_sample,
            denoised_prediction,
            next_sample: next / sigma,
            next_denoised: 1.0 - next / sigma,
            input_scale: 1.0 / (next * next + 1.0).sqrt(),
            ..StepCoefficients::default()
        }
    }

    /// A DDIM step from cumulative signal `alpha` (ᾱ) to `next`; `eta` of 1 is DDPM's noise, 0 none.
    pub fn ddim(prediction: Prediction, alpha: f64, next: f64, eta: f64) -> Self {
        let variance = (1.0 - next) / (1.0 - alpha) * (1.0 - alpha / next);
        let noise = eta * variance.max(0.0).sqrt();
        let direction = (1.0 - next - noise * noise).max(0.0).sqrt() / (1.0 - alpha).sqrt();
        StepCoefficients {
            next_sample: direction,
            next_denoised: next.sqrt() - direction * alpha.sqrt(),
            next_noise: noise,
            ..Self::variance_preserving(prediction, alpha)
        }
    }

    /// A DDIM step whose denoised sample is limited while the direction follows the prediction as it came: diffusers'
    /// step without `use_clipped_model_output`. If nothing is clipped, it equals [`ddim`](Self::ddim)'s step.
    pub fn ddim_clipped(prediction: Prediction, alpha: f64, next: f64, eta: f64) -> Self {
        let step = Self::ddim(prediction, alpha, next, eta);
        let (signal, noise) = (alpha.sqrt(), (1.0 - alpha).sqrt());
        // The noise in the sample, by the sample and the prediction.
        let (by_sample, by_prediction) = match prediction {
            Prediction::Epsilon => (0.0, 1.0),
            Prediction::Velocity => (noise, signal),
        };
        let direction = step.next_sample * noise;
        StepCoefficients {
            next_sample: direction * by_sample,
            next_denoised: next.sqrt(),
            next_prediction: direction * by_prediction,
            ..step
        }
    }

    /// A DPM-Solver++ 2M (midpoint) step between cumulative signals (ᾱ). `previous` is the level of the step before, if
    /// its denoised sample is to be used: never at the first step, nor if `next` is 1.
    pub fn dpm_solver_2m(prediction: Prediction, previous: Option<f64>, alpha: f64, next: f64) -> Self {
        let log_snr = |a: f64| 0.5 * (a / (1.0 - a)).ln();
        let sigma = |a: f64| (1.0 - a).sqrt();
        let step = log_snr(next) - log_snr(alpha);
        // α·(1 − e^(−h)): how far to go towards the denoised sample.
        let towards = next.sqrt() * -(-step).exp_m1();
        let (denoised, history) = match previous {
            Some(previous) if step.is_finite() => {
                let ratio = (log_snr(alpha) - log_snr(previous)) / step;
                (towards * (1.0 + 0.5 / ratio), -towards * 0.5 / ratio)
            }
            _ => (towards, 0.0),
        };
        StepCoefficients {
            next_sample: sigma(next) / sigma(alpha),
            next_denoised: denoised,
            next_history: history,
            ..Self::variance_preserving(prediction, alpha)
        }
    }

    /// A latent-consistency step from ᾱ `alpha` at `timestep`; `next` is the ᾱ to renoise to, `None` at the end.
    /// `timestep_scaling` is 10 and `sigma_data` 0.5 for the published models.
    pub fn lcm(
        prediction: Prediction,
        alpha: f64,
        next: Option<f64>,
        timestep: f64,
        timestep_scaling: f64,
        sigma_data: f64,
    ) -> Self {
        let (t2, d2) = ((timestep * timestep_scaling).powi(2), sigma_data * sigma_data);
        let (skip, out) = (d2 / (t2 + d2), (t2 / (t2 + d2)).sqrt());
        let keep = next.map_or(1.0, f64::sqrt);
        StepCoefficients {
            next_sample: keep * skip,
            next_denoised: keep * out,
            next_noise: next.map_or(0.0, |a| (1.0 - a).sqrt()),
            ..Self::variance_preserving(prediction, alpha)
        }
    }

    fn variance_preserving(prediction: Prediction, alpha: f64) -> Self {
        let (signal, noise) = (alpha.sqrt(), (1.0 - alpha).sqrt());
        let (denoised_sample, denoised_prediction) = match prediction {
            Prediction::Epsilon => (1.0 / signal, -noise / signal),
            Prediction::Velocity => (signal, -noise),
        };
        StepCoefficients { denoised_sample, denoised_prediction, input_scale: 1.0, ..Self::default() }
    }

    /// The row in the table's layout.
    pub fn row(&self) -> [f32; STEP_COLUMNS] {
        [
            self.denoised_sample as f32,
            self.denoised_prediction as f32,
            self.next_sample as f32,
            self.next_denoised as f32,
            self.next_history as f32,
            self.next_noise as f32,
            self.input_scale as f32,
            self.next_prediction as f32,
        ]
    }
}

/// One guided sampler step.
///
/// Operands: `sample [N, …]`; `prediction [N, …]`, or `[2N, …]` (unconditional half first) if guided; `table f32
/// [steps, 8]` of [`StepCoefficients`]; `step i32 [1]`; then, if set, `guidance f32 [1]` or `[frames]` with frames
/// dividing N, `history [N, …]`, `noise [N, …]`, and `previous [N, …]` with `strength f32 [1]`. Results: `next [N, …]`,
/// then, if set, the denoised sample, which no blend touches, and the scaled next input. A step outside the table is an
/// error when the op runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerStep {
    /// Classifier-free guidance: the prediction has two halves, and a guidance operand is given.
    #[serde(default)]
    pub guided: bool,
    /// The previous denoised sample is given (DPM-Solver++ 2M).
    #[serde(default)]
    pub history: bool,
    /// Fresh noise is given (LCM, DDIM with eta).
    #[serde(default)]
    pub noise: bool,
    /// The next sample of the frame before is given, and the strength by which this one moves towards it:
    /// [`TemporalBlend`](super::TemporalBlend) without a threshold.
    #[serde(default)]
    pub blend: bool,
    /// Limits the denoised sample to ± this.
    #[serde(default)]
    pub clip: Option<f32>,
    /// Also returns the denoised sample.
    #[serde(default)]
    pub emit_denoised: bool,
    /// Also returns the scaled next input.
    #[serde(default)]
    pub emit_scaled: bool,
}

/// The operands of a [`SamplerStep`], by role.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOperands<'a, T> {
    /// The noisy sample.
    pub sample: &'a T,
    /// The network's prediction.
    pub prediction: &'a T,
    /// The coefficient table.
    pub table: &'a T,
    /// The row of the table.
    pub step: &'a T,
    /// Guidance: one value, or one per frame.
    pub guidance: Option<&'a T>,
    /// The previous denoised sample.
    pub history: Option<&'a T>,
    /// Fresh noise.
    pub noise: Option<&'a T>,
    /// The next sample of the frame before.
    pub previous: Option<&'a T>,
    /// How far the next sample moves towards it.
    pub strength: Option<&'a T>,
}

impl SamplerStep {
    /// How many operands it takes.
    pub fn operand_count(&self) -> usize {
        let optional = [self.guided, self.history, self.noise, self.blend, self.blend];
        4 + optional.into_iter().filter(|&given| given).count()
    }

    /// The operands by role, for inputs whose count has been checked.
    pub fn operands<'a, T>(&self, inputs: &'a [T]) -> SamplerOperands<'a, T> {
        let mut optional = inputs[4..].iter();
        let mut take = |given: bool| if given { optional.next() } else { None };
        SamplerOperands {
            sample: &inputs[0],
            prediction: &inputs[1],
            table: &inputs[2],
            step: &inputs[3],
            guidance: take(self.guided),
            history: take(self.history),
            noise: take(self.noise),
            previous: take(self.blend),
            strength: take(self.blend),
        }
    }

    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, self.operand_count())?;
        let args = self.operands(inputs);
        let sample = *args.sample;
        check::float("sample", sample)?;
        check::min_rank("sample", sample, 1, "at least 1")?;
        check::float("prediction", args.prediction)?;
        let mut expected = sample.shape.to_vec();
        if self.guided {
            expected[0] =
                expected[0].checked_mul(2).ok_or_else(|| OpError::TooLarge(sample.shape.clone()))?;
        }
        check::shape("prediction", args.prediction, &expected)?;
        check::dtype("table", args.table, DType::F32, "f32")?;
        check::rank("table", args.table, 2, "2 (steps, 8)")?;
        check::shape("table", args.table, &[args.table.shape[0], STEP_COLUMNS])?;
        check::dtype("step", args.step, DType::I32, "i32")?;
        check::shape("step", args.step, &[1])?;
        if let Some(guidance) = args.guidance {
            check::dtype("guidance", guidance, DType::F32, "f32")?;
            check::rank("guidance", guidance, 1, "1")?;
            check::multiple("images", sample.shape[0], guidance.shape[0])?;
        }
        for (operand, name) in [(args.history, "history"), (args.noise, "noise"), (args.previous, "previous")]
        {
            if let Some(ty) = operand {
                check::float(name, ty)?;
                check::shape(name, ty, &sample.shape)?;
            }
        }
        if let Some(strength) = args.strength {
            check::dtype("strength", strength, DType::F32, "f32")?;
            check::shape("strength", strength, &[1])?;
        }
        if let Some(clip) = self.clip {
            check::finite_positive("clip", clip)?;
        }
        let outputs = 1 + usize::from(self.emit_denoised) + usize::from(self.emit_scaled);
        Ok(vec![sample.clone(); outputs])
    }
}
