//! What a kernel does wrong, and how it is noticed.

mod clocks;
mod finding;

pub(crate) use clocks::{Clocks, join};
pub(crate) use finding::Findings;
pub use finding::{Finding, FindingKind, SourceLine};
