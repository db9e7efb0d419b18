//! Instructions as they are executed: decoded once, with their operands in one list.

mod arithmetic;
mod calls;
mod memory;
mod operand;
mod texture;
mod types;
mod video;
mod wmma;

pub(crate) use arithmetic::{Alu, Carry, CarryOp, Compare, Conversion, Float, Int, Logic, Mode, PermuteMode};
pub(crate) use calls::{CallSite, FramePart, Subroutine, SystemCall, Unsupported};
pub(crate) use memory::{
    Access, AccessFacts, Atomic, Barrier, BulkDirection, Fence, Mbarrier, Memory, Mma, Scope, Semantics,
    SharedVariable, Shuffle, TensorCopy, Vote, Wgmma,
};
pub(crate) use operand::{Class, Operand};
pub(crate) use texture::{Boundary, SurfaceAccess, TextureAxes, TextureFetch, TextureQuery};
pub(crate) use types::Type;
pub(crate) use video::{Video, VideoOp};
pub(crate) use wmma::{ExactElement, ExactMma, FragmentAccess, Matrix};

use crate::counters::InstructionClass;

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    Clusterid(u8),
    Nclusterid(u8),
    ClusterCtarank,
    ClusterNctarank,
    LaneId,
    WarpId,
    NwarpId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    SmId,
    NsmId,
    GridId,
    Clock,
    Clock64,
    ClockHigh,
    GlobalTimer,
    DynamicSharedBytes,
    TotalSharedBytes,
    AggregateSharedBytes,
    /// Half of the address of a cooperative launch's workspace.
    Workspace {
        high: bool,
    },
}

/// What an instruction does. Its operands are listed after its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Alu(Alu),
    Carry(Carry),
    Special(Special),
    /// Results: the predicate and its complement. Operands: two values, and a predicate to combine with.
    SetPredicate {
        compare: Compare,
        kind: Type,
        combine: Logic,
        flush: bool,
    },
    /// `set`: a comparison whose result is a number.
    SetValue {
        compare: Compare,
        kind: Type,
        combine: Logic,
        flush: bool,
        float: bool,
    },
    /// `testp`: finite, infinite, number, NaN, normal or subnormal.
    TestNumber {
        test: u8,
        wide: bool,
    },
    Predicate(Logic),
    Load(Access),
    Store(Access),
    /// Operands: the result, unless it is a reduction; the address; one or two values.
    Atomic {
        memory: Memory,
        op: Atomic,
        kind: Type,
        offset: i64,
        reduction: bool,
        semantics: Semantics,
    },
    Prefetch,
    ToGeneric(Memory),
    FromGeneric(Memory),
    /// `isspacep`: whether a generic address belongs to a state space.
    IsSpace(Memory),
    /// `mapa`: the same offset in another block of the cluster.
    MapShared {
        generic: bool,
    },
    /// `getctarank`: the block of the cluster that an address belongs to.
    ClusterRankOf {
        generic: bool,
    },
    Shuffle(Shuffle),
    Vote(Vote),
    MatchAny {
        wide: bool,
    },
    MatchAll {
        wide: bool,
    },
    ActiveMask,
    Elect,
    ReduceWarp {
        op: Atomic,
        signed: bool,
    },
    WarpBarrier,
    Branch {
        target: u32,
    },
    /// `brx.idx`: a table of targets.
    BranchIndexed {
        table: u32,
    },
    Exit,
    Trap,
    /// A call that is not inlined: its index in [`Program::calls`]. Operands: the function pointer, if it takes one.
    Call {
        site: u32,
    },
    /// `ret` of a subroutine.
    Return,
    /// Where a subroutine's stack frame starts in local memory.
    FrameBase,
    /// `alloca`. Operands: the result, the number of bytes.
    AllocateStack {
        align: u16,
    },
    SaveStack,
    RestoreStack,
    /// A call of the device's run-time library. Operands: the result or nothing, the arguments.
    System(SystemCall),
    /// An instruction that the simulator cannot execute: its index in [`Program::unsupported`].
    Unsupported(u32),
    Barrier {
        kind: Barrier,
        aligned: bool,
        counted: bool,
    },
    ClusterArrive {
        release: bool,
    },
    ClusterWait,
    Fence(Fence),
    Mbarrier {
        op: Mbarrier,
        cluster: bool,
        offset: i64,
    },
    /// `cp.async` of 4, 8 or 16 bytes. Operands: the two addresses, and how many bytes are read; the rest is zero.
    AsyncCopy {
        bytes: u8,
        to: i64,
        from: i64,
    },
    AsyncCommit,
    AsyncWait {
        pending: u32,
    },
    AsyncArrive {
        increment: bool,
        offset: i64,
    },
    BulkCopy {
        direction: BulkDirection,
        multicast: bool,
    },
    TensorCopy(TensorCopy),
    BulkCommit,
    BulkWait {
        pending: u32,
        read: bool,
    },
    LoadMatrix {
        count: u8,
        transposed: bool,
        offset: i64,
    },
    StoreMatrix {
        count: u8,
        transposed: bool,
        offset: i64,
    },
    /// `movmatrix`: transposes 8 × 8 elements of 16 bits, two in each lane.
    TransposeMatrix,
    Mma(Mma),
    ExactMma(ExactMma),
    Texture(TextureFetch),
    /// Operands: the result and the handle.
    TextureQuery {
        query: TextureQuery,
        surface: bool,
    },
    LoadSurface(SurfaceAccess),
    StoreSurface(SurfaceAccess),
    /// `wmma.load`. Operands: the results, the address, the stride.
    LoadFragment(FragmentAccess),
    /// `wmma.store`. Operands: the address, the stride, the registers.
    StoreFragment(FragmentAccess),
    Wgmma(Wgmma),
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait {
        pending: u32,
    },
    SetRegisters {
        count: u32,
        more: bool,
    },
    /// Nothing that affects a result: `nanosleep`, `griddepcontrol`, `discard`.
    Nothing,
}

