//! Reports.

use std::{collections::HashMap, fmt};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[non_exhaustive]
pub enum FindingKind {
    /// An access outside every allocation, or beyond the end of one.
    OutOfBounds,
    /// An access at an address that is no multiple of its size.
    Misaligned,
    /// An access to memory that was freed.
    UseAfterFree,
    /// A read of memory that nobody wrote.
    Uninitialised,
    /// Two accesses, of which one writes, that nothing orders.
    Race,
    /// A barrier that only some threads of a warp run into.
    DivergentBarrier,
    /// A barrier whose threads do not agree on its number of threads.
    BarrierMismatch,
    /// An instruction of a warp that its lanes do not run together.
    WarpSyncMismatch,
    /// All threads wait, and nothing can wake them.
    Deadlock,
    /// An mbarrier that is used before it is made, or with more arrivals than it counts.
    MbarrierMisuse,
    /// Shared memory written by threads and read by the copy engine or a warpgroup's product without a fence between.
    MissingProxyFence,
    /// A bulk copy that its tensor map, its address or its size does not allow.
    TensorMap,
    /// A register of a warpgroup's product that is touched before the product was waited for, or without a fence before it.
    ProductInFlight,
    /// An infinity that comes out of finite operands, or a NaN that comes out of operands that are none.
    NotFinite,
    /// `trap`.
    Trap,
    /// A kernel that did not end within the limit on instructions.
    StepLimit,
}

impl FindingKind {
    fn suggestion(self) -> &'static str {
        match self {
            FindingKind::OutOfBounds => {
                "compare the index with the extent before the access, also in the last tile"
            }
            FindingKind::Misaligned => "vector accesses need addresses that are multiples of their size",
            FindingKind::UseAfterFree => "free memory only after the last kernel that uses it",
            FindingKind::Uninitialised => {
                "write the memory first, or do not read what the tile does not cover"
            }
            FindingKind::Race => {
                "put a barrier between the two accesses: __syncthreads, __syncwarp, or a wait"
            }
            FindingKind::DivergentBarrier => {
                "move the barrier out of the branch, so that whole warps run into it"
            }
            FindingKind::BarrierMismatch => "give the same number of threads everywhere, a multiple of 32",
            FindingKind::WarpSyncMismatch => "name only lanes in the mask that run the same instruction",
            FindingKind::Deadlock => {
                "see that every wait has its arrivals, on every path, with the right parity"
            }
            FindingKind::MbarrierMisuse => {
                "make the barrier once, with the number of arrivals of a phase, and fence"
            }
            FindingKind::MissingProxyFence => {
                "run fence.proxy.async in the threads that wrote, before the barrier that the reader waits at"
            }
            FindingKind::TensorMap => "compare the map's box, swizzle and alignment with the copy",
            FindingKind::ProductInFlight => {
                "wait with wgmma.wait_group before sums are touched, and run wgmma.fence after they were"
            }
            FindingKind::NotFinite => {
                "keep divisors from zero and exponents and sums within the type's range, or compute in a wider type"
            }
            FindingKind::Trap => "the kernel ended itself: an assertion failed",
            FindingKind::StepLimit => {
                "look for a loop that waits for something that never comes, or allow more steps for a long one"
            }
        }
    }
}

/// A line of the source that PTX was made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct SourceLine {
    /// The file, as the compiler knew it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// Something that a kernel did wrong. The same at the same instruction is one finding, however often it happens.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// The kernel.
    pub kernel: String,
    /// The line of the source, where the PTX has line information.
    pub source: Option<SourceLine>,
    /// The line that called the function which that line is in, where it was written into its caller.
    pub called_at: Option<SourceLine>,
    /// The line of the PTX.
    pub ptx_line: u32,
    /// The block in which it was seen first.
    pub block: [u32; 3],
    /// The thread of that block.
    pub thread: [u32; 3],
    /// The address that was accessed.
    pub address: Option<u64>,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub suggestion: String,
    /// How often it was seen.
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

/// A finding before names are known.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub kind: FindingKind,
    pub pc: u32,
    pub block: u64,
    pub thread: u32,
    pub address: Option<u64>,
    pub message: String,
    pub count: u64,
    /// Better advice than for others of its kind.
    pub advice: Option<&'static str>,
}

impl Seen {
    /// The report's own words for it.
    pub fn suggestion(&self) -> &'static str {
        self.advice.unwrap_or_else(|| self.kind.suggestion())
    }
}

/// Those of some blocks, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Seen>,
    index: HashMap<(FindingKind, u32), usize>,
}

impl Findings {
    /// Counts one that was seen before; otherwise makes it.
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

    /// Gives one that was just seen for the first time advice of its own.
    pub fn advise(&mut self, kind: FindingKind, pc: u32, advice: &'static str) {
        if let Some(&known) = self.index.get(&(kind, pc))
            && self.all[known].count == 1
        {
            self.all[known].advice = Some(advice);
        }
    }

    /// Adds those of other blocks.
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
