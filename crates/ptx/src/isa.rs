//! Instructions as they are executed: decoded once, with their operands in a list of registers.

use crate::{counters::InstructionClass, numeric::Rounding};

/// Which file an operand lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// 32 bits and less.
    Word,
    /// 64 bits.
    Long,
    /// A predicate: one bit a lane.
    Predicate,
}

/// A register, a constant, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Operand(u32);

const CONSTANT: u32 = 1 << 29;
const NEGATED: u32 = 1 << 28;
const INDEX: u32 = NEGATED - 1;

impl Operand {
    /// The `_` of PTX.
    pub const NONE: Operand = Operand(u32::MAX);

    /// How many registers or constants a kernel may have.
    pub const LIMIT: usize = INDEX as usize;

    pub fn register(class: Class, index: usize) -> Operand {
        Operand((class as u32) << 30 | (index as u32 & INDEX))
    }

    pub fn constant(class: Class, index: usize) -> Operand {
        Operand((class as u32) << 30 | CONSTANT | (index as u32 & INDEX))
    }

    #[must_use]
    pub fn negated(self) -> Operand {
        Operand(self.0 ^ NEGATED)
    }

    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0 == u32::MAX
    }

    #[inline(always)]
    pub fn is_constant(self) -> bool {
        self.0 & CONSTANT != 0
    }

    /// Of a predicate.
    #[inline(always)]
    pub fn is_negated(self) -> bool {
        self.0 & NEGATED != 0
    }

    #[inline(always)]
    pub fn index(self) -> usize {
        (self.0 & INDEX) as usize
    }

    pub fn class(self) -> Class {
        match self.0 >> 30 {
            0 => Class::Word,
            1 => Class::Long,
            _ => Class::Predicate,
        }
    }

    /// Whether it is a register, and not a constant or nothing.
    pub fn is_register(self) -> bool {
        !self.is_none() && !self.is_constant()
    }

    #[must_use]
    pub fn with_index(self, index: usize) -> Operand {
        Operand(self.0 & !INDEX | (index as u32 & INDEX))
    }
}

impl std::fmt::Debug for Operand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_none() {
            return write!(f, "_");
        }
        let kind = if self.is_constant() { "constant" } else { "register" };
        write!(f, "{:?} {kind} {}", self.class(), self.index())
    }
}

/// The type of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
    E4m3x2,
    E5m2x2,
    E4m3,
    E5m2,
    Pred,
}

impl Type {
    pub fn named(name: &str) -> Option<Type> {
        use Type::*;
        Some(match name {
            "b8" => B8,
            "b16" => B16,
            "b32" => B32,
            "b64" => B64,
            "b128" => B128,
            "u8" => U8,
            "u16" => U16,
            "u32" => U32,
            "u64" => U64,
            "s8" => S8,
            "s16" => S16,
            "s32" => S32,
            "s64" => S64,
            "f16" => F16,
            "f16x2" => F16x2,
            "bf16" => Bf16,
            "bf16x2" => Bf16x2,
            "tf32" => Tf32,
            "f32" => F32,
            "f64" => F64,
            "e4m3x2" => E4m3x2,
            "e5m2x2" => E5m2x2,
            "e4m3" => E4m3,
            "e5m2" => E5m2,
            "pred" => Pred,
            _ => return None,
        })
    }

    pub fn bytes(self) -> usize {
        use Type::*;
        match self {
            B8 | U8 | S8 | E4m3 | E5m2 | Pred => 1,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => 2,
            B32 | U32 | S32 | F32 | F16x2 | Bf16x2 | Tf32 => 4,
            B64 | U64 | S64 | F64 => 8,
            B128 => 16,
        }
    }

    pub fn class(self) -> Class {
        match self {
            Type::Pred => Class::Predicate,
            _ if self.bytes() == 8 => Class::Long,
            _ => Class::Word,
        }
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    pub fn is_float(self) -> bool {
        use Type::*;
        !matches!(self, B8 | B16 | B32 | B64 | B128 | U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64 | Pred)
    }
}

/// An operation on integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int {
    Add,
    Sub,
    AddSaturated,
    SubSaturated,
    Mul,
    MulHighS,
    MulHighU,
    Mad,
    MadHighS,
    MadHighU,
    DivS,
    DivU,
    RemS,
    RemU,
    MinS,
    MinU,
    MaxS,
    MaxU,
    Abs,
    Neg,
    And,
    Or,
    Xor,
    Not,
    LogicalNot,
    Shl,
    ShrS,
    ShrU,
    PopulationCount,
    LeadingZeros,
    Reverse,
    /// The place of the highest bit that is not the sign; with its distance from the top instead.
    FindS(bool),
    FindU(bool),
    ExtractS,
    ExtractU,
    Insert,
    DifferenceS,
    DifferenceU,
}

