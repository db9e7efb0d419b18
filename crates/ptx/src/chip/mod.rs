//! The chips that kernels are simulated for: what they allow, and how fast each of their parts is.

mod presets;

use serde::Serialize;

/// A chip. What it allows decides whether a kernel runs; how fast its parts are, what is predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChipSpec {
    /// Its name.
    pub name: String,
    /// Its compute capability, such as 9.0.
    pub capability: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block can have, in bytes.
    pub shared_bytes: usize,
    /// Blocks that a cluster can have; 1 where there are no clusters.
    pub cluster_blocks: u32,
    /// What a multiprocessor holds at a time.
    pub limits: Limits,
    /// Clocks of a multiprocessor in a second, boosted.
    pub clock_hz: f64,
    /// What a multiprocessor's units do in a clock.
    pub units: Units,
    /// Caches and memory.
    pub memory: MemorySystem,
    /// How long things take, in clocks.
    pub latencies: Latencies,
    /// Seconds from one launch in a stream to the next that does nothing.
    pub launch_seconds: f64,
}

/// What a multiprocessor holds at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Warps.
    pub warps: u32,
    /// Blocks.
    pub blocks: u32,
    /// Registers of 32 bits.
    pub registers: u32,
    /// Bytes of shared memory, of all its blocks.
    pub shared_bytes: usize,
    /// Bytes of shared memory that every block takes beside its own.
    pub reserved_shared_bytes: usize,
    /// Shared memory is given out in multiples of this.
    pub shared_granule: usize,
}

/// What the units of a multiprocessor do in a clock: results of lanes, or multiply-adds for the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Units {
    /// Schedulers, of which each starts one instruction of a warp.
    pub schedulers: u32,
    /// 32-bit multiply-adds.
    pub float: f64,
    /// Instructions on two 16-bit numbers.
    pub half: f64,
    /// 64-bit multiply-adds.
    pub double: f64,
    /// Integers, logic, comparisons, conversions.
    pub integer: f64,
    /// Exponentials, roots, quotients.
    pub special: f64,
    /// Lanes whose shuffles are served.
    pub shuffle: f64,
    /// Bytes of shared memory, or of the first-level cache.
    pub shared_bytes: f64,
    /// Multiply-adds of f16 or bf16 with sums in f32.
    pub tensor: f64,
    /// The share of that which products of a single warp (`mma`) reach.
    pub tensor_by_warp: f64,
}

/// Caches and memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemorySystem {
    /// Bytes of memory in a second.
    pub dram_bytes: f64,
    /// Bytes of the second-level cache.
    pub l2_bytes: usize,
    /// Bytes that the second-level cache gives or takes in a clock, all multiprocessors together.
    pub l2_rate: f64,
    /// Bytes that one multiprocessor takes from it in a clock.
    pub l2_port: f64,
    /// Bytes of a multiprocessor's first-level cache and shared memory together.
    pub l1_bytes: usize,
}

/// How long things take, in clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// Arithmetic.
    pub arithmetic: f64,
    /// Exponentials and their like.
    pub special: f64,
    /// A product of a warp.
    pub tensor: f64,
    /// Shared memory, and shuffles.
    pub shared: f64,
    /// A hit in the first-level cache.
    pub l1: f64,
    /// A hit in the second-level cache.
    pub l2: f64,
    /// Memory.
    pub dram: f64,
    /// What a copy by the bulk copy engine takes beside the memory's own latency.
    pub bulk_copy: f64,
    /// A barrier, from the last to come until all go on.
    pub barrier: f64,
    /// The start of a block.
    pub block: f64,
}

impl ChipSpec {
    /// Whether it runs code for a target such as `sm_80` or `sm_90a`; those with a letter are for one generation alone.
    pub fn runs(&self, target: &str) -> bool {
        let Some(number) = target.strip_prefix("sm_") else { return false };
        let exact = number.ends_with(['a', 'f']);
        let Ok(number) = number.trim_end_matches(['a', 'f']).parse::<u32>() else { return false };
        let wanted = (number / 10, number % 10);
        if exact { wanted == self.capability } else { wanted <= self.capability }
    }
}
