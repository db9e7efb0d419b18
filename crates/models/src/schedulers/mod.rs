//! Schedulers: which noise levels a run visits, and how a step goes from one to the next.
//!
//! A [`Scheduler`] is made from a `scheduler_config.json` as diffusers writes it, and gives a [`Schedule`] for a number of
//! steps: all that the denoising loop needs, as numbers. Every class becomes the linear form of
//! [`StepCoefficients`], so nothing after this module knows which scheduler runs.
//!
//! ```
//! use kinora_models::schedulers::{Scheduler, SchedulerKind};
//!
//! let config = serde_json::json!({
//!     "_class_name": "EulerDiscreteScheduler",
//!     "prediction_type": "v_prediction",
//!     "use_karras_sigmas": true,
//! });
//! let schedule = Scheduler::from_config(&config)?.schedule(25)?;
//! assert_eq!(schedule.timesteps.len(), 25);
//! // The same model with another scheduler, as diffusers' `DDIMScheduler.from_config(config)`.
//! let schedule = Scheduler::from_config_as(&config, SchedulerKind::Ddim)?.schedule(25)?;
//! assert_eq!(schedule.initial_noise_scale, 1.0);
//! # Ok::<(), kinora_models::schedulers::SchedulerError>(())
//! ```

mod config;
mod ddim;
mod dpm_solver;
mod error;
mod euler;
mod image_to_image;
mod kind;
mod lcm;
mod prediction;
mod spacing;
mod training;

use kinora_graph::op::{STEP_COLUMNS, StepCoefficients};
use serde_json::Value;

pub use config::parse_config;
pub use error::SchedulerError;
pub use image_to_image::ImageToImage;
pub use kind::SchedulerKind;
pub use training::linspace as torch_linspace;

use crate::{networks::denoise::SamplerNeeds, presets::Preset};
use config::Fields;

/// A run of a scheduler, as numbers.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The timestep that the network is given at each step.
    pub timesteps: Vec<f32>,
    /// The noise levels σ = √((1−ᾱ)/ᾱ): each step's, then where the last one ends.
    pub sigmas: Vec<f64>,
    /// What the sample is multiplied by as the network's input, at each step.
    pub input_scales: Vec<f64>,
    /// Each step's row of the sampler's table. If a row's `next_noise` is 0 no noise must be drawn for it.
    pub coefficients: Vec<StepCoefficients>,
    /// What normal noise is multiplied by to become the first sample.
    pub initial_noise_scale: f64,
    /// Steps read the denoised sample of the step before.
    pub needs_history: bool,
    /// Steps add fresh noise.
    pub needs_noise: bool,
    /// The limit of the denoised sample's magnitude.
    pub clip: Option<f32>,
}

impl Schedule {
    /// The table of coefficients, `[steps, 8]`.
    pub fn table(&self) -> Vec<[f32; STEP_COLUMNS]> {
        self.coefficients.iter().map(StepCoefficients::row).collect()
    }

    /// What a step needs beside the sample, the prediction and its row of the table.
    pub fn needs(&self) -> SamplerNeeds {
        SamplerNeeds { history: self.needs_history, noise: self.needs_noise, clip: self.clip }
    }

    /// Refuses what would divide by zero in a step.
    fn checked(self, class: &'static str) -> Result<Self, SchedulerError> {
        let steps = self.coefficients.len();
        let finite = |step: &StepCoefficients| step.row().iter().all(|number| number.is_finite());
        match self.coefficients.iter().position(|step| !finite(step)) {
            Some(step) => Err(SchedulerError::NotFinite { class, step: step + 1, steps }),
            None => Ok(self),
        }
    }
}

/// A scheduler of a model.
#[derive(Clone, Debug)]
pub struct Scheduler {
    class: Class,
}

#[derive(Clone, Debug)]
enum Class {
    Euler(euler::Euler),
    Ddim(ddim::Ddim),
    DpmSolver(dpm_solver::DpmSolver),
    Lcm(lcm::Lcm),
}

impl Scheduler {
    /// The scheduler that a `scheduler_config.json` describes, by its `_class_name`.
    ///
    /// # Errors
    /// If the class is not known, or a value makes no sense or is not supported; the error names it.
    pub fn from_config(config: &Value) -> Result<Self, SchedulerError> {
        let map = config.as_object().ok_or(SchedulerError::NotAnObject)?;
        let known = || SchedulerKind::ALL.map(SchedulerKind::class_name).join(", ");
        let class = map.get("_class_name").ok_or_else(|| SchedulerError::NoClass { known: known() })?;
        let kind = SchedulerKind::ALL.into_iter().find(|kind| class == kind.class_name());
        let kind = kind.ok_or_else(|| SchedulerError::UnknownClass {
            class: class.as_str().map_or_else(|| class.to_string(), str::to_owned),
            known: known(),
        })?;
        Self::from_config_as(config, kind)
    }

