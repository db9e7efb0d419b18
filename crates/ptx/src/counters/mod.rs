//! Hardware counters of a simulated launch.
//!
//! They follow the definitions of Nsight Compute, so that `crates/crates/bench/peers/ncu_counters.py` can compare them with a chip's. Both count
//! what warps do, but these count PTX and a profiler counts machine code: the two differ if the assembler removes a load,
//! merges two or spills a register. An instruction whose predicate switches off all lanes makes no request on either side.

mod by_line;
mod class;
mod traffic;
mod wavefronts;

pub(crate) use by_line::CountersByInstruction;
pub use by_line::{ByLine, Flops, LineCounters};
use class::CLASSES;
pub use class::InstructionClass;
pub use traffic::Traffic;
pub(crate) use traffic::{LINE_BITS, SECTOR_BITS, atomic_passes};
pub(crate) use wavefronts::wavefronts;

fn by_class<S: serde::Serializer>(counts: &[u64; CLASSES], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(InstructionClass::ALL.iter().map(|class| (class.name(), counts[*class as usize])))
}

/// The counters of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Warp instructions by [`InstructionClass`].
    #[serde(serialize_with = "by_class")]
    pub instructions: [u64; CLASSES],
    /// Thread instructions: every warp instruction times its active lanes.
    pub thread_instructions: u64,
    /// Branches at which a warp diverged.
    pub divergent_branches: u64,
    /// Conditional and indexed branches.
    pub branches: u64,
    /// Reads of global memory by `ld` and `cp.async`, without constants, kernel arguments and TMA copies. A sector that `cp.async`
    /// writes to two 128-byte lines of shared memory counts twice.
    pub global_loads: Traffic,
    /// The `cp.async` part of these, as the profiler attributes it to instructions: a sector counts once for each 32 bytes of shared
    /// memory that it is written to, `sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_*`.
    pub async_loads: Traffic,
    /// Writes to global memory.
    pub global_stores: Traffic,
    /// Atomics and reductions on global memory.
    pub global_atomics: Traffic,
    /// The passes of atomics and reductions on global memory, each with at most one lane for an address: an instruction whose lanes all
    /// update one word takes a pass for each lane, one whose lanes update different words takes one pass.
    pub global_atomic_passes: u64,
    /// Reads of shared memory by threads: `ld` and `ldmatrix`.
    pub shared_loads: Traffic,
    /// Writes to shared memory by threads: `st` and `stmatrix`, not asynchronous copies.
    pub shared_stores: Traffic,
    /// Atomics and reductions on shared memory. A wavefront serves one lane per address: `n` lanes that update one word take `n`.
    pub shared_atomics: Traffic,
    /// Reads of local memory, `l1tex__t_*_pipe_lsu_mem_local_op_ld`: arrays and structs that the compiler could not keep in registers.
    /// Register spills do not appear in PTX, so they are not counted. Words of 4 bytes of neighbouring lanes are next to each other,
    /// so lanes that read the same element share sectors.
    pub local_loads: Traffic,
    /// Writes to local memory.
    pub local_stores: Traffic,
    /// Reads of textures. One of four neighbours that are filtered counts the sectors of all of them once.
    pub texture_loads: Traffic,
    /// Reads of surfaces.
    pub surface_loads: Traffic,
    /// Writes to surfaces.
    pub surface_stores: Traffic,
    /// Bytes that threads read from local memory.
    pub local_load_bytes: u64,
    /// Bytes that threads write to local memory.
    pub local_store_bytes: u64,
    /// Bytes that asynchronous copies (`cp.async`, TMA) bring into shared memory.
    pub copied_bytes: u64,
    /// Bulk copies that the TMA unit was given, in either direction.
    pub bulk_copies: u64,
    /// Atomic operations of threads.
    pub atomics: u64,
    /// Block barriers (`bar`, `barrier`) that warps executed.
    pub barriers: u64,
    /// Matrix instructions that warps issued: `mma` once, `wgmma` once in each of its four warps, as
    /// `sm__inst_executed_pipe_tensor_op_*` counts them.
    pub matrix_instructions: u64,
    /// Operations of matrix instructions: two per multiply-add.
    pub matrix_flops: u64,
    /// Floating-point operations of threads: two per fused multiply-add.
    pub thread_flops: u64,
}

