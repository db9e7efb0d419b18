//! How long a kernel would take on a chip.
//!
//! Some blocks of the grid run on one multiprocessor whose [time](crate::timing) is kept, and what they do is extrapolated to
//! all blocks and all multiprocessors. What the chip has only once, its memory, is a second bound. Both together with the
//! cost of a launch are the prediction.

mod calibration;
mod footprint;
mod predict;
mod sample;

use serde::Serialize;

pub use calibration::{Calibration, CalibrationError};
pub use predict::PredictOptions;

use crate::{counters::Counters, occupancy::Occupancy};

/// Something that a kernel's time may be limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// The schedulers, which start an instruction of a warp a clock.
    Issue,
    /// The units of 32-bit and 16-bit floating point.
    Float,
    /// The units of integers, comparisons and conversions.
    Integer,
    /// The units of 64-bit floating point.
    Double,
    /// The units of exponentials, roots and quotients.
    Special,
    /// The tensor cores.
    Tensor,
    /// Shared memory and the first-level cache.
    Shared,
    /// The second-level cache.
    L2,
    /// The memory.
    Dram,
    /// Nothing is busy: one thing waits for another.
    Latency,
    /// The launch itself.
    Launch,
}

/// How long a resource is busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ResourceUse {
    /// The resource.
    pub resource: Resource,
    /// Seconds.
    pub seconds: f64,
}

/// What a launch is predicted to take.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Seconds in all.
    pub seconds: f64,
    /// Of these, the launch.
    pub launch_seconds: f64,
    /// What the multiprocessors take.
    pub multiprocessor_seconds: f64,
    /// What the second-level cache takes, beside them.
    pub l2_seconds: f64,
    /// What the memory takes, beside both.
    pub dram_seconds: f64,
    /// What a warp waits at barriers for others of its block, on average.
    pub barrier_seconds: f64,
    /// What limits it.
    pub limiter: Resource,
    /// What would limit it next.
    pub next_limiter: Resource,
    /// How long each resource is busy, the busiest first.
    pub uses: Vec<ResourceUse>,
    /// How many blocks a multiprocessor holds, and why no more.
    pub occupancy: Occupancy,
    /// Registers of a thread.
    pub registers: u32,
    /// How often the multiprocessors are filled.
    pub waves: f64,
    /// Blocks of the grid, and those of them that were run.
    pub blocks: u64,
    /// As above.
    pub sampled_blocks: u64,
    /// Bytes from and to memory.
    pub dram_bytes: f64,
    /// Bytes between the second-level cache and the multiprocessors.
    pub l2_bytes: f64,
    /// What the whole grid does, extrapolated.
    pub counters: Counters,
}
