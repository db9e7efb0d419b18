//! Tensors as TMA sees them.

use kinora_graph::DType;

use super::DevicePointer;

/// What TMA, the tensor memory accelerator, has to know about a tensor: see `cuTensorMapEncodeTiled`. The innermost axis
/// comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The first element.
    pub address: DevicePointer,
    /// The type of its elements.
    pub dtype: DType,
    /// How many axes there are, up to [`TENSOR_MAP_AXES`](super::limits::TENSOR_MAP_AXES).
    pub rank: usize,
    /// Their extents.
    pub extents: [u64; 5],
    /// Bytes from one element of an axis to the next, for every axis but the innermost.
    pub strides: [u64; 4],
    /// The extents of the box that is copied at a time.
    pub tile: [u32; 5],
    /// The width of the swizzle in bytes: 0, 32, 64 or 128.
    pub swizzle: u32,
}
