//! Where a model runs.

mod cuda;

use std::{fmt, str::FromStr, sync::Arc};

use kinora_cpu::CpuBackend;
use kinora_graph::DType;
use kinora_runtime::{Backend, KernelSet, RunError, Tuning};

use crate::memory::{self, MemoryLimit};

/// What runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// GPU 0 if it works; the CPU if not.
    #[default]
    Auto,
    /// The CPU, all cores.
    Cpu,
    /// A GPU by its number.
    Cuda(usize),
}

/// Why a device cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenDeviceError {
    /// The name is not a device's.
    #[error("`{0}` is not a device: write auto, cpu, cuda, or cuda:N for GPU number N")]
    UnknownName(String),
    /// The program was built without CUDA.
    #[error("this build has no CUDA support; build Kinora with the feature `cuda`, or run on the CPU")]
    NoCuda,
    /// The device was found, and fails.
    #[error(transparent)]
    Failed(#[from] RunError),
}

/// Starts the threads that all work on the CPU shares, unless they run already: as many as there are processors or as
/// `RAYON_NUM_THREADS` asks for, up to four for each processor, and fewer if the system does not allow as many. A model starts
/// them when it is opened.
///
/// # Errors
/// If the system does not allow a single one.
pub fn start_threads() -> Result<(), OpenDeviceError> {
    Ok(kinora_cpu::threads::start()?)
}

impl Device {
    /// Opens the device. Its kernels are chosen from this set, in this way, if it has a choice.
    ///
    /// # Errors
    /// If a GPU was asked for that cannot be used.
    pub fn open(self, kernels: KernelSet, tuning: Tuning) -> Result<Arc<dyn Backend>, OpenDeviceError> {
        match self {
            Device::Cpu => Ok(Arc::new(CpuBackend::default())),
            Device::Cuda(ordinal) => cuda::open(ordinal, kernels, tuning),
            // A GPU that is there but cannot run as asked is an error: nobody wants hours on the CPU instead.
            Device::Auto if cuda::works(0) => cuda::open(0, kernels, tuning),
            Device::Auto => Ok(Arc::new(CpuBackend::default())),
        }
    }

    /// The element type if none is asked for: f16 on a GPU, whose tensor cores are made for it, and f32 on the CPU.
    ///
    /// # Errors
    /// If a GPU was asked for that cannot be used.
    pub fn default_dtype(self) -> Result<DType, OpenDeviceError> {
        Ok(self.open(KernelSet::default(), Tuning::Off)?.default_dtype())
    }

    /// The memory that networks may take: a GPU's free memory, or what the machine has available. `None` if the system does
    /// not say.
    ///
    /// # Errors
    /// If a GPU was asked for that cannot be used.
    pub fn available_memory(self) -> Result<Option<MemoryLimit>, OpenDeviceError> {
        match self {
            Device::Cpu => Ok(memory::available()),
            Device::Cuda(ordinal) => cuda::free_memory(ordinal).map(Some),
            Device::Auto => Ok(cuda::free_memory(0).ok().or_else(memory::available)),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Auto => f.pad("auto"),
            Device::Cpu => f.pad("cpu"),
            Device::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for Device {
    type Err = OpenDeviceError;

    fn from_str(text: &str) -> Result<Self, OpenDeviceError> {
        let numbered = || text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
        match text {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => numbered().map(Device::Cuda).ok_or_else(|| OpenDeviceError::UnknownName(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for (text, device) in [
            ("auto", Device::Auto),
            ("cpu", Device::Cpu),
            ("cuda:0", Device::Cuda(0)),
            ("cuda:3", Device::Cuda(3)),
        ] {
            assert_eq!(text.parse::<Device>().ok(), Some(device));
            assert_eq!(device.to_string(), text);
        }
        assert_eq!("cuda".parse::<Device>().ok(), Some(Device::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
