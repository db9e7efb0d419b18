//! What a kernel does wrong.

use std::{collections::HashMap, fmt};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[non_exhaustive]
pub enum FindingKind {
    /// An access outside every allocation, or beyond the end of one.
    OutOfBounds,
    /// An access at an address that is not a multiple of its size.
    Misaligned,
    /// An access to freed memory.
    UseAfterFree,
    /// A read of memory that was never written.
    Uninitialised,
    /// Two unordered accesses, at least one of which writes.
    Race,
    /// A barrier that only some threads of a warp reach.
    DivergentBarrier,
    /// A barrier that is used with different thread counts, or in a way that does not exist.
    BarrierMismatch,
    /// A warp-synchronous instruction that its lanes do not execute together.
    WarpSyncMismatch,
    /// All threads wait, and none can go on.
    Deadlock,
    /// An mbarrier that is used before it is initialised, or with more arrivals than it expects.
    MbarrierMisuse,
    /// Shared memory that threads write and TMA or `wgmma` reads without `fence.proxy.async` in between.
    MissingProxyFence,
    /// A bulk copy that its tensor map, address or size does not allow.
    TensorMap,
    /// A register of a `wgmma` that is accessed before `wgmma.wait_group`, or written without `wgmma.fence`.
    WgmmaInFlight,
    /// An infinity that originates from finite operands, or a NaN from operands that are not NaN.
    NotFinite,
    /// `trap`.
    Trap,
    /// A failed `assert`.
    Assert,
    /// A call through a pointer that does not point to a fitting function.
    InvalidCall,
    /// A call or an `alloca` for which a thread's stack has no room.
    StackOverflow,
    /// `free` of memory that was freed before, or that `malloc` did not return.
    InvalidFree,
    /// Memory from `malloc` that nothing points to when the launch ends.
    Leak,
    /// A kernel that did not finish within the limit of instructions.
    StepLimit,
}

impl FindingKind {
    fn suggestion(self) -> &'static str {
        match self {
            FindingKind::OutOfBounds => {
                "check the index against the extent before the access, in the last tile too"
            }
            FindingKind::Misaligned => {
                "align the address to the size of the access, or use a narrower access"
            }
            FindingKind::UseAfterFree => "free the memory after the last kernel that uses it",
            FindingKind::Uninitialised => {
                "write the memory before reading it, and do not read beyond what the tile covers"
            }
            FindingKind::Race => "order the two accesses with __syncthreads, __syncwarp or a wait",
            FindingKind::DivergentBarrier => {
                "move the barrier out of the branch, so that whole warps reach it"
            }
            FindingKind::BarrierMismatch => {
                "pass every use of a barrier the same number of threads, a multiple of 32"
            }
            FindingKind::WarpSyncMismatch => {
                "put exactly the lanes that execute the instruction into its member mask"
            }
            FindingKind::Deadlock => {
                "make sure that every wait gets its arrivals on every path, and waits for the right parity"
            }
            FindingKind::MbarrierMisuse => {
                "initialise the mbarrier once, with the number of arrivals per phase, and fence before its first use"
            }
            FindingKind::MissingProxyFence => {
                "execute fence.proxy.async in the writing threads, before the barrier that the reader waits at"
            }
            FindingKind::TensorMap => {
                "check the tensor map's rank, box, swizzle and alignment against the copy"
            }
            FindingKind::WgmmaInFlight => {
                "execute wgmma.wait_group before accessing accumulators, and wgmma.fence after writing them"
            }
            FindingKind::NotFinite => "guard against zero divisors and overflow, or compute in a wider type",
            FindingKind::Assert => "look at what the values in the condition are in this thread",
            FindingKind::InvalidCall => "set the pointer to a function of this signature before the call",
            FindingKind::StackOverflow => {
                "end the recursion earlier, or raise the limit of the stack as cudaDeviceSetLimit does"
            }
            FindingKind::InvalidFree => "free each pointer that malloc returned once",
            FindingKind::Leak => {
                "free the memory, or keep a pointer to it in global memory for a later launch"
            }
            FindingKind::Trap => "a trap usually is a failed assertion: find the condition before it",
            FindingKind::StepLimit => "look for a loop that never ends, or raise the limit for a long kernel",
        }
    }
}

