//! What a network predicts.

use kinora_graph::op::{Prediction, StepCoefficients};

use super::{config::Fields, error::SchedulerError};

/// What the network predicts: the noise, the velocity, or the clean sample itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predicted {
    Epsilon,
    Velocity,
    Sample,
}

impl Predicted {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, SchedulerError> {
        fields.choice(
            "prediction_type",
            "epsilon",
            &[
                ("epsilon", Predicted::Epsilon),
                ("v_prediction", Predicted::Velocity),
                ("sample", Predicted::Sample),
            ],
        )
    }

    /// A step made by one of the graph's constructors. How a step goes on from the denoised sample does not depend on what
    /// was predicted; if that is the denoised sample itself, nothing has to be derived.
    pub(super) fn step(self, make: impl FnOnce(Prediction) -> StepCoefficients) -> StepCoefficients {
        match self {
            Predicted::Epsilon => make(Prediction::Epsilon),
            Predicted::Velocity => make(Prediction::Velocity),
            Predicted::Sample => StepCoefficients {
                denoised_sample: 0.0,
                denoised_prediction: 1.0,
                ..make(Prediction::Velocity)
            },
        }
    }
}
