//! When things happen on one multiprocessor.
//!
//! The machine runs warps for what they compute; beside it, this keeps the time. Every register has a moment at which its
//! value is there, every unit one at which it is free; an instruction starts when its operands, its scheduler and its unit
//! are. Warps are run in the order of their time, so that those who share a unit meet there as on the chip.

mod cache;
mod cost;
mod multiprocessor;
mod queue;
mod warp;

pub(crate) use cache::{Footprint, SECTOR};
pub(crate) use cost::{Kind, costs};
pub(crate) use multiprocessor::{Clock, Rates, Unit as ClockUnit};
pub(crate) use warp::WarpClock;
