//! The kinds of schedulers, by diffusers' names and by short ones.

use std::{fmt, str::FromStr};

use super::error::SchedulerError;

/// A scheduler's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerKind {
    /// Euler's method over sigmas.
    Euler,
    /// Denoising diffusion implicit models.
    Ddim,
    /// DPM-Solver++, second order, multistep.
    DpmSolver,
    /// Latent consistency models.
    Lcm,
}

impl SchedulerKind {
    /// All of them.
    pub const ALL: [SchedulerKind; 4] =
        [SchedulerKind::Euler, SchedulerKind::Ddim, SchedulerKind::DpmSolver, SchedulerKind::Lcm];

    /// The class's name in diffusers.
    pub fn class_name(self) -> &'static str {
        match self {
            SchedulerKind::Euler => "EulerDiscreteScheduler",
            SchedulerKind::Ddim => "DDIMScheduler",
            SchedulerKind::DpmSolver => "DPMSolverMultistepScheduler",
            SchedulerKind::Lcm => "LCMScheduler",
        }
    }

    /// The kind that runs a model which was published with a scheduler of this class: the same, or Euler's in place of
    /// two that have its noise levels. `None` if there is none.
    pub fn in_place_of(class: &str) -> Option<Self> {
        match class {
            "PNDMScheduler" | "EulerAncestralDiscreteScheduler" => Some(SchedulerKind::Euler),
            class => Self::ALL.into_iter().find(|kind| kind.class_name() == class),
        }
    }

    /// The short name.
    pub fn name(self) -> &'static str {
        match self {
            SchedulerKind::Euler => "euler",
            SchedulerKind::Ddim => "ddim",
            SchedulerKind::DpmSolver => "dpm++",
            SchedulerKind::Lcm => "lcm",
        }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl serde::Serialize for SchedulerKind {
    /// By the short name.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for SchedulerKind {
    type Err = SchedulerError;

    /// Reads a short name or a class's name.
    fn from_str(text: &str) -> Result<Self, SchedulerError> {
        let named = |kind: &SchedulerKind| kind.name() == text || kind.class_name() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| SchedulerError::UnknownClass {
            class: text.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}
