//! Element types.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

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
            DType::U8 => 1,
        }
    }

    /// Whether the elements are floating point.
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
element!(f32 => F32, f16 => F16, bf16 => BF16, u8 => U8, i32 => I32);
