//! The chips that can be simulated: their limits, and how fast each of their parts is.

mod presets;

use serde::Serialize;

/// A chip. Its limits decide whether a kernel can run, its rates and latencies what is predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChipSpec {
    /// Its name.
    pub name: String,
    /// Its compute capability, such as 9.0.
    pub capability: (u32, u32),
    /// The number of multiprocessors.
    pub multiprocessors: u32,
    /// The most shared memory that a block can have, in bytes.
    pub shared_bytes: usize,
    /// The most blocks that a cluster can have; 1 if there are no clusters.
    pub cluster_blocks: u32,
    /// What a multiprocessor holds at a time.
    pub limits: Limits,
    /// The boost clock of the multiprocessors.
    pub clock_hz: f64,
    /// What a multiprocessor's units do per clock.
    pub units: Units,
    /// Caches and memory.
    pub memory: MemorySystem,
    /// Latencies in clocks.
    pub latencies: Latencies,
    /// Seconds between two launches of an empty kernel in a stream.
    pub launch_seconds: f64,
}

/// What a multiprocessor holds at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Warps.
    pub warps: u32,
    /// Blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory for all its blocks.
    pub shared_bytes: usize,
    /// Bytes of shared memory that the system reserves per block.
    pub reserved_shared_bytes: usize,
    /// The allocation granularity of shared memory.
    pub shared_granule: usize,
}

/// What the units of a multiprocessor do per clock: lanes' results, or multiply-adds of the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Units {
    /// Schedulers, each of which issues one warp instruction per clock.
    pub schedulers: u32,
    /// 32-bit multiply-adds.
    pub float: f64,
    /// Packed 16-bit instructions.
    pub half: f64,
    /// 64-bit multiply-adds.
    pub double: f64,
    /// Integers, logic, comparisons, conversions.
    pub integer: f64,
    /// Exponentials, roots, reciprocals.
    pub special: f64,
    /// Shuffled lanes.
    pub shuffle: f64,
    /// Bytes of shared memory or L1.
    pub shared_bytes: f64,
    /// Multiply-adds of f16 or bf16 that accumulate in f32.
    pub tensor: f64,
    /// The share of that rate that warp-level `mma` reaches.
    pub tensor_by_warp: f64,
}

/// Caches and memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemorySystem {
    /// DRAM bytes per second.
    pub dram_bytes: f64,
    /// The size of L2.
    pub l2_bytes: usize,
    /// L2 bytes per clock, for all multiprocessors together.
    pub l2_rate: f64,
    /// L2 bytes per clock, for one multiprocessor.
    pub l2_port: f64,
    /// The size of a multiprocessor's L1 and shared memory together.
    pub l1_bytes: usize,
}

/// Latencies in clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// Arithmetic.
    pub arithmetic: f64,
    /// Special functions.
    pub special: f64,
    /// A warp-level matrix product.
    pub tensor: f64,
    /// Shared memory, and shuffles.
    pub shared: f64,
    /// An L1 hit.
    pub l1: f64,
    /// An L2 hit.
    pub l2: f64,
    /// A DRAM access.
    pub dram: f64,
    /// A TMA copy, in addition to the latency of memory.
    pub bulk_copy: f64,
    /// A barrier, from the last arrival until all go on.
    pub barrier: f64,
    /// The start of a block.
    pub block: f64,
}

impl ChipSpec {
    /// The floating-point operations that the tensor cores do per second at best: products of f16 that accumulate in f32.
    pub fn tensor_flops(&self) -> f64 {
        2.0 * self.units.tensor * f64::from(self.multiprocessors) * self.clock_hz
    }

    /// Whether it runs code for a target such as `sm_80` or `sm_90a`; targets with a letter run on one generation only.
    pub fn runs(&self, target: &str) -> bool {
        let Some(number) = target.strip_prefix("sm_") else { return false };
        let exact = number.ends_with(['a', 'f']);
        let Ok(number) = number.trim_end_matches(['a', 'f']).parse::<u32>() else { return false };
        let wanted = (number / 10, number % 10);
        if exact { wanted == self.capability } else { wanted <= self.capability }
    }
}
