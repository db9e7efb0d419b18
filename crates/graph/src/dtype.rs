//! Element types.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::e4m3::E4M3;

/// The type of a tensor's elements.
///
/// Arithmetic is always f32 (or wider); a float type narrower than that is a storage format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit IEEE float.
    F32,
    /// 16-bit IEEE float.
    F16,
    /// The upper half of an f32.
    BF16,
    /// 8-bit float [`E4M3`]: operands of products.
    F8E4M3,
    /// Unsigned byte: pixels, and boolean masks (zero is false).
    U8,
    /// 32-bit signed integer: token ids, lengths, step counters.
    I32,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::F8E4M3 | DType::U8 => 1,
        }
    }

    /// Whether the elements are floats of a type that ops take anywhere. e4m3 has too few digits for that: only products take it.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3 => "e4m3",
            DType::U8 => "u8",
            DType::I32 => "i32",
        })
    }
}

/// A Rust type that a tensor can hold.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The matching element type.
    const DTYPE: DType;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),*) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
element!(f32 => F32, f16 => F16, bf16 => BF16, E4M3 => F8E4M3, u8 => U8, i32 => I32);
