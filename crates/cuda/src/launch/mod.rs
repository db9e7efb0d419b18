//! What a launch is made of: a kernel, its typed arguments and the limits that it has to keep.
//!
//! This lies below both the [driver](crate::driver), which runs launches, and the [kernels](crate::kernels), which make
//! them. Nothing here needs a device.

mod argument;
mod kernel;
mod layout;
pub mod limits;
mod pointer;
mod tensor_map;

pub use argument::Argument;
pub(crate) use argument::arguments;
pub use kernel::{Kernel, Launch, Source};
pub(crate) use layout::c_struct;
pub use layout::{CType, Field, Layout, Plain, StructValue};
pub use pointer::DevicePointer;
pub use tensor_map::TensorMap;