impl Counters {
    /// Warp instructions of all classes.
    pub fn warp_instructions(&self) -> u64 {
        self.instructions.iter().sum()
    }

    /// Warp instructions of one class.
    pub fn class(&self, class: InstructionClass) -> u64 {
        self.instructions[class as usize]
    }

    /// The mean share of a warp's lanes that were active.
    pub fn lane_efficiency(&self) -> f64 {
        match self.warp_instructions() {
            0 => 1.0,
            warp => self.thread_instructions as f64 / (32 * warp) as f64,
        }
    }

    /// All counts times a factor, to extrapolate from some blocks to the grid.
    pub(crate) fn scaled(&self, factor: f64) -> Counters {
        let scale = |count: u64| (count as f64 * factor).round() as u64;
        let traffic = |traffic: &Traffic| Traffic {
            requests: scale(traffic.requests),
            transactions: scale(traffic.transactions),
            ideal_transactions: scale(traffic.ideal_transactions),
            conflicts: scale(traffic.conflicts),
            bytes: scale(traffic.bytes),
        };
        Counters {
            instructions: self.instructions.map(scale),
            thread_instructions: scale(self.thread_instructions),
            divergent_branches: scale(self.divergent_branches),
            branches: scale(self.branches),
            global_loads: traffic(&self.global_loads),
            async_loads: traffic(&self.async_loads),
            global_stores: traffic(&self.global_stores),
            global_atomics: traffic(&self.global_atomics),
            global_atomic_passes: scale(self.global_atomic_passes),
            shared_loads: traffic(&self.shared_loads),
            shared_stores: traffic(&self.shared_stores),
            shared_atomics: traffic(&self.shared_atomics),
            local_loads: traffic(&self.local_loads),
            local_stores: traffic(&self.local_stores),
            texture_loads: traffic(&self.texture_loads),
            surface_loads: traffic(&self.surface_loads),
            surface_stores: traffic(&self.surface_stores),
            local_load_bytes: scale(self.local_load_bytes),
            local_store_bytes: scale(self.local_store_bytes),
            copied_bytes: scale(self.copied_bytes),
            bulk_copies: scale(self.bulk_copies),
            atomics: scale(self.atomics),
            barriers: scale(self.barriers),
            matrix_instructions: scale(self.matrix_instructions),
            matrix_flops: scale(self.matrix_flops),
            thread_flops: scale(self.thread_flops),
        }
    }

    pub(crate) fn merge(&mut self, other: &Counters) {
        for (mine, theirs) in self.instructions.iter_mut().zip(other.instructions) {
            *mine += theirs;
        }
        self.thread_instructions += other.thread_instructions;
        self.divergent_branches += other.divergent_branches;
        self.branches += other.branches;
        self.global_loads.add(&other.global_loads);
        self.async_loads.add(&other.async_loads);
        self.global_stores.add(&other.global_stores);
        self.global_atomics.add(&other.global_atomics);
        self.global_atomic_passes += other.global_atomic_passes;
        self.shared_loads.add(&other.shared_loads);
        self.shared_stores.add(&other.shared_stores);
        self.shared_atomics.add(&other.shared_atomics);
        self.local_loads.add(&other.local_loads);
        self.local_stores.add(&other.local_stores);
        self.texture_loads.add(&other.texture_loads);
        self.surface_loads.add(&other.surface_loads);
        self.surface_stores.add(&other.surface_stores);
        self.local_load_bytes += other.local_load_bytes;
        self.local_store_bytes += other.local_store_bytes;
        self.copied_bytes += other.copied_bytes;
        self.bulk_copies += other.bulk_copies;
        self.atomics += other.atomics;
        self.barriers += other.barriers;
        self.matrix_instructions += other.matrix_instructions;
        self.matrix_flops += other.matrix_flops;
        self.thread_flops += other.thread_flops;
    }
}