/// Which caches an access to memory goes through, for the timing model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Path {
    /// L1, then L2.
    #[default]
    Cached,
    /// L2 alone: `.cg`, `.cv`, volatile, and ordered accesses beyond the block.
    Uncached,
    /// None: the argument or the result of a function, which are in registers on the chip.
    CallParameter,
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub op: Op,
    /// The predicate that says which lanes execute it.
    pub guard: Operand,
    /// Its first operand in [`Program::operands`]; results come first.
    pub first: u32,
    pub results: u16,
    pub operands: u16,
    /// Its entry in [`Program::lines`].
    pub line: u32,
    /// The class that counts it.
    pub class: InstructionClass,
    /// Which caches it goes through.
    pub path: Path,
    /// Whether it accesses a register of a `wgmma`, other than to copy it.
    pub uses_wgmma_registers: bool,
    /// Whether it does, or is in [`Program::tracked`].
    pub watched: bool,
}

/// The registers of an instruction that may be undefined, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrackedRegisters {
    pub guard: Option<u16>,
    pub results: Vec<Option<u16>>,
    pub operands: Vec<Option<u16>>,
}

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The index in the module's list of files.
    pub file: u32,
    /// The line in that file, 0 if unknown.
    pub source: u32,
    /// The file and line that it was inlined at; line 0 if it was not.
    pub caller: (u32, u32),
    /// The line in the PTX.
    pub ptx: u32,
}

/// A kernel's code, ready to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub instructions: Vec<Instruction>,
    pub operands: Vec<Operand>,
    pub lines: Vec<Line>,
    pub words: Vec<u32>,
    pub longs: Vec<u64>,
    /// Targets of indexed branches.
    pub tables: Vec<Vec<u32>>,
    /// Functions that are called rather than inlined, and the calls.
    pub subroutines: Vec<Subroutine>,
    pub calls: Vec<CallSite>,
    pub unsupported: Vec<Unsupported>,
    /// Whether it calls `malloc` or `free`.
    pub uses_heap: bool,
    /// Where the lanes reconverge after each branch, by instruction; `u32::MAX` if they do not.
    pub reconvergence: Vec<u32>,
    /// How many registers of each class there are.
    pub word_count: usize,
    pub long_count: usize,
    pub predicate_count: usize,
    /// Bytes of local memory per thread, without the stack frames of subroutines.
    pub local_bytes: usize,
    /// Bytes of static shared memory per block.
    pub shared_bytes: usize,
    /// The size of the smallest access to global memory, and to shared memory.
    pub global_granule: usize,
    pub shared_granule: usize,
    /// Whether its results may depend on the order in which blocks run, other than by a race.
    pub depends_on_order: bool,
    /// What is known of each instruction's memory access.
    pub access_facts: Vec<AccessFacts>,
    /// The static shared variables, and the constants that are an address in one of them.
    pub shared_variables: Vec<SharedVariable>,
    pub address_constants: Vec<(Operand, u16)>,
    /// Loads and stores that copy bytes without using them, in order: for each register of the vector, the number of the copy.
    pub copies: Vec<(u32, Vec<Option<u32>>)>,
    pub copy_count: usize,
    /// Instructions that read or write registers that may be undefined, in order, and how many such registers there are.
    pub tracked: Vec<(u32, TrackedRegisters)>,
    pub tracked_count: usize,
    /// The sums that were contracted with a product.
    pub contracted: Vec<u32>,
    /// Whether it has both loads of read-only data and stores.
    pub read_only_writes: bool,
}

impl Program {
    /// An instruction's results and operands.
    #[inline(always)]
    pub fn operands_of(&self, instruction: &Instruction) -> &[Operand] {
        let first = instruction.first as usize;
        &self.operands[first..first + instruction.results as usize + instruction.operands as usize]
    }

    /// An instruction's results, and its operands.
    pub fn results_and_operands(&self, instruction: &Instruction) -> (&[Operand], &[Operand]) {
        self.operands_of(instruction).split_at(instruction.results as usize)
    }

    /// The value of a constant.
    pub fn constant(&self, operand: Operand) -> Option<u64> {
        if operand.is_none() || !operand.is_constant() {
            return None;
        }
        match operand.class() {
            Class::Word => self.words.get(operand.index()).map(|&word| u64::from(word)),
            Class::Long => self.longs.get(operand.index()).copied(),
            Class::Predicate => Some(operand.index() as u64),
        }
    }

    /// The bytes of an element of a load or store.
    pub fn element_bytes(&self, pc: u32) -> usize {
        match self.instructions[pc as usize].op {
            Op::Load(access) | Op::Store(access) => access.kind.bytes().clamp(1, 8),
            _ => 8,
        }
    }

    /// The registers of an instruction that are tracked.
    pub fn tracked_at(&self, pc: u32) -> Option<&TrackedRegisters> {
        let found = self.tracked.binary_search_by_key(&pc, |tracked| tracked.0);
        found.ok().map(|place| &self.tracked[place].1)
    }

    /// The copies of an instruction's registers, by number.
    pub fn copies_of(&self, pc: u32) -> &[Option<u32>] {
        let found = self.copies.binary_search_by_key(&pc, |copy| copy.0);
        found.map_or(&[], |place| &self.copies[place].1)
    }
}
