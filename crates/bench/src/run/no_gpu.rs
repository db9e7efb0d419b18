//! What stands in for GPUs in a build without CUDA.

use std::sync::Arc;

use kinora::device::OpenDeviceError;

use super::device::BenchDevice;
use crate::BenchError;

/// Refuses: this build has no CUDA support.
pub(super) fn open(_: usize) -> Result<Arc<dyn BenchDevice>, BenchError> {
    Err(OpenDeviceError::NoCuda.into())
}
