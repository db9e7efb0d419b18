//! What a lane computes, without memory: arithmetic, conversions, comparisons.

use super::{Type, Video};
use crate::numeric::Rounding;

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
    /// `bfind`: the position of the highest bit that differs from the sign; if set, its distance from the top instead.
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
    /// a · b - c and c - a · b, rounded once: what a contracted `sub` becomes. Always to nearest.
    MulSub,
    NegMulAdd,
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

/// How a result is rounded and what happens to it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub rounding: Rounding,
    /// Subnormal operands and results become zero.
    pub flush: bool,
    /// The result is clamped to [0, 1].
    pub saturate: bool,
    /// Negative results become zero.
    pub relu: bool,
    /// A sum, difference or product without a rounding modifier, which the assembler may contract.
    pub contractible: bool,
}

impl Mode {
    /// Round to nearest, nothing else.
    pub const PLAIN: Mode =
        Mode { rounding: Rounding::Nearest, flush: false, saturate: false, relu: false, contractible: false };
}

/// What a lane computes: a result from up to three operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alu {
    Move32,
    Move64,
    /// Two words to a long.
    Pack64,
    /// A long to two words: two results.
    Unpack64,
    /// Two 16-bit values to a word.
    Pack32,
    /// A word to two 16-bit values: two results.
    Unpack32,
    I16(Int),
    I32(Int),
    I64(Int),
    /// A product twice as wide as its factors: whether it is signed, and whether it has an addend.
    Wide16(bool, bool),
    Wide32(bool, bool),
    /// `prmt`: bytes of two words, chosen by a third operand.
    Permute,
    PermuteMode(PermuteMode),
    /// `lop3`: any function of three bits.
    Lookup(u8),
    /// `shf`: a shift across two words; the amount is clamped to 32, or taken modulo 32.
    Funnel {
        left: bool,
        clamp: bool,
    },
    /// `dp4a`: a dot product of four bytes, and which operands are signed.
    DotBytes(bool, bool),
    /// `dp2a`: a dot product of two halves and two bytes, the upper ones if set, and which operands are signed.
    DotHalves {
        a: bool,
        b: bool,
        high: bool,
    },
    /// `szext`: the lower bits of a word, extended.
    SignExtend {
        clamp: bool,
        signed: bool,
    },
    /// `fns`: the position of the n-th bit that is set.
    FindNthSet,
    Video(Video),
    Mul24 {
        high: bool,
        signed: bool,
    },
    F32(Float, Mode),
    F64(Float, Mode),
    /// One or two 16-bit numbers, f16 or bf16.
    Half {
        op: Float,
        mode: Mode,
        bf16: bool,
        pair: bool,
    },
    Select32,
    Select64,
    /// `slct`: the first operand if the third is not negative, else the second.
    SelectBySign32 {
        float: bool,
    },
    SelectBySign64 {
        float: bool,
    },
    /// `bmsk`: a mask of `b` bits starting at bit `a`.
    BitMask {
        clamp: bool,
    },
    Convert(Conversion),
}

impl Alu {
    /// Floating-point operations per lane: two for a fused multiply-add, one for other arithmetic, none for selections and sign
    /// changes.
    pub fn flops(self) -> u64 {
        let of = |op: Float| match op {
            Float::Fma | Float::MulSub | Float::NegMulAdd => 2,
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

    /// The bytes of a number in floating-point arithmetic.
    pub fn float_bytes(self) -> Option<usize> {
        match self {
            Alu::F32(..) => Some(4),
            Alu::F64(..) => Some(8),
            Alu::Half { .. } => Some(2),
            _ => None,
        }
    }
}

/// The special modes of `prmt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermuteMode {
    Forward4,
    Backward4,
    Replicate8,
    EdgeClampLeft,
    EdgeClampRight,
    Replicate16,
}

/// A conversion. A packed result has two operands, the upper half first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub to: Type,
    pub from: Type,
    pub mode: Mode,
    /// Results beyond the largest finite number become that number.
    pub finite: bool,
    /// The result is rounded to an integral value.
    pub integral: bool,
}

/// An addition, subtraction or multiply-add with the carry flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carry {
    pub op: CarryOp,
    pub wide: bool,
    /// Whether the carry is added.
    pub takes: bool,
    /// Whether the carry is written.
    pub gives: bool,
}

/// The operation of a [`Carry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    MadLow,
    MadHighS,
    MadHighU,
}

/// A comparison. The unordered ones (`…OrNan`) are true if an operand is NaN.
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
    /// The first predicate alone.
    Copy,
    Not,
}
