//! The arguments of a kernel.

use super::{CType, DevicePointer, StructValue, TensorMap};

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// An address.
    Pointer(DevicePointer),
    /// A 32-bit integer.
    I32(i32),
    /// A 64-bit integer.
    I64(i64),
    /// A 32-bit number.
    F32(f32),
    /// A struct by value.
    Struct(StructValue),
    /// A 128-byte descriptor for TMA, a `__grid_constant__` parameter. The driver encodes it when the program is loaded.
    TensorMap(TensorMap),
}

impl Argument {
    /// The type of the parameter that takes it.
    pub fn c_type(&self) -> CType {
        match self {
            Argument::Pointer(_) => CType::Pointer,
            Argument::I32(_) => CType::I32,
            Argument::I64(_) => CType::I64,
            Argument::F32(_) => CType::F32,
            Argument::Struct(value) => CType::Struct(value.layout().clone()),
            Argument::TensorMap(_) => CType::TensorMap,
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {
        $(impl From<$type> for Argument {
            fn from(value: $type) -> Argument {
                Argument::$variant(value)
            }
        })*
    };
}
from!(DevicePointer => Pointer, i32 => I32, i64 => I64, f32 => F32, StructValue => Struct, TensorMap => TensorMap);

/// The arguments of a launch, in the order of the kernel's parameters: `arguments![y, x, slab, epsilon]`.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::launch::Argument::from($value)),*]
    };
}
pub(crate) use arguments;