/// An operation on f32 or f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Reciprocal,
    SquareRoot,
    ReciprocalSquareRoot,
    Exp2,
    Log2,
    Sin,
    Cos,
    Tanh,
    Min,
    Max,
    MinNan,
    MaxNan,
    Neg,
    Abs,
    CopySign,
}

/// How a number is rounded and what is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub rounding: Rounding,
    /// Subnormals are taken for zeros, and given as zeros.
    pub flush: bool,
    /// The result is kept within 0 and 1.
    pub saturate: bool,
    /// Negative results become zero.
    pub relu: bool,
}

impl Mode {
    /// To the nearest, and nothing else.
    pub const PLAIN: Mode = Mode { rounding: Rounding::Nearest, flush: false, saturate: false, relu: false };
}

/// What happens in a lane, without memory: result, then up to three operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alu {
    Move32,
    Move64,
    /// Two words as a long.
    Pack64,
    /// A long as two words: two results.
    Unpack64,
    /// Two 16-bit values as a word.
    Pack32,
    /// A word as two 16-bit values: two results.
    Unpack32,
    I16(Int),
    I32(Int),
    I64(Int),
    /// A product twice as wide as its factors: 16 bits to 32, signed or not; and with an addend.
    Wide16(bool, bool),
    Wide32(bool, bool),
    /// Bytes of two words, chosen by a third.
    Permute,
    PermuteMode(PermuteMode),
    /// Any function of three bits.
    Lookup(u8),
    /// A shift of two words: to the left or not, the amount cut off at 32 or taken modulo 32.
    Funnel {
        left: bool,
        clamp: bool,
    },
    /// The sum of products of four bytes; which operands are signed.
    DotBytes(bool, bool),
    Mul24 {
        high: bool,
        signed: bool,
    },
    F32(Float, Mode),
    F64(Float, Mode),
    /// On one 16-bit number or two, of bf16 or f16.
    Half {
        op: Float,
        mode: Mode,
        bf16: bool,
        pair: bool,
    },
    Select32,
    Select64,
    /// The first where the third is not negative, else the second.
    SelectBySign32 {
        float: bool,
    },
    SelectBySign64 {
        float: bool,
    },
    /// A mask of `b` bits from bit `a` on.
    BitMask {
        clamp: bool,
    },
    Convert(Conversion),
}

impl Alu {
    /// Floating-point operations of a lane: two of a multiplication with an addition, one of other arithmetic, none of what chooses
    /// or changes a sign.
    pub fn flops(self) -> u64 {
        let of = |op: Float| match op {
            Float::Fma => 2,
            Float::Min
            | Float::Max
            | Float::MinNan
            | Float::MaxNan
            | Float::Neg
            | Float::Abs
            | Float::CopySign => 0,
            _ => 1,
        };
        match self {
            Alu::F32(op, _) | Alu::F64(op, _) | Alu::Half { op, pair: false, .. } => of(op),
            Alu::Half { op, pair: true, .. } => 2 * of(op),
            _ => 0,
        }
    }
}

/// Which bytes `prmt` takes, in its special modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermuteMode {
    Forward4,
    Backward4,
    Replicate8,
    EdgeClampLeft,
    EdgeClampRight,
    Replicate16,
}

/// A conversion. A packed result has two operands, the upper one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub to: Type,
    pub from: Type,
    pub mode: Mode,
    /// Results beyond the largest number become the largest.
    pub finite: bool,
    /// To an integral value.
    pub integral: bool,
}

/// An operation with the carry bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carry {
    pub op: CarryOp,
    pub wide: bool,
    /// Whether the carry is added.
    pub takes: bool,
    /// Whether the carry is written.
    pub gives: bool,
}

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    MadLow,
    MadHighS,
    MadHighU,
}

/// A comparison. Unordered ones are true where an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    EqOrNan,
    NeOrNan,
    LtOrNan,
    LeOrNan,
    GtOrNan,
    GeOrNan,
    Numbers,
    Nans,
}

/// How predicates are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
    /// Of the first alone.
    Copy,
    Not,
}

/// What the hardware tells.
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
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    Generic,
    Global,
    /// As global, but never written.
    Constant,
    /// Of the thread's own block.
    Shared,
    /// Of the cluster: the block's number is part of the address.
    SharedCluster,
    Local,
    /// The kernel's arguments.
    Parameter,
}

