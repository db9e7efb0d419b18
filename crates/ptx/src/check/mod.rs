//! Findings, and the vector clocks that races are found with.

mod clocks;
mod finding;

pub(crate) use clocks::{Clocks, join};
pub use finding::{Finding, FindingKind, SourceLine};
pub(crate) use finding::{Findings, Seen};
