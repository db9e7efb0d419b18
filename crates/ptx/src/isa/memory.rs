//! Memory accesses, synchronisation, asynchronous copies and matrix instructions.

use super::Type;

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    Generic,
    Global,
    /// Like global memory, but never written.
    Constant,
    /// The thread's own block.
    Shared,
    /// Any block of the cluster: its rank is part of the address.
    SharedCluster,
    Local,
    /// The kernel's arguments.
    Parameter,
}

/// A load or store of a vector of `lanes` values. Operands: the address, then the values of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub memory: Memory,
    pub kind: Type,
    pub lanes: u8,
    pub offset: i64,
    /// A strong access (volatile, relaxed, acquire, release), which may run concurrently with other threads' accesses.
    pub strong: bool,
    pub semantics: Semantics,
    /// Whether it is volatile.
    pub volatile: bool,
    /// Whether it is a load of data that nobody writes, which may come from a cache that is not coherent (`.nc`).
    pub non_coherent: bool,
}

/// The threads that a strong access or a fence takes part in the order of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Block,
    Cluster,
    /// `.gpu` and `.sys`, between which a single device cannot tell.
    #[default]
    Device,
}

/// What a strong access orders, and among whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Semantics {
    pub acquire: bool,
    pub release: bool,
    pub scope: Scope,
}

/// What is known of an instruction's memory access before the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessFacts {
    /// The bytes of a loaded vector that are used for more than storing them again, and those that are used in any way.
    pub used: u32,
    pub kept: u32,
    /// The shared variable, plus one, that the address is derived from; 0 if that is unknown.
    pub variable: u16,
    /// A volatile access to data, rather than to a flag that decides about a branch.
    pub volatile_data: bool,
    /// Whether it is in [`Program::copies`](super::Program::copies).
    pub copies: bool,
    /// A load of a local variable that is only chosen from afterwards, so that compilers may load it although it has no value.
    pub chosen: bool,
}

impl Default for AccessFacts {
    fn default() -> AccessFacts {
        AccessFacts {
            used: u32::MAX,
            kept: u32::MAX,
            variable: 0,
            volatile_data: false,
            copies: false,
            chosen: false,
        }
    }
}

/// A variable in a block's static shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedVariable {
    pub name: String,
    /// Its address.
    pub start: u64,
    pub bytes: u64,
}

/// What an atomic does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
}

/// Which lane's value a shuffle returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What a vote returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// What a block barrier does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    Sync,
    Arrive,
    /// The barrier also reduces a predicate over all threads.
    Popc,
    And,
    Or,
}

/// An mbarrier operation. Operands: results, the address, then the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mbarrier {
    Init,
    Invalidate,
    /// `expect`: it also expects bytes; `drop`: later phases expect one arrival less; `no_complete`: it cannot complete the phase.
    Arrive {
        expect: bool,
        drop: bool,
        no_complete: bool,
    },
    ExpectTx,
    CompleteTx,
    /// Waits for a phase by its parity or its state; `try_wait` may suspend the thread, `test_wait` does not.
    Wait {
        parity: bool,
        sleeps: bool,
    },
    /// How many arrivals are pending in a state.
    PendingCount,
}

/// A warp-level matrix product, `mma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mma {
    pub m: u8,
    pub n: u8,
    pub k: u16,
    pub a: Type,
    pub b: Type,
    pub sum: Type,
    pub saturate: bool,
}

/// A warpgroup-level matrix product, `wgmma`. Operands: the accumulators, the descriptor or registers of A, the descriptor of B,
/// and a predicate that says whether to accumulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wgmma {
    pub n: u16,
    pub k: u8,
    pub element: Type,
    pub b_element: Type,
    pub sum: Type,
    /// Whether A is in registers rather than in shared memory.
    pub a_in_registers: bool,
    pub negate_a: bool,
    pub negate_b: bool,
    pub transpose_a: bool,
    pub transpose_b: bool,
}

/// The direction of a bulk copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BulkDirection {
    GlobalToShared,
    SharedToGlobal,
    SharedToCluster,
    /// `cp.reduce`: combines with what global memory holds.
    ReduceToGlobal(Atomic, Type),
}

/// A bulk copy that is described by a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorCopy {
    pub rank: u8,
    pub im2col: bool,
    pub multicast: bool,
    pub direction: BulkDirection,
}

/// What a fence is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Orders memory accesses as the threads of a scope see them.
    Memory(Scope),
    /// Orders ordinary (generic proxy) accesses with those of TMA and `wgmma` (async proxy).
    AsyncProxy,
    /// Makes new mbarriers visible to the cluster.
    MbarrierInit,
}
