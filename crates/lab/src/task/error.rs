//! What can be wrong with a task.

use std::{fmt, io, path::PathBuf};

/// Where something stands in a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The description's file.
    pub file: String,
    /// The line, counted from 1, if the description is a text with lines that its author knows.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// Why a task cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A file that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The text is no TOML, or not of the form of a task.
    #[error("{place}: {what}")]
    Form {
        /// Where.
        place: Place,
        /// What is wrong.
        what: String,
    },
    /// A field says what cannot be.
    #[error("{place}: {field}: {what}")]
    Field {
        /// Where.
        place: Place,
        /// The field, such as `kernel.grid`.
        field: String,
        /// What is wrong with it.
        what: String,
    },
    /// A Python file that does not declare a task.
    #[error("{0}")]
    Python(String),
}
