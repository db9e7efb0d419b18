//! What can be wrong with a profile.

use std::io;

/// Why a kept profile could not be read or written.
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
    /// Its text is not a profile's.
    #[error("{path} is not a profile: {source}")]
    Json {
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// It was written by another version.
    #[error(
        "{path} is not a profile that this version reads: its format is {format}, and this version reads {reads}"
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
        /// Where it does.
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
    /// Something that the device was seen to do.
    #[error("activity {number} ({name}) {fault}")]
    Activity {
        /// Its place among the activities.
        number: usize,
        /// Its name.
        name: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The samples of memory.
    #[error("the samples of memory are not in the order of time")]
    MemoryOrder,
    /// What the device was seen to do.
    #[error("the device's activities are not in the order of time")]
    ActivityOrder,
}

/// What is wrong with a span or an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no such lane.
    #[error("lies in lane {0}, which does not exist")]
    NoLane(usize),
    /// There is no such layer.
    #[error("is of a layer that does not exist")]
    NoLayer,
    /// Its end comes first.
    #[error("ends before it begins")]
    EndsBeforeItBegins,
    /// It overlaps another one of the same lane and parent.
    #[error("begins before the one before it has ended")]
    Overlaps,
    /// Its parent is in another lane.
    #[error("lies in another lane than its parent")]
    LaneOfParent,
    /// Its parent begins later or ends earlier.
    #[error("is not within its parent")]
    OutsideParent,
    /// Its parent comes later, or does not exist.
    #[error("has a parent that does not come before it")]
    NoParent,
}
