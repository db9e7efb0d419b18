//! Findings, and the vector clocks that races are found with.

mod clocks;
mod excerpt;
mod finding;
mod lane_clocks;
mod sanitizer;

pub(crate) use clocks::{Clocks, join};
pub use excerpt::excerpt;
pub(crate) use finding::{Earlier, Findings, Seen};
pub use finding::{EarlierAccess, Finding, FindingKind, Severity, SourceLine};
pub(crate) use lane_clocks::LaneClocks;
