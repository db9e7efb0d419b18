//! DPM-Solver++ 2M (Lu et al. 2022): multistep, second order, midpoint.

use kinora_graph::op::StepCoefficients;

use super::{
    Schedule,
    config::Fields,
    error::SchedulerError,
    prediction::Predicted,
    spacing::{
        FinalSigma, SigmaCurve, SigmaRange, Spacing, interpolate, leading, linspace, timesteps_of, trailing,
    },
    training::Training,
};

/// Below this many steps `lower_order_final` takes the last one in first order.
const FEW_STEPS: usize = 15;

#[derive(Clone, Debug)]
pub(super) struct DpmSolver {
    pub(super) training: Training,
    predicted: Predicted,
    spacing: Spacing,
    steps_offset: i64,
    curve: SigmaCurve,
    range: SigmaRange,
    last: FinalSigma,
    lambda_min_clipped: f64,
    second_order: bool,
    lower_order_final: bool,
    euler_at_final: bool,
}

impl DpmSolver {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        const ALGORITHM: &str = "algorithm_type";
        let algorithm: String = fields.get(ALGORITHM, "dpmsolver++".to_owned(), "a name")?;
        if algorithm != "dpmsolver++" {
            return Err(fields.unsupported(ALGORITHM, algorithm, "use \"dpmsolver++\""));
        }
        let solver: String = fields.get("solver_type", "midpoint".to_owned(), "a name")?;
        // diffusers takes the other multistep solvers' types for "midpoint".
        if !["midpoint", "logrho", "bh1", "bh2"].contains(&solver.as_str()) {
            return Err(fields.unsupported("solver_type", solver, "use \"midpoint\""));
        }
        let order = fields.integer("solver_order", 2)?;
        if !(1..=2).contains(&order) {
            return Err(fields.unsupported("solver_order", order, "use 2 or 1"));
        }
        let variance: Option<String> = fields.get("variance_type", None, "a name, or null")?;
        if let Some(variance) = variance {
            return Err(fields.unsupported("variance_type", variance, "use null"));
        }
        fields.refuse_flag("thresholding", "set it to false")?;
        fields.refuse_flag("use_lu_lambdas", "use Karras, exponential or plain sigmas")?;
        fields.refuse_flag("use_flow_sigmas", "use Karras, exponential or plain sigmas")?;
        fields.refuse_flag("use_dynamic_shifting", "set it to false")?;
        Ok(DpmSolver {
            training: Training::read_for_sigmas(fields)?,
            predicted: Predicted::read(fields)?,
            spacing: Spacing::read(fields, "linspace")?,
            steps_offset: fields.steps_offset()?,
            curve: SigmaCurve::read(fields)?,
            // No fields of this class's own, but diffusers reads what another class's configuration left there.
            range: SigmaRange::read(fields)?,
            last: FinalSigma::read(fields)?,
            lambda_min_clipped: fields.extended_number("lambda_min_clipped", f64::NEG_INFINITY)?,
            second_order: order == 2,
            lower_order_final: fields.flag("lower_order_final", true)?,
            euler_at_final: fields.flag("euler_at_final", false)?,
        })
    }

    /// A run of which the steps before `first` are not taken.
    pub(super) fn schedule(
        &self,
        class: &'static str,
        steps: usize,
        first: usize,
    ) -> Result<Schedule, SchedulerError> {
        self.over(class, self.spaced(steps), first)
    }

    /// A run over timesteps that are given.
    pub(super) fn explicit(
        &self,
        class: &'static str,
        timesteps: &[usize],
    ) -> Result<Schedule, SchedulerError> {
        self.curve.refuse_timesteps(class)?;
        self.over(class, timesteps.iter().map(|&timestep| timestep as i64).collect(), 0)
    }

    fn over(
        &self,
        class: &'static str,
        mut timesteps: Vec<i64>,
        first: usize,
    ) -> Result<Schedule, SchedulerError> {
        let steps = timesteps.len();
        let trained = self.training.sigmas();
        let [smallest, largest] =
            [trained.first(), trained.last()].map(|s| s.copied().map_or(0.0, f64::from));
        let (max, min) = (self.range.max.unwrap_or(largest), self.range.min.unwrap_or(smallest));
        let mut sigmas = if let Some(sigmas) = self.curve.sigmas(max, min, steps) {
            let rounds = self.curve == SigmaCurve::Karras && !self.training.cosine;
            let whole = |t: f64| if rounds { t.round_ties_even() as i64 } else { t as i64 };
            timesteps = timesteps_of(&sigmas, &trained).into_iter().map(whole).collect();
            sigmas
        } else {
            let last = trained.len() - 1;
            if let Some(&timestep) = timesteps.iter().find(|t| !(0..=last as i64).contains(t)) {
                return Err(SchedulerError::Timestep { class, steps, timestep, last });
            }
            timesteps.iter().map(|&timestep| interpolate(&trained, timestep as f64)).collect()
        };
        sigmas.push(self.last.sigma(&trained));
        // diffusers keeps them in f32.
        let sigmas: Vec<f64> = sigmas.into_iter().map(|sigma| f64::from(sigma as f32)).collect();
        let alphas: Vec<f64> = sigmas.iter().map(|sigma| 1.0 / (sigma * sigma + 1.0)).collect();
        let coefficients: Vec<StepCoefficients> = (0..steps)
            .map(|i| {
                let previous = if self.reads_history(i, first, steps) { Some(alphas[i - 1]) } else { None };
                self.predicted
                    .step(|kind| StepCoefficients::dpm_solver_2m(kind, previous, alphas[i], alphas[i + 1]))
            })
            .collect();
        Ok(Schedule {
            timesteps: timesteps.iter().map(|&timestep| timestep as f32).collect(),
            sigmas,
            input_scales: vec![1.0; steps],
            needs_history: (0..steps).any(|i| self.reads_history(i, first, steps)),
            coefficients,
            initial_noise_scale: 1.0,
            needs_noise: false,
            clip: None,
        })
    }

    /// Whether a step of a run from `first` on is of second order.
    fn reads_history(&self, step: usize, first: usize, steps: usize) -> bool {
        let first_order_end = self.euler_at_final
            || self.lower_order_final && steps < FEW_STEPS
            || self.last == FinalSigma::Zero;
        self.second_order && step > first && !(step == steps - 1 && first_order_end)
    }

    fn spaced(&self, steps: usize) -> Vec<i64> {
        // Noise levels whose half log signal-to-noise ratio is below the limit are left out.
        let lambda = |alpha: f32| f64::from(alpha.sqrt().ln() - (1.0 - alpha).sqrt().ln());
        let left_out = self.training.alphas.iter().rev();
        let left_out = left_out.take_while(|alpha| lambda(**alpha) < self.lambda_min_clipped).count();
        let kept = self.training.len() - left_out;
        match self.spacing {
            Spacing::Linspace => {
                let even = linspace(0.0, kept as f64 - 1.0, steps + 1);
                even.into_iter().skip(1).rev().map(|timestep| timestep.round_ties_even() as i64).collect()
            }
            Spacing::Leading => {
                let timesteps = leading(kept / (steps + 1), steps + 1).take(steps);
                timesteps.map(|timestep| timestep + self.steps_offset).collect()
            }
            Spacing::Trailing => {
                let ratio = self.training.len() as f64 / steps as f64;
                trailing(kept as f64, ratio, steps).collect()
            }
        }
    }
}