/// A load or a store: of `lanes` values of a type. Operands: the address, and for a store the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub memory: Memory,
    pub kind: Type,
    pub lanes: u8,
    pub offset: i64,
    /// Accesses that other threads' ones are expected beside: volatile, relaxed, acquire, release.
    pub strong: bool,
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

/// Whose value a shuffle gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What a vote gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// What a barrier of a block does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    Sync,
    Arrive,
    /// With a vote on a predicate.
    Popc,
    And,
    Or,
}

/// An operation on an mbarrier. Operands: results, the address, and what else it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mbarrier {
    Init,
    Invalidate,
    /// Whether bytes are expected with it, and whether the phase cannot be completed by it.
    Arrive {
        expect: bool,
        drop: bool,
        no_complete: bool,
    },
    ExpectTx,
    CompleteTx,
    /// By a parity or by a state; a try may be put to sleep.
    Wait {
        parity: bool,
        sleeps: bool,
    },
    /// How many arrivals a state still wants.
    PendingCount,
}

/// A matrix product of a warp.
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

/// A matrix product of a warpgroup. Operands: sums; then a's descriptor or registers, b's descriptor, whether to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wgmma {
    pub n: u16,
    pub k: u8,
    pub element: Type,
    pub b_element: Type,
    pub sum: Type,
    /// Whether a lies in registers.
    pub a_in_registers: bool,
    pub negate_a: bool,
    pub negate_b: bool,
    pub transpose_a: bool,
    pub transpose_b: bool,
}

/// Which way the copy engine copies, without or with a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BulkDirection {
    GlobalToShared,
    SharedToGlobal,
    SharedToCluster,
    /// Adds to global memory and the like.
    ReduceToGlobal(Atomic, Type),
}

/// A bulk copy with a tensor map.
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
    /// Orders memory accesses, for the block alone or beyond it.
    Memory { beyond_block: bool },
    /// Between ordinary accesses and those of the copy engine and of warpgroup products.
    AsyncProxy,
    /// Makes new mbarriers known to the cluster.
    MbarrierInit,
}

/// What an instruction does. Its operands are listed results first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Alu(Alu),
    Carry(Carry),
    Special(Special),
    /// Results: the predicate, and its opposite; operands: two values, and a predicate to combine with.
    SetPredicate {
        compare: Compare,
        kind: Type,
        combine: Logic,
        flush: bool,
    },
    /// A comparison whose result is a number.
    SetValue {
        compare: Compare,
        kind: Type,
        combine: Logic,
        flush: bool,
        float: bool,
    },
    /// Kinds of numbers: finite, infinite, number, NaN, normal, subnormal.
    TestNumber {
        test: u8,
        wide: bool,
    },
    Predicate(Logic),
    Load(Access),
    Store(Access),
    /// A result, unless it is a reduction; the address; one value or two.
    Atomic {
        memory: Memory,
        op: Atomic,
        kind: Type,
        offset: i64,
        reduction: bool,
    },
    Prefetch,
    ToGeneric(Memory),
    FromGeneric(Memory),
    /// Whether an address lies in a space.
    IsSpace(Memory),
    /// The same place in another block of the cluster.
    MapShared {
        generic: bool,
    },
    /// Which block of the cluster an address is of.
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
    /// A table of targets.
    BranchIndexed {
        table: u32,
    },
    Exit,
    Trap,
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
    /// Copies of 4, 8 or 16 bytes to shared memory: the addresses, and the bytes that are read.
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
    Mma(Mma),
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
    /// Nothing that a result depends on: `nanosleep`, `griddepcontrol`, `discard`.
    Nothing,
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub op: Op,
    /// A predicate that says which lanes run it.
    pub guard: Operand,
    /// Its operands in [`Program::operands`]: results first.
    pub first: u32,
    pub results: u16,
    pub operands: u16,
    /// Where it stands, in [`Program::lines`].
    pub line: u32,
    /// What it is counted as.
    pub class: InstructionClass,
    /// Whether it touches a register of a warpgroup's product, other than to copy it.
    pub touches_products: bool,
}

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// In the module's list of files, or none.
    pub file: u32,
    /// In that file.
    pub source: u32,
    /// The file and line that it was inlined at; no line where it was not.
    pub caller: (u32, u32),
    /// In the PTX.
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
    /// Where the lanes of a branch meet again, by instruction; `u32::MAX` where they do not.
    pub reconvergence: Vec<u32>,
    /// Registers of each class.
    pub word_count: usize,
    pub long_count: usize,
    pub predicate_count: usize,
    /// Bytes of local memory of a thread.
    pub local_bytes: usize,
    /// Bytes of static shared memory.
    pub shared_bytes: usize,
    /// The smallest access to global memory, and to shared memory.
    pub global_granule: usize,
    pub shared_granule: usize,
}