    /// A scheduler of another class on the same model, as diffusers' `from_config` makes it: fields that the class knows
    /// carry over, the others are left alone, and what is missing has the class's own default.
    ///
    /// # Errors
    /// If a value makes no sense or is not supported; the error names it.
    pub fn from_config_as(config: &Value, kind: SchedulerKind) -> Result<Self, SchedulerError> {
        let map = config.as_object().ok_or(SchedulerError::NotAnObject)?;
        let fields = Fields::new(kind.class_name(), map);
        let class = match kind {
            SchedulerKind::Euler => Class::Euler(euler::Euler::read(&fields)?),
            SchedulerKind::Ddim => Class::Ddim(ddim::Ddim::read(&fields)?),
            SchedulerKind::DpmSolver => Class::DpmSolver(dpm_solver::DpmSolver::read(&fields)?),
            SchedulerKind::Lcm => Class::Lcm(lcm::Lcm::read(&fields)?),
        };
        Ok(Scheduler { class })
    }

    /// The configuration that Stable Video Diffusion is published with.
    pub fn svd_config() -> Value {
        Preset::svd().model.scheduler
    }

    /// Stable Video Diffusion's scheduler.
    pub fn default_svd() -> Self {
        Self::from_config(&Self::svd_config()).expect("the published configuration is one we know")
    }

    /// Its kind.
    pub fn kind(&self) -> SchedulerKind {
        match self.class {
            Class::Euler(_) => SchedulerKind::Euler,
            Class::Ddim(_) => SchedulerKind::Ddim,
            Class::DpmSolver(_) => SchedulerKind::DpmSolver,
            Class::Lcm(_) => SchedulerKind::Lcm,
        }
    }

    /// DDIM's fresh noise: 0 (the default) adds none, 1 as much as DDPM.
    ///
    /// # Errors
    /// If the scheduler is another, or `eta` is outside 0 to 1.
    pub fn with_eta(mut self, eta: f64) -> Result<Self, SchedulerError> {
        let class = self.kind().class_name();
        match &mut self.class {
            Class::Ddim(_) if !(0.0..=1.0).contains(&eta) => Err(SchedulerError::Eta(eta)),
            Class::Ddim(ddim) => {
                ddim.eta = eta;
                Ok(self)
            }
            _ => Err(SchedulerError::NoEta { class }),
        }
    }

    /// The most steps that a run can have.
    pub fn most_steps(&self) -> usize {
        match &self.class {
            Class::Lcm(lcm) => lcm.original_steps,
            _ => self.trained(),
        }
    }

    /// A run of `steps` steps.
    ///
    /// # Errors
    /// If there are no steps, more than the model was trained with, or a step would divide by zero.
    pub fn schedule(&self, steps: usize) -> Result<Schedule, SchedulerError> {
        self.check_steps(steps)?;
        self.whole(steps)?.checked(self.kind().class_name())
    }

    /// How many timesteps the model was trained on.
    fn trained(&self) -> usize {
        match &self.class {
            Class::Euler(euler) => euler.training.len(),
            Class::Ddim(ddim) => ddim.training.len(),
            Class::DpmSolver(solver) => solver.training.len(),
            Class::Lcm(lcm) => lcm.training.len(),
        }
    }

    fn check_steps(&self, steps: usize) -> Result<(), SchedulerError> {
        let limit = self.most_steps();
        if (1..=limit).contains(&steps) {
            return Ok(());
        }
        let field = match self.class {
            Class::Lcm(_) => "original_inference_steps",
            _ => "num_train_timesteps",
        };
        Err(SchedulerError::Steps { class: self.kind().class_name(), steps, limit, field })
    }

    /// A run of `steps` steps that begins with noise.
    fn whole(&self, steps: usize) -> Result<Schedule, SchedulerError> {
        let class = self.kind().class_name();
        match &self.class {
            Class::Euler(euler) => Ok(euler.schedule(steps)),
            Class::Ddim(ddim) => ddim.schedule(class, steps),
            Class::DpmSolver(solver) => solver.schedule(class, steps, 0),
            Class::Lcm(lcm) => Ok(lcm.schedule(lcm.original_steps, steps)),
        }
    }
}
