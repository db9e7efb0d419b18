//! What a prediction assumes to be mended: how much a kernel could gain at most if one of its costs were gone.

use crate::check::SourceLine;

/// A cost that a prediction leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Assumption {
    /// Requests to global memory take the fewest sectors that could carry their bytes.
    Coalesced,
    /// Requests to shared memory have no bank conflicts.
    ConflictFree,
    /// Warps are full: an instruction costs the share of its lanes that execute it.
    FullWarps,
    /// Atomics on one address do not wait for each other.
    UncontendedAtomics,
    /// Local arrays are kept in registers.
    NoLocalMemory,
    /// Four neighbouring accesses, and what belongs to them, are one instruction.
    WideAccesses,
    /// Arithmetic in f64, divisions and special functions cost what a multiplication in f32 does.
    PlainArithmetic,
    /// Multiply-adds run on the tensor cores.
    TensorCores,
    /// What a block reads again from global memory comes from shared memory.
    KeptInSharedMemory,
    /// Eight loads are in flight instead of one: their latency is an eighth.
    LoadsInFlight,
}

/// A cost that a prediction leaves out at some lines of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    /// The cost.
    pub assumption: Assumption,
    /// The lines; none for the whole kernel.
    pub lines: Vec<SourceLine>,
}

/// The assumptions that hold for one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assumed(u16);

impl Assumed {
    #[inline(always)]
    pub fn has(self, assumption: Assumption) -> bool {
        self.0 >> assumption as u16 & 1 == 1
    }

    pub fn add(&mut self, assumption: Assumption) {
        self.0 |= 1 << assumption as u16;
    }
}
