//! The memory of the simulated device.

mod access_records;
mod global;
mod grid_records;
mod shared;
mod tensor_map;
mod texture;

pub(crate) use access_records::{AccessRecords, Accessor, Conflict};
pub(crate) use global::{Allocation, Global, Missing, View};
pub(crate) use grid_records::{AccessClass, Earlier, GridAccess, GridRecords};
pub(crate) use shared::Shared;
pub use tensor_map::{MapElement, Swizzle, TensorMap, TensorMapError, TensorMapKind};
pub use texture::{
    AddressMode, ArrayDescription, ArrayKind, ChannelKind, DeviceArray, FilterMode, ReadMode, TexelFormat,
    TextureDescription, TextureError, TextureSource,
};
pub(crate) use texture::{Texels, Texture, Textures};

/// Where shared memory starts in the generic address space.
pub(crate) const SHARED_WINDOW: u64 = 0x7e00_0000_0000;
/// Where local memory starts.
pub(crate) const LOCAL_WINDOW: u64 = 0x7d00_0000_0000;
/// Where kernel arguments start.
pub(crate) const PARAMETER_WINDOW: u64 = 0x7c00_0000_0000;
/// Where the addresses of functions start, which hold no data.
pub(crate) const FUNCTION_WINDOW: u64 = 0x7b00_0000_0000;
/// Where global allocations start.
pub(crate) const GLOBAL_START: u64 = 0x7f00_0000_0000;
/// The size of the windows of shared memory, local memory and arguments.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;
/// In a cluster-wide shared address, the block's rank plus one is above this bit, the block's own address below.
pub(crate) const CLUSTER_SHIFT: u32 = 24;
