//! Findings, and the vector clocks that races are found with.

mod clocks;
mod finding;
mod grid_order;

pub(crate) use clocks::{Clocks, join};
pub use finding::{Finding, FindingKind, SourceLine};
pub(crate) use finding::{Findings, Seen};
pub(crate) use grid_order::{GridOrder, Known, MissingFence, Nearby};
