//! Runs that begin from a picture: which timesteps they visit, and how much of the picture is left at the first.

use kinora_graph::op::{STEP_COLUMNS, StepCoefficients};

use super::{Class, Schedule, Scheduler, error::SchedulerError};

/// Which timesteps a run from a picture visits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ImageToImage<'a> {
    /// By a strength above 0 and up to 1, of which 1 leaves nothing of the picture, as diffusers does it.
    ///
    /// LCM spreads `steps` steps over the less noisy share of its original ones, as
    /// `LatentConsistencyModelImg2ImgPipeline`. All others take the last `⌊steps · strength⌋` steps of a whole run, as
    /// `StableDiffusionImg2ImgPipeline`.
    Strength {
        /// Steps of a run whose strength is 1.
        steps: usize,
        /// How far the result may be from the picture.
        strength: f64,
    },
    /// These, each below the one before.
    Timesteps(&'a [usize]),
}

impl Scheduler {
    /// A run from a picture. [`Schedule::mix`] says how it begins.
    ///
    /// # Errors
    /// If no step is left, timesteps do not fall or are not the model's, the class takes none, or a step would divide
    /// by zero.
    pub fn image_to_image(&self, visits: ImageToImage<'_>) -> Result<Schedule, SchedulerError> {
        let class = self.kind().class_name();
        let schedule = match visits {
            ImageToImage::Strength { steps, strength } => self.by_strength(steps, strength)?,
            ImageToImage::Timesteps(timesteps) => self.explicit(timesteps)?,
        };
        schedule.checked(class)
    }

    /// `steps` timesteps for a strength, evenly spaced from `strength` of the trained ones down: what `trailing` spacing
    /// visits last if the strength is a whole number of its steps. Every strength has its own, so that a slider moves
    /// the picture smoothly.
    ///
    /// # Errors
    /// If the strength is not above 0 and up to 1, or leaves fewer timesteps than steps.
    pub fn trailing_timesteps(&self, steps: usize, strength: f64) -> Result<Vec<usize>, SchedulerError> {
        self.check_strength(steps, strength)?;
        let share = self.trained() as f64 * strength;
        let at = |i: usize| (share * (1.0 - i as f64 / steps as f64)).round_ties_even() as usize;
        let timesteps: Option<Vec<usize>> = (0..steps).map(|i| at(i).checked_sub(1)).collect();
        timesteps
            .filter(|timesteps| timesteps.is_sorted_by(|before, after| before > after))
            .ok_or(SchedulerError::NoStep { steps, strength })
    }

    fn check_strength(&self, steps: usize, strength: f64) -> Result<(), SchedulerError> {
        self.check_steps(steps)?;
        if strength > 0.0 && strength <= 1.0 { Ok(()) } else { Err(SchedulerError::Strength(strength)) }
    }

    fn by_strength(&self, steps: usize, strength: f64) -> Result<Schedule, SchedulerError> {
        self.check_strength(steps, strength)?;
        let class = self.kind().class_name();
        let none = SchedulerError::NoStep { steps, strength };
        if let Class::Lcm(lcm) = &self.class {
            let original = (lcm.original_steps as f64 * strength) as usize;
            return if original < steps { Err(none) } else { Ok(lcm.schedule(original, steps)) };
        }
        let kept = (steps as f64 * strength) as usize;
        let first = steps.checked_sub(kept).filter(|_| kept > 0).ok_or(none)?;
        let whole = match &self.class {
            Class::DpmSolver(solver) => solver.schedule(class, steps, first)?,
            _ => self.whole(steps)?,
        };
        Ok(whole.starting_at(first))
    }

    fn explicit(&self, timesteps: &[usize]) -> Result<Schedule, SchedulerError> {
        let class = self.kind().class_name();
        let last = self.trained() - 1;
        let rises = timesteps.windows(2).find(|pair| pair[0] <= pair[1]).map(|pair| pair[1]);
        let beyond = timesteps.first().copied().filter(|&timestep| timestep > last);
        if let Some(timestep) = beyond.or(rises) {
            return Err(SchedulerError::Order { timestep, last });
        }
        if timesteps.is_empty() {
            return Err(SchedulerError::NoTimesteps);
        }
        match &self.class {
            Class::Euler(euler) => euler.explicit(class, timesteps),
            Class::DpmSolver(solver) => solver.explicit(class, timesteps),
            Class::Lcm(lcm) => Ok(lcm.over(timesteps)),
            Class::Ddim(_) => Err(SchedulerError::Explicit { class, reason: "its steps have one length" }),
        }
    }
}

impl Schedule {
    /// The weights of a picture's latents and of normal noise in the first sample.
    pub fn mix(&self) -> [f64; 2] {
        if self.timesteps.is_empty() { [1.0, 0.0] } else { self.mix_at(0) }
    }

    /// The same in the sample of a step.
    fn mix_at(&self, step: usize) -> [f64; 2] {
        let (sigma, scale) = (self.sigmas[step], self.input_scales[step]);
        if sigma.is_infinite() {
            return [0.0, 1.0 / scale];
        }
        // Scaled for the network, every class's sample is (picture + σ · noise) / √(σ² + 1).
        let length = (sigma * sigma + 1.0).sqrt() * scale;
        [1.0 / length, sigma / length]
    }

    /// The table, `[steps, 8]`, that leads the noise in a sample to the noise in the next, as [`table`](Self::table) leads the
    /// sample: a step is linear, so the noise is what becomes of a sample without a picture. The last row is zeros, since
    /// no noise is left.
    pub fn noise_table(&self) -> Vec<[f32; STEP_COLUMNS]> {
        let last = self.coefficients.len().saturating_sub(1);
        let row = |(step, row): (usize, &StepCoefficients)| {
            if step == last {
                return [0.0; STEP_COLUMNS];
            }
            let [weight, next] = [step, step + 1].map(|step| self.mix_at(step)[1]);
            let row = StepCoefficients {
                denoised_sample: row.denoised_sample * weight,
                denoised_prediction: row.denoised_prediction,
                next_sample: row.next_sample * weight / next,
                next_denoised: row.next_denoised / next,
                next_noise: row.next_noise / next,
                next_prediction: row.next_prediction / next,
                ..StepCoefficients::default()
            };
            row.row()
        };
        self.coefficients.iter().enumerate().map(row).collect()
    }

    /// The run without its steps before `first`.
    fn starting_at(mut self, first: usize) -> Self {
        self.timesteps.drain(..first);
        self.sigmas.drain(..first);
        self.input_scales.drain(..first);
        self.coefficients.drain(..first);
        self
    }
}
