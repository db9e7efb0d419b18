//! Why a clip could not be made.

use kinora_cpu::CpuError;
use kinora_graph::{
    plan::{PlanError, format_bytes},
    tensor::TensorError,
};
use kinora_models::{
    folder::FolderError, image::ImageError, networks::NetworkError, schedulers::SchedulerError,
};

use crate::video::VideoError;

/// Why a clip could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A setting of which no clip can be made.
    #[error("{setting} is {value}, but {rule}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// Two parts of a model do not fit each other.
    #[error("the model's parts do not fit each other: {what} is {got}, but must be {expected}, {with}")]
    Parts {
        /// What does not fit.
        what: &'static str,
        /// Its value.
        got: usize,
        /// What it has to fit.
        with: &'static str,
        /// The value that would.
        expected: usize,
    },
    /// More memory is needed than may be used. Nothing has been read or allocated.
    #[error("{plan}{}", advice(suggestion.as_ref()))]
    OverBudget {
        /// The first stage that does not fit, with what it needs and why.
        plan: Box<PlanError>,
        /// What to ask for instead, in words, and what the whole clip needs then.
        suggestion: Option<(String, usize)>,
    },
    /// The caller wanted no more.
    #[error("stopped before the clip was finished")]
    Cancelled,
    /// The model's folder or weights.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A network's configuration.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The scheduler.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// The photo or its preprocessing.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A network could not be prepared or run.
    #[error("{part}: {source}")]
    Run {
        /// The network.
        part: &'static str,
        /// What is wrong.
        source: CpuError,
    },
    /// A tensor between two networks: a fault of this crate, which no input should cause.
    #[error("internal error: {0}")]
    Tensor(#[from] TensorError),
    /// A frame: a fault of this crate, which no input should cause.
    #[error("internal error: {0}")]
    Frame(#[from] VideoError),
    /// A network did not give what it should: a fault of this crate, which no input should cause.
    #[error("internal error: {part} gave no {name}")]
    NoResult {
        /// The network.
        part: &'static str,
        /// The result.
        name: &'static str,
    },
}

fn advice(suggestion: Option<&(String, usize)>) -> String {
    match suggestion {
        Some((what, bytes)) => format!("; {what} would fit in {}", format_bytes(*bytes)),
        None => "; nothing smaller that was tried would fit".to_owned(),
    }
}
