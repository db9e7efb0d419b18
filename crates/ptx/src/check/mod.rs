//! Findings, and the vector clocks that races are found with.

mod clocks;
mod finding;
mod lane_clocks;

pub(crate) use clocks::{Clocks, join};
pub use finding::{Finding, FindingKind, Severity, SourceLine};
pub(crate) use finding::{Findings, Seen};
pub(crate) use lane_clocks::LaneClocks;
