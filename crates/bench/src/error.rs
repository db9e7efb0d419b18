//! Why a benchmark, or one of its cases, could not be run.

use std::{error::Error, fmt::Write as _, io, path::PathBuf};

use kinora::{device::OpenDeviceError, image_to_video::GenerateError};
use kinora_graph::{GraphError, tensor::TensorError};
use kinora_models::{
    folder::FolderError, image::ImageError, networks::NetworkError, synthetic::SyntheticError,
};
use kinora_runtime::RunError;

use crate::{filter::Unmatched, results::Results};

/// Why a benchmark, or one of its cases, could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Patterns that match no case.
    #[error("no case of {suites} matches {}", Unmatched::list(patterns))]
    NoMatch {
        /// The suites, by name.
        suites: String,
        /// The patterns, each with the names that come nearest to it.
        patterns: Vec<Unmatched>,
    },
    /// The table of cases, which is part of the program.
    #[error("the table of cases cannot be read")]
    Table(#[source] serde_json::Error),
    /// A case that cannot be prepared.
    #[error("the case {name} cannot be prepared")]
    Case {
        /// Its name.
        name: String,
        /// Why.
        source: Box<BenchError>,
    },
    /// A stage of a model that no network computes.
    #[error("there is no network for the stage {0}")]
    UnknownStage(String),
    /// The configuration of a network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The graph of a layer or a network.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An operand.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A network or layer that a backend cannot plan or run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A device that cannot be opened.
    #[error(transparent)]
    Device(#[from] OpenDeviceError),
    /// The synthetic model of the pipeline, which is written to a temporary folder.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
    /// The same model, when it is read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The photo that the pipeline starts from.
    #[error(transparent)]
    Photo(#[from] ImageError),
    /// The pipeline.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A run that left no result to compare, or no time.
    #[error("the run gave no {0}")]
    Nothing(&'static str),
    /// A file or folder.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was to be done: `read`, `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Python could not be started.
    #[error("cannot start {}", program.display())]
    StartPython {
        /// The interpreter.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An interpreter that cannot import PyTorch.
    #[error("{} cannot import PyTorch: {reason}", program.display())]
    NoTorch {
        /// The interpreter.
        program: PathBuf,
        /// The last line of its messages.
        reason: String,
    },
    /// The peer's process ended, or wrote something other than an answer.
    #[error("the peer stopped: {0}")]
    PeerStopped(String),
    /// An answer of the peer that lacks a field.
    #[error("the peer's answer has no {0}")]
    PeerAnswer(&'static str),
    /// The peer cannot run the case in this way; the text is its own.
    #[error("{0}")]
    PeerRefused(String),
    /// A benchmark's option without a value.
    #[error("{0} needs a value")]
    MissingValue(String),
    /// A benchmark's option with a value that cannot be read.
    #[error("{option} {value}: {source}")]
    BadValue {
        /// The option.
        option: String,
        /// The value.
        value: String,
        /// Why it cannot be read.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An option that a benchmark does not have.
    #[error("there is no option {0}")]
    UnknownOption(String),
    /// The observer stopped the run. What was measured before that is kept.
    #[error("stopped")]
    Stopped(Box<Results>),
}

impl BenchError {
    /// The error of a case.
    pub(crate) fn in_case(name: &str, error: BenchError) -> BenchError {
        BenchError::Case { name: name.to_owned(), source: Box::new(error) }
    }

    /// For `map_err`: a file or folder that could not be read or written.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> BenchError {
        let path = path.into();
        move |source| BenchError::File { action, path, source }
    }

    /// The message with those of its causes, for results, which keep text alone.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let message = error.to_string();
            // Some messages quote their cause.
            if !text.contains(&message) {
                let _ = write!(text, ": {message}");
            }
            cause = error.source();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_kept_and_quoted_once() {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such thing");
        let error = BenchError::file("read", "a.bin")(missing());
        assert_eq!(error.with_causes(), "cannot read a.bin: no such thing");
        let source = Box::new(missing());
        let error = BenchError::BadValue { option: "--turns".into(), value: "many".into(), source };
        assert_eq!(error.with_causes(), "--turns many: no such thing");
    }
}
