//! What can be wrong with a profile.

use std::io;

/// Why a saved profile could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What happened.
        source: io::Error,
    },
    /// Its text is not a profile.
    #[error("{path} is not a profile: {source}")]
    Json {
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// It was written by another version.
    #[error(
        "{path} is not a profile that this version reads: its format is {format}, but this version reads {reads}"
    )]
    Format {
        /// The file.
        path: String,
        /// Its format.
        format: u32,
        /// The format that can be read.
        reads: u32,
    },
    /// It contradicts itself.
    #[error("{path} is not a profile: {source}")]
    Inconsistent {
        /// The file.
        path: String,
        /// The contradiction.
        source: Inconsistency,
    },
}

/// Where a profile contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistency {
    /// A span.
    #[error("span {number} ({name}) {fault}")]
    Span {
        /// Its place among the spans.
        number: usize,
        /// Its name.
        name: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// An entry of the device's trace.
    #[error("activity {number} ({name}) {fault}")]
    Activity {
        /// Its place among the activities.
        number: usize,
        /// Its name.
        name: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The memory samples.
    #[error("the memory samples are not in chronological order")]
    MemoryOrder,
    /// The device's trace.
    #[error("the device's activities are not in chronological order")]
    ActivityOrder,
    /// Numbers that no run has.
    #[error("{what} add up to more than 2⁶³")]
    Sum {
        /// Which ones.
        what: &'static str,
    },
}

/// What is wrong with a span or an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no such lane.
    #[error("lies in lane {0}, which does not exist")]
    NoLane(usize),
    /// There is no such layer.
    #[error("refers to a layer that does not exist")]
    NoLayer,
    /// Its end comes first.
    #[error("ends before it begins")]
    EndsBeforeItBegins,
    /// It overlaps another one of the same lane and parent.
    #[error("begins before the one before it has ended")]
    Overlaps,
    /// Its parent is in another lane.
    #[error("lies in a lane other than its parent's")]
    LaneOfParent,
    /// Its parent begins later or ends earlier.
    #[error("is not within its parent")]
    OutsideParent,
    /// Its parent comes later, or does not exist.
    #[error("has a parent that does not come before it")]
    NoParent,
}
