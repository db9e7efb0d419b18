//! GPUs, if the program was built with them.

#[cfg(feature = "cuda")]
pub use present::{free_memory, open, works};

#[cfg(not(feature = "cuda"))]
pub use absent::{free_memory, open, works};

#[cfg(feature = "cuda")]
mod present {
    use std::sync::Arc;

    use kinora_cpu::CpuOps;
    use kinora_cuda::{CudaBackend, driver::Device};
    use kinora_runtime::{Backend, KernelSet, RunError, Tuning};

    use crate::{
        device::OpenDeviceError,
        memory::{LimitSource, MemoryLimit},
    };

    /// Opens a GPU by its number.
    pub fn open(
        ordinal: usize,
        kernels: KernelSet,
        tuning: Tuning,
    ) -> Result<Arc<dyn Backend>, OpenDeviceError> {
        let backend = Device::shared(ordinal)
            .and_then(|device| CudaBackend::new(device, kernels, tuning, CpuOps::shared()))
            .map_err(RunError::from)?;
        Ok(Arc::new(backend))
    }

    /// Whether a GPU can be used.
    pub fn works(ordinal: usize) -> bool {
        Device::shared(ordinal).is_ok()
    }

    /// The memory that is free on a GPU.
    pub fn free_memory(ordinal: usize) -> Result<MemoryLimit, OpenDeviceError> {
        let memory = Device::shared(ordinal).and_then(|device| device.memory()).map_err(RunError::from)?;
        Ok(MemoryLimit { bytes: memory.free as u64, source: LimitSource::Gpu })
    }
}

#[cfg(not(feature = "cuda"))]
mod absent {
    use std::sync::Arc;

    use kinora_runtime::{Backend, KernelSet, Tuning};

    use crate::{device::OpenDeviceError, memory::MemoryLimit};

    pub fn open(_: usize, _: KernelSet, _: Tuning) -> Result<Arc<dyn Backend>, OpenDeviceError> {
        Err(OpenDeviceError::NoCuda)
    }

    pub fn works(_: usize) -> bool {
        false
    }

    pub fn free_memory(_: usize) -> Result<MemoryLimit, OpenDeviceError> {
        Err(OpenDeviceError::NoCuda)
    }
}
