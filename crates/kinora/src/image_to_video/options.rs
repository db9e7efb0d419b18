//! How a model is loaded, and where it runs.

use std::{fmt, str::FromStr};

use kinora_cuda::{CudaError, driver, kernels::KernelSet};
use kinora_graph::{DType, Tensor};
use serde::Serialize;

use super::GenerateError;
use crate::memory::{self, LimitSource, MemoryLimit};

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// How weights and activations are stored.
    pub precision: Precision,
    /// What runs the model.
    pub device: Device,
    /// Which kernels run on a GPU.
    pub kernels: Kernels,
    /// The bytes that weights and activations may take together. `None` is no limit.
    pub memory_budget: Option<usize>,
    /// Keeps the networks in memory from one clip to the next, so that another clip of the same shape (frames, steps,
    /// size, decode chunk, scheduler, with guidance or without) loads nothing. They take their memory all together then,
    /// rather than one after the other; where that is more than the budget, they are loaded for each clip as without it.
    /// Two clips at a time hold two sets of networks.
    pub keep_loaded: bool,
}

/// How weights and activations are stored. Arithmetic is f32 in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits: the fastest on a CPU, and the one that equals diffusers' f32 result.
    #[default]
    F32,
    /// 16 bits, IEEE: half the memory.
    F16,
    /// The upper half of an f32: half the memory, and the range of f32.
    BF16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::F16, Precision::BF16];

    /// The element type.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::F16 => DType::F16,
            Precision::BF16 => DType::BF16,
        }
    }

    /// Whether a number is finite in it.
    pub(super) fn holds(self, number: f64) -> bool {
        let stored = Tensor::from_f32(self.dtype(), [1], &[number as f32]);
        stored.is_ok_and(|stored| stored.first_non_finite().is_none())
    }

    /// The name: `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::BF16 => "bf16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        let named = |precision: &Precision| precision.name() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| GenerateError::Setting {
            setting: "precision",
            value: text.to_owned(),
            rule: "it must be f32, f16 or bf16".to_owned(),
        })
    }
}

/// What runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The first GPU, where there is one that works; the CPU otherwise.
    #[default]
    Auto,
    /// The CPU, all cores.
    Cpu,
    /// A GPU by its number.
    Cuda(usize),
}

impl Device {
    /// The memory that networks may take on it: a GPU's that is free, or what the machine has available. `None` where the
    /// system does not say.
    ///
    /// # Errors
    /// Where a GPU was asked for that cannot be used.
    pub fn available_memory(self) -> Result<Option<MemoryLimit>, GenerateError> {
        let free = |ordinal| {
            let free = driver::Device::open(ordinal)?.memory()?.free;
            Ok(Some(MemoryLimit { bytes: free as u64, source: LimitSource::Gpu }))
        };
        match self {
            Device::Cpu => Ok(memory::available()),
            Device::Cuda(ordinal) => Ok(free(ordinal)?),
            Device::Auto => Ok(free(0).unwrap_or_else(|_: CudaError| memory::available())),
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
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        let numbered = || text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
        match text {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => numbered().map(Device::Cuda).ok_or_else(|| GenerateError::Setting {
                setting: "device",
                value: text.to_owned(),
                rule: "it must be auto, cpu, cuda or cuda:N with the number of a GPU".to_owned(),
            }),
        }
    }
}

/// Which kernels of a GPU run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// The fast ones, with everything fused that can be.
    #[default]
    Fused,
    /// The plain ones, one for each op as the model has it: what the fast ones are compared with.
    Baseline,
}

impl Kernels {
    /// Both of them.
    pub const ALL: [Kernels; 2] = [Kernels::Fused, Kernels::Baseline];

    /// The name: `fused` or `baseline`.
    pub fn name(self) -> &'static str {
        match self {
            Kernels::Fused => "fused",
            Kernels::Baseline => "baseline",
        }
    }
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kernels {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        Self::ALL.into_iter().find(|kernels| kernels.name() == text).ok_or_else(|| GenerateError::Setting {
            setting: "kernels",
            value: text.to_owned(),
            rule: "they must be fused or baseline".to_owned(),
        })
    }
}

impl From<Kernels> for KernelSet {
    fn from(kernels: Kernels) -> Self {
        match kernels {
            Kernels::Fused => KernelSet::Fused,
            Kernels::Baseline => KernelSet::Baseline,
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
        for kernels in Kernels::ALL {
            assert_eq!(kernels.to_string().parse::<Kernels>().ok(), Some(kernels));
        }
    }
}