/// A line of the source that PTX was compiled from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct SourceLine {
    /// The file, as it was named to the compiler.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
}

/// Something that a kernel did wrong. All occurrences of one kind at one instruction are one finding.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// The kernel.
    pub kernel: String,
    /// The source line, if the PTX has line information.
    pub source: Option<SourceLine>,
    /// The line of the call, if the source line is in an inlined function.
    pub called_at: Option<SourceLine>,
    /// The line in the PTX.
    pub ptx_line: u32,
    /// The first block that did it.
    pub block: [u32; 3],
    /// The thread of that block.
    pub thread: [u32; 3],
    /// The address that was accessed.
    pub address: Option<u64>,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub suggestion: String,
    /// How often it happened.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}", self.kind, self.kernel)?;
        if let Some(source) = &self.source {
            write!(f, " at {}:{}", source.file, source.line)?;
        }
        if let Some(caller) = &self.called_at {
            write!(f, ", called at {}:{}", caller.file, caller.line)?;
        }
        let [bx, by, bz] = self.block;
        let [tx, ty, tz] = self.thread;
        write!(f, " (PTX line {}), block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})", self.ptx_line)?;
        if let Some(address) = self.address {
            write!(f, ", address {address:#x}")?;
        }
        write!(f, ": {}", self.message)?;
        if self.count > 1 {
            write!(f, " ({} times)", self.count)?;
        }
        write!(f, "; {}", self.suggestion)
    }
}

/// A finding before its source line is looked up.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub kind: FindingKind,
    pub pc: u32,
    pub block: u64,
    pub thread: u32,
    pub address: Option<u64>,
    pub message: String,
    pub count: u64,
    /// Advice that replaces that of its kind.
    pub advice: Option<&'static str>,
}

impl Seen {
    /// What to do about it.
    pub fn suggestion(&self) -> &'static str {
        self.advice.unwrap_or_else(|| self.kind.suggestion())
    }
}

/// The findings of some blocks, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Seen>,
    index: HashMap<(FindingKind, u32), usize>,
}

impl Findings {
    /// Counts a finding, and makes it if it is new.
    pub fn add(
        &mut self,
        kind: FindingKind,
        pc: u32,
        make: impl FnOnce() -> (u64, u32, Option<u64>, String),
    ) {
        if let Some(&known) = self.index.get(&(kind, pc)) {
            self.all[known].count += 1;
            return;
        }
        let (block, thread, address, message) = make();
        self.index.insert((kind, pc), self.all.len());
        self.all.push(Seen { kind, pc, block, thread, address, message, count: 1, advice: None });
    }

    /// Gives a finding that has just been made its own advice.
    pub fn advise(&mut self, kind: FindingKind, pc: u32, advice: &'static str) {
        if let Some(&known) = self.index.get(&(kind, pc))
            && self.all[known].count == 1
        {
            self.all[known].advice = Some(advice);
        }
    }

    /// Adds the findings of other blocks.
    pub fn merge(&mut self, other: Findings) {
        for seen in other.all {
            match self.index.get(&(seen.kind, seen.pc)) {
                Some(&known) => {
                    let mine = &mut self.all[known];
                    let count = mine.count + seen.count;
                    if seen.block < mine.block {
                        *mine = seen;
                    }
                    mine.count = count;
                }
                None => {
                    self.index.insert((seen.kind, seen.pc), self.all.len());
                    self.all.push(seen);
                }
            }
        }
    }

    pub fn into_vec(mut self) -> Vec<Seen> {
        self.all.sort_by_key(|seen| (seen.pc, seen.kind));
        self.all
    }
}
