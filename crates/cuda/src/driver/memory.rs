//! The GPU's memory.

use cudarc::driver::sys::{self, CUresult};

use super::context::Context;
use crate::{CudaError, launch::DevicePointer};

/// Device memory, whose address is a multiple of 256. Freed when it is dropped, after the work that was given before.
#[derive(Debug)]
pub struct DeviceBuffer {
    address: DevicePointer,
    bytes: usize,
    context: Context,
}

impl DeviceBuffer {
    /// Allocates memory; what it holds is not known.
    ///
    /// # Errors
    /// If there is not so much left.
    pub fn new(context: &Context, bytes: usize) -> Result<DeviceBuffer, CudaError> {
        let mut address = 0;
        if bytes > 0 {
            let entered = context.enter()?;
            context.count_allocation();
            // SAFETY: a context is current, and the call writes one address.
            let code = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
            if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                let memory = context.memory()?;
                return Err(CudaError::OutOfMemory { need: bytes, free: memory.free, total: memory.total });
            }
            entered.check(code, "allocate the GPU's memory")?;
        }
        Ok(DeviceBuffer { address: DevicePointer::new(address), bytes, context: context.clone() })
    }

    /// The first byte; null if there is none.
    pub fn address(&self) -> DevicePointer {
        self.address
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.bytes > 0
            && let Ok(_entered) = self.context.enter()
        {
            // SAFETY: allocated above, and nothing refers to it any more; the driver waits for work under way.
            let _ = unsafe { sys::cuMemFree_v2(self.address.address()) };
        }
    }
}
