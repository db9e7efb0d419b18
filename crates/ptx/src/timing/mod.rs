//! The timing model of one multiprocessor.
//!
//! `machine` executes warps; this module keeps their time. Every register has a time at which its value is ready, every unit one at which
//! it is free. An instruction starts when its operands, its scheduler and its unit are ready. Warps run in the order of their
//! clocks, so that they compete for units as on the chip.

mod cache;
mod cost;
mod mended;
mod multiprocessor;
mod queue;
mod stalls;
mod warp;

pub(crate) use cache::{Footprint, SECTOR};
pub(crate) use cost::{Kind, costs};
pub(crate) use mended::MendedCosts;
pub(crate) use multiprocessor::{Clock, Rates, Unit as ClockUnit};
pub(crate) use stalls::StallsByInstruction;
pub use stalls::{StallReason, Stalls};
pub(crate) use warp::WarpClock;
