//! Euler's method over sigmas (Karras et al. 2022, algorithm 2 without churn).

use kinora_graph::op::StepCoefficients;

use super::{
    Schedule,
    config::Fields,
    error::SchedulerError,
    prediction::Predicted,
    spacing::{
        FinalSigma, SigmaCurve, SigmaRange, Spacing, interpolate, leading, linspace, timesteps_of, trailing,
    },
    training::{self, Training},
};

#[derive(Clone, Debug)]
pub(super) struct Euler {
    pub(super) training: Training,
    predicted: Predicted,
    spacing: Spacing,
    steps_offset: i64,
    /// Sigmas even in ln σ over the whole trained range instead of those of the timesteps.
    log_linear: bool,
    curve: SigmaCurve,
    range: SigmaRange,
    /// The network is given ¼ ln σ.
    continuous: bool,
    last: FinalSigma,
}

impl Euler {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        let predicted = Predicted::read(fields)?;
        let continuous =
            fields.choice("timestep_type", "discrete", &[("discrete", false), ("continuous", true)])?;
        let log_linear =
            fields.choice("interpolation_type", "linear", &[("linear", false), ("log_linear", true)])?;
        let euler = Euler {
            training: Training::read_for_sigmas(fields)?,
            predicted,
            spacing: Spacing::read(fields, "linspace")?,
            steps_offset: fields.steps_offset()?,
            log_linear,
            curve: SigmaCurve::read(fields)?,
            range: SigmaRange::read(fields)?,
            // diffusers gives the timesteps themselves if the prediction is another.
            continuous: continuous && predicted == Predicted::Velocity,
            last: FinalSigma::read(fields)?,
        };
        if euler.continuous && euler.log_linear && euler.curve == SigmaCurve::Timesteps {
            // diffusers would run one step more than it was asked for.
            let supported = "use \"linear\" with continuous timesteps";
            return Err(fields.unsupported("interpolation_type", "log_linear", supported));
        }
        Ok(euler)
    }

    pub(super) fn schedule(&self, steps: usize) -> Schedule {
        self.over(self.spaced(steps))
    }

    /// A run over timesteps that are given.
    pub(super) fn explicit(
        &self,
        class: &'static str,
        timesteps: &[usize],
    ) -> Result<Schedule, SchedulerError> {
        self.curve.refuse_timesteps(class)?;
        let reason = match (self.continuous, self.log_linear) {
            (true, _) => "`timestep_type` \"continuous\" takes them from the sigmas",
            (_, true) => "`interpolation_type` \"log_linear\" takes no sigmas from them",
            (false, false) => {
                return Ok(self.over(timesteps.iter().map(|&timestep| timestep as f64).collect()));
            }
        };
        Err(SchedulerError::Explicit { class, reason })
    }

    fn over(&self, mut timesteps: Vec<f64>) -> Schedule {
        let steps = timesteps.len();
        let trained = self.training.sigmas();
        let mut sigmas: Vec<f64> = if self.log_linear {
            let [first, last] = [trained.first(), trained.last()].map(|s| s.copied().map_or(0.0, f32::ln));
            let logs = training::linspace(last.into(), first.into(), steps + 1);
            logs.into_iter().map(|log| f64::from(log.exp())).collect()
        } else {
            timesteps.iter().map(|&timestep| interpolate(&trained, timestep)).collect()
        };
        let [highest, lowest] = [sigmas.first(), sigmas.last()].map(|s| s.copied().unwrap_or(0.0));
        let (max, min) = (self.range.max.unwrap_or(highest), self.range.min.unwrap_or(lowest));
        if let Some(curve) = self.curve.sigmas(max, min, steps) {
            timesteps = timesteps_of(&curve, &trained);
            sigmas = curve;
        }
        sigmas.push(self.last.sigma(&trained));
        // diffusers keeps them in f32.
        let mut sigmas: Vec<f64> = sigmas.into_iter().map(|sigma| f64::from(sigma as f32)).collect();
        let highest = sigmas.iter().copied().fold(0.0, f64::max);
        // Even in ln σ there is one sigma more than is needed, and the run ends above the last.
        sigmas.truncate(steps + 1);
        let timesteps = if self.continuous {
            sigmas[..steps].iter().map(|&sigma| 0.25 * (sigma as f32).ln()).collect()
        } else {
            timesteps.into_iter().map(|timestep| timestep as f32).collect()
        };
        let scale = |sigma: f64| 1.0 / (sigma * sigma + 1.0).sqrt();
        Schedule {
            timesteps,
            input_scales: sigmas[..steps].iter().map(|&sigma| scale(sigma)).collect(),
            coefficients: sigmas
                .windows(2)
                .map(|pair| self.predicted.step(|kind| StepCoefficients::euler(kind, pair[0], pair[1])))
                .collect(),
            initial_noise_scale: match self.spacing {
                Spacing::Linspace | Spacing::Trailing => highest,
                Spacing::Leading => (highest * highest + 1.0).sqrt(),
            },
            sigmas,
            needs_history: false,
            needs_noise: false,
            clip: None,
        }
    }

    fn spaced(&self, steps: usize) -> Vec<f64> {
        let trained = self.training.len();
        match self.spacing {
            Spacing::Linspace => {
                let even = linspace(0.0, (trained - 1) as f64, steps);
                even.into_iter().rev().map(|timestep| f64::from(timestep as f32)).collect()
            }
            Spacing::Leading => leading(trained / steps, steps)
                .map(|timestep| (timestep + self.steps_offset) as f64)
                .collect(),
            Spacing::Trailing => {
                let ratio = trained as f64 / steps as f64;
                trailing(trained as f64, ratio, steps).map(|timestep| timestep as f64).collect()
            }
        }
    }
}
