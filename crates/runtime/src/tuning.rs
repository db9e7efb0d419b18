//! How far the tuning of a network is.

use std::ops::ControlFlow;

/// What a tuner is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuningStage {
    /// Compiling the candidates.
    Compile,
    /// Verifying and timing them, one call after the other.
    Measure,
}

/// How far a tuner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuningProgress {
    /// What it is doing.
    pub stage: TuningStage,
    /// How many kernels are compiled, or calls measured.
    pub done: usize,
    /// How many there are.
    pub total: usize,
}

/// Called with how far a tuner is; may stop it.
pub type TuningObserver<'a> = dyn FnMut(&TuningProgress) -> ControlFlow<()> + Send + 'a;
