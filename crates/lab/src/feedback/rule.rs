//! What can slow a kernel down, and what to do about it.

use serde::Serialize;

/// An inefficiency that the feedback knows. Those that are easier to mend come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Rule {
    /// The launch takes longer than its work.
    LaunchBound,
    /// There are fewer blocks than multiprocessors.
    SmallGrid,
    /// Few multiprocessors have work at the end.
    TailWave,
    /// Few warps fit on a multiprocessor.
    LowOccupancy,
    /// Requests to global memory take more sectors than their bytes need.
    UncoalescedAccess,
    /// Requests to shared memory need one bank several times.
    BankConflicts,
    /// Lanes of a warp go different ways.
    Divergence,
    /// An array of each thread's own lies in memory.
    LocalMemory,
    /// Registers do not suffice, so that values are stored and loaded again.
    RegisterSpills,
    /// Atomics on one address wait for each other.
    AtomicContention,
    /// Arithmetic in f64, divisions and calls of library functions.
    SlowArithmetic,
    /// A block reads the same from global memory again and again.
    RepeatedLoads,
    /// Products of 16-bit numbers without tensor cores.
    TensorCoresUnused,
    /// Warps wait at a barrier for one that is late.
    BarrierStalls,
    /// Accesses of few bytes each.
    NarrowAccess,
    /// Warps wait for loads, and nothing hides it.
    ExposedLatency,
}

impl Rule {
    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Rule::LaunchBound => "Launch-bound",
            Rule::SmallGrid => "Grid smaller than the chip",
            Rule::TailWave => "Tail wave",
            Rule::LowOccupancy => "Low occupancy",
            Rule::UncoalescedAccess => "Uncoalesced global access",
            Rule::BankConflicts => "Shared-memory bank conflicts",
            Rule::Divergence => "Divergent warps",
            Rule::LocalMemory => "Local memory",
            Rule::RegisterSpills => "Register spills",
            Rule::AtomicContention => "Contended atomics",
            Rule::SlowArithmetic => "Slow arithmetic",
            Rule::RepeatedLoads => "Repeated global loads",
            Rule::TensorCoresUnused => "Tensor cores unused",
            Rule::BarrierStalls => "Barrier stalls",
            Rule::NarrowAccess => "Narrow global access",
            Rule::ExposedLatency => "Exposed memory latency",
        }
    }

    /// How easily it is mended: 1 for a repair of some lines or of the launch, less for a rewrite.
    pub(super) fn ease(self) -> f64 {
        match self {
            Rule::ExposedLatency | Rule::NarrowAccess => 0.6,
            _ => 1.0,
        }
    }

    /// What to try.
    pub fn advice(self) -> &'static str {
        match self {
            Rule::LaunchBound => {
                "do more work in one launch: fuse it with its neighbours, or batch several; or record a CUDA graph"
            }
            Rule::SmallGrid => {
                "divide the work among more blocks: smaller tiles, or a split of the depth with a second pass"
            }
            Rule::TailWave => {
                "make the number of blocks a multiple of what the chip holds at once, make blocks smaller, or let persistent \
                 blocks share the work"
            }
            Rule::LowOccupancy => {
                "let more warps fit: less shared memory or fewer registers for each block, or larger blocks if block slots are the limit"
            }
            Rule::UncoalescedAccess => {
                "let neighbouring threads access neighbouring addresses: change the layout or the mapping of threads, or go through \
                 shared memory"
            }
            Rule::BankConflicts => "pad the rows of the array by one element, or swizzle its columns",
            Rule::Divergence => {
                "let whole warps take the same branch: sort or regroup the work, or compute both ways without a branch if they are short"
            }
            Rule::LocalMemory => {
                "index the array by constants: unroll the loops over it, or keep it in shared memory"
            }
            Rule::RegisterSpills => {
                "give each thread less to hold, or allow it more registers with __launch_bounds__"
            }
            Rule::AtomicContention => {
                "combine within the warp or the block first, then one atomic each; or spread it over several addresses"
            }
            Rule::SlowArithmetic => {
                "write float literals (1.0f), multiply by a reciprocal, use intrinsics such as __expf where the accuracy allows it, or move the work out \
                 of the loop"
            }
            Rule::RepeatedLoads => {
                "load a tile into shared memory or registers once, and let the whole block use it"
            }
            Rule::TensorCoresUnused => {
                "compute the product with tensor cores: nvcuda::wmma, mma.sync, or wgmma on Hopper"
            }
            Rule::BarrierStalls => {
                "spread the work before the barrier over all warps, or wait for fewer of them (named barriers, mbarriers, double buffers)"
            }
            Rule::NarrowAccess => {
                "let each thread load and store 16 bytes at once (float4, uint4), and compute several results"
            }
            Rule::ExposedLatency => {
                "have more loads in flight: unroll the loop and load first, prefetch the next tile, or use cp.async"
            }
        }
    }
}
