//! What can be wrong with a scheduler's configuration, or with what is asked of it.

use serde_json::Value;
use thiserror::Error;

use crate::json::shown_value;

impl SchedulerError {
    /// Whether the scheduler's configuration is wrong, whatever is asked of it.
    pub fn is_of_configuration(&self) -> bool {
        match self {
            SchedulerError::Json(_)
            | SchedulerError::NotAnObject
            | SchedulerError::NoClass { .. }
            | SchedulerError::UnknownClass { .. }
            | SchedulerError::BadValue { .. }
            | SchedulerError::Unsupported { .. } => true,
            SchedulerError::Steps { .. }
            | SchedulerError::Timestep { .. }
            | SchedulerError::NotFinite { .. }
            | SchedulerError::Strength(_)
            | SchedulerError::NoStep { .. }
            | SchedulerError::NoTimesteps
            | SchedulerError::Order { .. }
            | SchedulerError::Explicit { .. }
            | SchedulerError::NoEta { .. }
            | SchedulerError::Eta(_) => false,
        }
    }
}

/// Why a scheduler cannot be made or run.
#[derive(Debug, Error)]
pub enum SchedulerError {
    /// The file is not JSON.
    #[error("the scheduler's configuration is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The configuration is not a JSON object.
    #[error("the scheduler's configuration must be a JSON object, fields by their names")]
    NotAnObject,
    /// The configuration names no class.
    #[error("the scheduler's configuration has no `_class_name`; name one of {known}")]
    NoClass {
        /// The classes we know.
        known: String,
    },
    /// The class is unknown.
    #[error("the scheduler `{class}` is not known; choose one of {known}")]
    UnknownClass {
        /// What was asked for.
        class: String,
        /// The classes we know.
        known: String,
    },
    /// A value that makes no sense.
    #[error("{class}: `{field}` is {}, but must be {expected}", shown_value(value))]
    BadValue {
        /// The scheduler's class.
        class: &'static str,
        /// The configuration's field.
        field: &'static str,
        /// Its value.
        value: Value,
        /// What it could be.
        expected: String,
    },
    /// A value that diffusers knows and we do not.
    #[error("{class}: `{field}` = {} is not supported; {supported}", shown_value(value))]
    Unsupported {
        /// The scheduler's class.
        class: &'static str,
        /// The configuration's field.
        field: &'static str,
        /// Its value.
        value: Value,
        /// What is supported instead.
        supported: &'static str,
    },
    /// No steps, or more than there are.
    #[error("{class} was asked for {steps} steps, but takes 1 to {limit} (`{field}`)")]
    Steps {
        /// The scheduler's class.
        class: &'static str,
        /// How many were asked for.
        steps: usize,
        /// The most there can be.
        limit: usize,
        /// The field that sets the limit.
        field: &'static str,
    },
    /// A timestep that the model was not trained on.
    #[error(
        "{class} with {steps} steps needs timestep {timestep}, but the model knows 0 to {last}; use fewer steps or another `steps_offset`"
    )]
    Timestep {
        /// The scheduler's class.
        class: &'static str,
        /// How many steps were asked for.
        steps: usize,
        /// The timestep.
        timestep: i64,
        /// The last one there is.
        last: usize,
    },
    /// A step that would divide by zero.
    #[error(
        "step {step} of {steps} of {class} would divide by zero: its noise level leaves nothing of the signal, or equals the next; use another step count, `prediction_type` \"v_prediction\", or no `rescale_betas_zero_snr`"
    )]
    NotFinite {
        /// The scheduler's class.
        class: &'static str,
        /// The step, from 1.
        step: usize,
        /// How many there are.
        steps: usize,
    },
    /// A strength outside its range.
    #[error(
        "the strength is {0}, but must be above 0 (the picture as it is) and at most 1 (nothing left of it)"
    )]
    Strength(f64),
    /// A strength that leaves too few steps.
    #[error("a strength of {strength} is too small for {steps} steps; use a larger one")]
    NoStep {
        /// How many steps were asked for.
        steps: usize,
        /// The strength.
        strength: f64,
    },
    /// An empty list of timesteps.
    #[error("the list of timesteps is empty; give at least one")]
    NoTimesteps,
    /// Timesteps that are not in order, or not the model's.
    #[error("timesteps must fall, from {last} at most, and {timestep} does not fit that")]
    Order {
        /// The first that does not fit.
        timestep: usize,
        /// The last one there is.
        last: usize,
    },
    /// Explicit timesteps asked of a scheduler that takes none.
    #[error("{class} takes no list of timesteps: {reason}; give a strength and a number of steps")]
    Explicit {
        /// The scheduler's class.
        class: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// Fresh noise asked of a scheduler that has none.
    #[error("{class} takes no eta; only DDIMScheduler does")]
    NoEta {
        /// The scheduler's class.
        class: &'static str,
    },
    /// An eta outside DDIM's range.
    #[error("eta is {0}, but must be from 0 (no fresh noise) to 1 (as much as DDPM)")]
    Eta(f64),
}
