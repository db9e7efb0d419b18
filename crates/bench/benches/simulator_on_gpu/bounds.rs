//! How far a kernel's results may be from the simulator's, by what its instructions leave to the chip.

use kinora_graph::DType;
use kinora_ptx::RoundingLatitude;

/// The widest latitude that a kernel's instructions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Every result is defined to the bit.
    Exact,
    /// The assembler may fuse a multiplication and an addition: one rounding less.
    Fused,
    /// Approximate functions: the simulator's are closer to the exact result than PTX requires, a chip's need not be.
    Approximate,
    /// Matrix products: a chip adds several products at a time, in an order and with guard bits that are not published, and truncates
    /// instead of rounding.
    Matrix,
    /// Atomic additions, in any order of blocks.
    Unordered,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 5] =
        [Class::Exact, Class::Fused, Class::Approximate, Class::Matrix, Class::Unordered];

    /// The class of a kernel's rounding latitude.
    pub fn of(latitude: &RoundingLatitude) -> Class {
        match latitude {
            RoundingLatitude { unordered, .. } if !unordered.is_empty() => Class::Unordered,
            RoundingLatitude { matrix, .. } if !matrix.is_empty() => Class::Matrix,
            RoundingLatitude { approximate, .. } if !approximate.is_empty() => Class::Approximate,
            RoundingLatitude { fusible, .. } if !fusible.is_empty() => Class::Fused,
            _ => Class::Exact,
        }
    }

    /// The allowed distance, in units in the last place of the element or of the tensor's root mean square, whichever is larger. With
    /// 16 bits or fewer, a rounding may go the other way, and once more if an intermediate result has as few; f32 shows every digit of the
    /// arithmetic.
    pub fn bound(self, dtype: DType) -> f64 {
        match (self, dtype) {
            (Class::Exact, _) => 0.0,
            (_, DType::U8 | DType::I32) => 1.0,
            // A rounding that goes the other way, whatever the reason.
            (_, DType::F8E4M3) => 1.0,
            (Class::Fused, DType::F32) => 4.0,
            (Class::Fused | Class::Approximate, DType::F16 | DType::BF16) => 1.0,
            (Class::Approximate, DType::F32) => 16.0,
            (Class::Matrix | Class::Unordered, DType::F16 | DType::BF16) => 2.0,
            (Class::Matrix | Class::Unordered, DType::F32) => 64.0,
        }
    }

    /// Why its results may differ.
    pub fn reason(self) -> &'static str {
        match self {
            Class::Exact => "every instruction is defined to the bit",
            Class::Fused => "the assembler may fuse multiplications and additions",
            Class::Approximate => "approximate functions",
            Class::Matrix => "sums within matrix instructions",
            Class::Unordered => "atomic additions in any order",
        }
    }
}
