//! Predicts how long a kernel takes on a chip.
//!
//! Some blocks of the grid run on a multiprocessor that [keeps time](crate::timing), and the result is extrapolated to all blocks and
//! multiprocessors. L2 and DRAM, which all of them share, are further bounds. These and the launch cost make the prediction.

mod assumptions;
mod calibration;
mod footprint;
mod predict;
mod sample;

use serde::Serialize;

pub(crate) use assumptions::Assumed;
pub use assumptions::{Assumption, Mended};
pub use calibration::{Calibration, CalibrationError};
pub use predict::PredictOptions;

use crate::{
    counters::{ByLine, Counters, LineCounters},
    occupancy::Occupancy,
    timing::Stalls,
};

/// Something that can limit a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// The schedulers, which issue one warp instruction per clock.
    Issue,
    /// The 32-bit and 16-bit floating-point units.
    Float,
    /// The units for integers, comparisons and conversions.
    Integer,
    /// The 64-bit floating-point units.
    Double,
    /// The special-function units.
    Special,
    /// The tensor cores.
    Tensor,
    /// Shared memory and L1.
    Shared,
    /// The L2 cache.
    L2,
    /// Device memory.
    Dram,
    /// Nothing is busy: instructions wait for each other.
    Latency,
    /// The launch itself.
    Launch,
}

impl Resource {
    /// Its name in words.
    pub fn describe(self) -> &'static str {
        match self {
            Resource::Issue => "instruction issue",
            Resource::Float => "floating-point units",
            Resource::Integer => "integer units",
            Resource::Double => "double-precision units",
            Resource::Special => "special-function units",
            Resource::Tensor => "tensor cores",
            Resource::Shared => "shared memory",
            Resource::L2 => "L2",
            Resource::Dram => "DRAM",
            Resource::Latency => "latency",
            Resource::Launch => "the launch",
        }
    }
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
    /// Total seconds.
    pub seconds: f64,
    /// The launch's part of these.
    pub launch_seconds: f64,
    /// The multiprocessors' time.
    pub multiprocessor_seconds: f64,
    /// The L2 cache's time, which overlaps with theirs.
    pub l2_seconds: f64,
    /// The DRAM's time, which overlaps with both.
    pub dram_seconds: f64,
    /// How long a warp waits at barriers, on average.
    pub barrier_seconds: f64,
    /// What limits it.
    pub limiter: Resource,
    /// What would limit it next.
    pub next_limiter: Resource,
    /// How long each resource is busy, the busiest first.
    pub uses: Vec<ResourceUse>,
    /// How many blocks a multiprocessor holds, and why no more.
    pub occupancy: Occupancy,
    /// Registers per thread.
    pub registers: u32,
    /// How many times the grid fills the multiprocessors.
    pub waves: f64,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Blocks that were simulated.
    pub sampled_blocks: u64,
    /// Bytes to and from DRAM.
    pub dram_bytes: f64,
    /// Bytes to and from L2.
    pub l2_bytes: f64,
    /// The counters of the whole grid, extrapolated.
    pub counters: Counters,
    /// The counters and the waits of every line, if they were asked for.
    pub by_line: Option<ByLine<LinePrediction>>,
}

/// What a line of a kernel costs, and where its warps wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinePrediction {
    /// Its counters, extrapolated to the whole grid.
    #[serde(flatten)]
    pub line: LineCounters,
    /// How long an average warp is there.
    pub stalls: Stalls,
}
