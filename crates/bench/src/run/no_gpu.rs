//! What stands in for GPUs in a build without CUDA.

use std::sync::Arc;

use kinora::device::OpenDeviceError;

use super::device::BenchDevice;
use crate::BenchError;

/// There is none.
pub(super) fn open(_: usize) -> Result<Arc<dyn BenchDevice>, BenchError> {
    Err(OpenDeviceError::NoCuda.into())
}
