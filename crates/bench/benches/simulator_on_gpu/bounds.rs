//! What a kernel's instructions leave open, and how far its results may then be from the simulator's.

use kinora_graph::DType;
use kinora_ptx::RoundingLatitude;

/// The widest latitude that a kernel's instructions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Every result is defined to the bit.
    Exact,
    /// The assembler may fuse a product and a sum: one rounding less.
    Fused,
    /// Approximate functions: ours are closer to the exact ones than PTX promises, a chip's need not be.
    Approximate,
    /// Matrix products: a chip adds several products at a time, with guard bits and an order that are not published, and cuts
    /// off where the simulator rounds.
    Matrix,
    /// Atomic additions, in whichever order blocks come.
    Unordered,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 5] =
        [Class::Exact, Class::Fused, Class::Approximate, Class::Matrix, Class::Unordered];

    /// That of what kernels leave open.
    pub fn of(latitude: &RoundingLatitude) -> Class {
        match latitude {
            RoundingLatitude { unordered, .. } if !unordered.is_empty() => Class::Unordered,
            RoundingLatitude { matrix, .. } if !matrix.is_empty() => Class::Matrix,
            RoundingLatitude { approximate, .. } if !approximate.is_empty() => Class::Approximate,
            RoundingLatitude { fusible, .. } if !fusible.is_empty() => Class::Fused,
            _ => Class::Exact,
        }
    }

    /// The distance that results may have, in units of the last place of the element or of the tensor's root mean square,
    /// whichever is larger. Of 16 bits a rounding may fall to the other side, and once more where an intermediate result is
    /// of 16 bits too; f32 shows every place of the arithmetic.
    pub fn bound(self, dtype: DType) -> f64 {
        match (self, dtype) {
            (Class::Exact, _) => 0.0,
            (_, DType::U8 | DType::I32) => 1.0,
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
            Class::Fused => "the assembler may fuse products and sums",
            Class::Approximate => "approximate functions",
            Class::Matrix => "sums within the matrix units",
            Class::Unordered => "atomic additions in any order",
        }
    }
}
