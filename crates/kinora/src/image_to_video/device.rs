//! Where a model runs, and by which kernels.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use kinora_cuda::{CudaError, driver, kernels::KernelSet};

pub use kinora_cuda::tuning::Candidates;

use super::{GenerateError, Precision};
use crate::memory::{self, LimitSource, MemoryLimit};

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
    /// The precision where none is asked for: f16 on a GPU, whose matrix units are made for it, and f32 on the CPU.
    ///
    /// # Errors
    /// Where a GPU was asked for that cannot be used.
    pub fn default_precision(self) -> Result<Precision, GenerateError> {
        match self {
            Device::Cpu => Ok(Precision::F32),
            Device::Cuda(ordinal) => Ok(open_gpu(ordinal).map(|_| Precision::F16)?),
            Device::Auto => Ok(open_gpu(0).map_or(Precision::F32, |_| Precision::F16)),
        }
    }

    /// The memory that networks may take on it: a GPU's that is free, or what the machine has available. `None` where the
    /// system does not say.
    ///
    /// # Errors
    /// Where a GPU was asked for that cannot be used.
    pub fn available_memory(self) -> Result<Option<MemoryLimit>, GenerateError> {
        let free = |ordinal| {
            let free = open_gpu(ordinal)?.memory()?.free;
            Ok(Some(MemoryLimit { bytes: free as u64, source: LimitSource::Gpu }))
        };
        match self {
            Device::Cpu => Ok(memory::available()),
            Device::Cuda(ordinal) => Ok(free(ordinal)?),
            Device::Auto => Ok(free(0).unwrap_or_else(|_: CudaError| memory::available())),
        }
    }
}

/// A GPU, whose context is made once in a process and shared by all who ask: making one takes a good part of a second. One
/// that a fault has ended is made anew.
pub(crate) fn open_gpu(ordinal: usize) -> Result<driver::Device, CudaError> {
    static OPENED: Mutex<BTreeMap<usize, driver::Device>> = Mutex::new(BTreeMap::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = opened.get(&ordinal).filter(|device| !device.context().is_lost()) {
        return Ok(device.clone());
    }
    opened.remove(&ordinal);
    let device = driver::Device::open(ordinal)?;
    opened.insert(ordinal, device.clone());
    Ok(device)
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

/// How a GPU's kernels are chosen among those that there are for an op and its shape. The baseline's are not chosen among.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// What was measured on this GPU before, by [`Tuning::Measure`] among all; the fixed choice for what was not.
    #[default]
    Auto,
    /// The fixed choice, by shape alone.
    Off,
    /// What is found fastest among these: before the first clip of a shape each candidate is verified and timed, which takes
    /// minutes, and the results are kept for later runs.
    Measure(Candidates),
}

impl Tuning {
    /// All of them.
    pub const ALL: [Tuning; 5] = [
        Tuning::Auto,
        Tuning::Off,
        Tuning::Measure(Candidates::All),
        Tuning::Measure(Candidates::Ours),
        Tuning::Measure(Candidates::Vendor),
    ];

    /// The name: `auto`, `off`, `all`, `ours` or `vendor`.
    pub fn name(self) -> &'static str {
        match self {
            Tuning::Auto => "auto",
            Tuning::Off => "off",
            Tuning::Measure(candidates) => candidates.name(),
        }
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Tuning {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        Self::ALL.into_iter().find(|tuning| tuning.name() == text).ok_or_else(|| GenerateError::Setting {
            setting: "tuning",
            value: text.to_owned(),
            rule: "it must be auto, off, all, ours or vendor".to_owned(),
        })
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
        for tuning in Tuning::ALL {
            assert_eq!(tuning.to_string().parse::<Tuning>().ok(), Some(tuning));
        }
        assert!("best".parse::<Tuning>().is_err());
    }
}
