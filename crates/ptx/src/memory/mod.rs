//! The memory of the simulated device.

mod access_records;
mod global;
mod shared;
mod tensor_map;

pub(crate) use access_records::{AccessRecords, Accessor, Conflict};
pub(crate) use global::{Allocation, Global, Missing, View};
pub(crate) use shared::Shared;
pub use tensor_map::{MapElement, Swizzle, TensorMap, TensorMapError, TensorMapKind};

/// Where spaces begin among generic addresses.
pub(crate) const SHARED_WINDOW: u64 = 0x7e00_0000_0000;
/// As above.
pub(crate) const LOCAL_WINDOW: u64 = 0x7d00_0000_0000;
/// As above.
pub(crate) const PARAMETER_WINDOW: u64 = 0x7c00_0000_0000;
/// Where allocations begin.
pub(crate) const GLOBAL_START: u64 = 0x7f00_0000_0000;
/// How large the windows are.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;
/// A block's shared memory as the cluster sees it: its rank and one above this bit, its own address below.
pub(crate) const CLUSTER_SHIFT: u32 = 24;
