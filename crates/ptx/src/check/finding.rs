//! What a kernel does wrong.

use std::{collections::HashMap, fmt};

use super::sanitizer;
use crate::isa::Op;

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
    /// A number that is no handle of a texture or surface, the handle of one with other axes, or a texel that was written in the same
    /// launch.
    TextureMisuse,
    /// A register of a `wgmma` that is accessed before `wgmma.wait_group`, or written without `wgmma.fence`.
    WgmmaInFlight,
    /// An infinity that originates from finite operands, or a NaN from operands that are not NaN.
    NotFinite,
    /// Memory that a kernel reads as read-only data, by `ld.global.nc`, and writes.
    ReadOnlyWritten,
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
            FindingKind::TextureMisuse => {
                "pass the handle of a texture or surface with the axes that the function reads, and read texels in a later launch than they are written in"
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
            FindingKind::ReadOnlyWritten => {
                "read it without __ldg and without const __restrict__ on its pointer, or write it in another kernel"
            }
            FindingKind::Trap => "a trap usually is a failed assertion: find the condition before it",
            FindingKind::StepLimit => "look for a loop that never ends, or raise the limit for a long kernel",
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[non_exhaustive]
pub enum Severity {
    /// It need not change a result: a race between writes of the same value.
    Warning,
    /// It can make results wrong.
    Error,
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
    /// The kernel's name in the PTX.
    pub kernel: String,
    /// Its name in C++, with template arguments and parameters; the same if it is not mangled.
    pub function: String,
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
    /// The first and the last block that did it, in the order of their numbers.
    pub blocks: [[u32; 3]; 2],
    /// The first and the last thread that did it, whatever its block.
    pub threads: [[u32; 3]; 2],
    /// Of a race, the access that came before.
    pub earlier: Option<EarlierAccess>,
    /// The address that was accessed.
    pub address: Option<u64>,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub suggestion: String,
    /// How often it happened.
    pub count: u64,
    /// How bad it is.
    pub severity: Severity,
    /// Whether it is a race between writes that all write the same value.
    pub same_value: bool,
    /// What compute-sanitizer calls it.
    pub sanitizer: Option<String>,
}

/// The earlier one of two accesses that race.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EarlierAccess {
    /// Whether it wrote, or updated with an atomic; otherwise it read.
    pub wrote: bool,
    /// Its block.
    pub block: [u32; 3],
    /// Its thread; `None` if only its warp is known, or if it was a copy of the TMA unit.
    pub thread: Option<[u32; 3]>,
    /// Its source line, if only one line of the kernel can have made it.
    pub source: Option<SourceLine>,
    /// The first line of that in the PTX.
    pub ptx_line: Option<u32>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}", self.kind, self.function)?;
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
        if self.same_value {
            write!(f, " (both write the same value, so it need not change a result)")?;
        }
        if let Some(EarlierAccess { wrote, source: Some(source), .. }) = &self.earlier {
            let did = if *wrote { "write" } else { "read" };
            write!(f, "; the earlier {did} is at {}:{}", source.file, source.line)?;
        }
        if self.count > 1 {
            write!(f, " ({} times{})", self.count, self.ranges())?;
        }
        write!(f, "; {}", self.suggestion)?;
        match &self.sanitizer {
            Some(words) => write!(f, " [{words}]"),
            None => Ok(()),
        }
    }
}

impl Finding {
    /// The ranges of blocks and threads, as far as there are several.
    fn ranges(&self) -> String {
        let range = |what: &str, [first, last]: [[u32; 3]; 2]| {
            let place = |[x, y, z]: [u32; 3]| format!("({x}, {y}, {z})");
            if first == last {
                String::new()
            } else {
                format!(", {what} {} to {}", place(first), place(last))
            }
        };
        range("blocks", self.blocks) + &range("threads", self.threads)
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
    /// The first and the last block and thread that did it.
    pub blocks: (u64, u64),
    pub threads: (u32, u32),
    /// Of a race, the earlier access.
    pub earlier: Option<Earlier>,
    /// Advice that replaces that of its kind.
    pub advice: Option<&'static str>,
    /// Whether it is a race between writes that all wrote the same value.
    pub same_value: bool,
}

/// The earlier one of two accesses that race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub wrote: bool,
    pub block: u64,
    /// Its thread, or the first one of its warp.
    pub thread: u32,
    /// Whether it may be any thread of that warp.
    pub any_lane: bool,
}

impl Seen {
    /// What compute-sanitizer calls it.
    pub fn sanitizer(&self, op: &Op) -> Option<String> {
        sanitizer::words(self.kind, op, self.address, self.earlier.map(|earlier| earlier.wrote))
    }

    fn widen(&mut self, blocks: (u64, u64), threads: (u32, u32)) {
        self.blocks = (self.blocks.0.min(blocks.0), self.blocks.1.max(blocks.1));
        self.threads = (self.threads.0.min(threads.0), self.threads.1.max(threads.1));
    }

    /// What to do about it.
    pub fn suggestion(&self) -> &'static str {
        self.advice.unwrap_or_else(|| self.kind.suggestion())
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        if self.same_value { Severity::Warning } else { Severity::Error }
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
        let (blocks, threads) = ((block, block), (thread, thread));
        self.all.push(Seen {
            kind,
            pc,
            block,
            thread,
            address,
            message,
            count: 1,
            blocks,
            threads,
            earlier: None,
            advice: None,
            same_value: false,
        });
    }

    /// Counts a race, and makes it if it is new. Writes of the same value are a lesser race than any other: the first other one takes the
    /// place of theirs.
    pub fn add_race(
        &mut self,
        pc: u32,
        same_value: bool,
        make: impl FnOnce() -> (u64, u32, Option<u64>, String),
    ) {
        let known = self.index.get(&(FindingKind::Race, pc)).copied();
        match known {
            Some(known) if self.all[known].same_value && !same_value => {
                let (block, thread, address, message) = make();
                let mine = &mut self.all[known];
                let count = mine.count + 1;
                *mine = Seen {
                    block,
                    thread,
                    address,
                    message,
                    count,
                    same_value,
                    earlier: None,
                    ..mine.clone()
                };
            }
            Some(known) => self.all[known].count += 1,
            None => {
                self.add(FindingKind::Race, pc, make);
                if let Some(seen) = self.all.last_mut() {
                    seen.same_value = same_value;
                }
            }
        }
    }

    /// Whether a race at an instruction is new, or only of writes of the same value so far.
    pub fn asks_for_values(&self, pc: u32) -> bool {
        self.index.get(&(FindingKind::Race, pc)).is_none_or(|&known| self.all[known].same_value)
    }

    /// Says that a finding also occurred in this block and thread.
    pub fn widen(&mut self, kind: FindingKind, pc: u32, block: u64, thread: u32) {
        if let Some(&known) = self.index.get(&(kind, pc)) {
            self.all[known].widen((block, block), (thread, thread));
        }
    }

    /// Gives a race that has just been found its earlier access.
    pub fn set_earlier(&mut self, pc: u32, earlier: Earlier) {
        if let Some(&known) = self.index.get(&(FindingKind::Race, pc))
            && self.all[known].count == 1
        {
            self.all[known].earlier = Some(earlier);
        }
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
                    mine.widen(seen.blocks, seen.threads);
                    let (blocks, threads) = (mine.blocks, mine.threads);
                    let (worse, lesser) =
                        (mine.same_value && !seen.same_value, !mine.same_value && seen.same_value);
                    if worse || !lesser && seen.block < mine.block {
                        *mine = seen;
                    }
                    mine.count = count;
                    (mine.blocks, mine.threads) = (blocks, threads);
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
