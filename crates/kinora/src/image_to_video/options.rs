//! How a model is loaded.

use std::{fmt, str::FromStr};

use kinora_graph::{DType, Tensor};
use kinora_profile::Profiler;
use kinora_runtime::{Backend, KernelSet, RunError, Tuning};
use serde::Serialize;

use super::GenerateError;
use crate::{
    device::{Device, OpenDeviceError},
    memory::{self, LimitSource, MemoryLimit},
    setters::setters,
};

/// How a model is loaded. By default it runs on the best device there is, in the precision that suits it, within the memory
/// that is available.
///
/// ```
/// use kinora::{Device, LoadOptions, image_to_video::Precision};
///
/// let options = LoadOptions::default().device(Device::Cpu).precision(Precision::F16).keep_loaded(true);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LoadOptions {
    /// How weights and activations are stored. `None` is what suits the device: f16 on a GPU, f32 on the CPU.
    pub precision: Option<Precision>,
    /// What runs the model.
    pub device: Device,
    /// Which kernels run on a GPU.
    pub kernels: KernelSet,
    /// How kernels are chosen on a GPU if an op has several.
    pub tuning: Tuning,
    /// The memory that a clip may take. One that needs more is refused before any work.
    pub memory_budget: MemoryBudget,
    /// Keeps the networks in memory from one clip to the next, so that another clip of the same shape (frames, steps,
    /// size, decode chunk, scheduler, with guidance or without) loads nothing. They take their memory all together then,
    /// rather than one after the other; if that is more than the budget, they are loaded for each clip as without it.
    /// Two clips at a time hold two sets of networks.
    pub keep_loaded: bool,
    /// Records where the time goes; off unless given.
    pub profiler: Profiler,
}

impl LoadOptions {
    setters! {
        precision: impl Into<Option<Precision>>,
        device: Device,
        kernels: KernelSet,
        tuning: Tuning,
        memory_budget: impl Into<MemoryBudget>,
        keep_loaded: bool,
        profiler: Profiler,
    }

    /// Refuses kernels that cannot multiply in the precision that is asked for.
    pub(crate) fn check_kernels(&self) -> Result<(), GenerateError> {
        match (self.precision, self.kernels) {
            (Some(precision), KernelSet::Baseline) => {
                precision.unmeasured("the baseline kernels multiply").map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// The memory that a clip may take: that of the device, or of the machine if the device has none of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryBudget {
    /// What is available when the model is opened.
    #[default]
    Available,
    /// Any amount.
    Unlimited,
    /// So many bytes.
    Bytes(usize),
}

impl MemoryBudget {
    /// The limit on a backend, as of now. `None` means no limit, or that the system does not say what is available.
    pub(crate) fn limit(self, backend: &dyn Backend) -> Result<Option<MemoryLimit>, RunError> {
        Ok(match self {
            MemoryBudget::Available => match backend.free_memory()? {
                Some(free) => Some(MemoryLimit { bytes: free as u64, source: LimitSource::Gpu }),
                None => memory::available(),
            },
            MemoryBudget::Unlimited => None,
            MemoryBudget::Bytes(bytes) => {
                Some(MemoryLimit { bytes: bytes as u64, source: LimitSource::Asked })
            }
        })
    }
}

impl From<usize> for MemoryBudget {
    fn from(bytes: usize) -> Self {
        MemoryBudget::Bytes(bytes)
    }
}

/// How weights and activations are stored. Sums are f32 in all of them, and so are products, but for those of fp8, and of bf16 on hardware
/// that multiplies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits: the one that equals diffusers' f32 result, and on most CPUs the fastest.
    #[default]
    F32,
    /// 16 bits, IEEE: half the memory.
    F16,
    /// The upper half of an f32: half the memory, and the range of f32. The fastest on a CPU with AVX-512 BF16.
    BF16,
    /// f16, but that the denoising network multiplies in 8 bits (e4m3) what was measured before its first clip or frame: see
    /// [`quantisation`](crate::quantisation).
    Fp8,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 4] = [Precision::F32, Precision::F16, Precision::BF16, Precision::Fp8];

    /// The one that suits a device if none is asked for: f16 on a GPU, f32 on the CPU.
    ///
    /// # Errors
    /// If the requested GPU cannot be used.
    pub fn default_for(device: Device) -> Result<Precision, OpenDeviceError> {
        Ok(Self::of(device.default_dtype()?))
    }

    /// The precision that stores numbers as this type; f32 if none does.
    pub(crate) fn of(dtype: DType) -> Precision {
        Self::ALL.into_iter().find(|precision| precision.dtype() == dtype).unwrap_or_default()
    }

    /// The element type of what is stored between layers.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::F16 | Precision::Fp8 => DType::F16,
            Precision::BF16 => DType::BF16,
        }
    }

    /// Whether a number is finite in it.
    pub(crate) fn holds(self, number: f64) -> bool {
        let stored = Tensor::from_f32(self.dtype(), [1], &[number as f32]);
        stored.is_ok_and(|stored| stored.first_non_finite().is_none())
    }

    /// The precision, unless it is fp8, which not everything multiplies in.
    pub(crate) fn unmeasured(self, what: &str) -> Result<Precision, GenerateError> {
        if self != Precision::Fp8 {
            return Ok(self);
        }
        let rule = format!("{what} in 16 or 32 bits: ask for f16");
        Err(GenerateError::Setting { setting: "precision", value: self.to_string(), rule })
    }

    /// The name: `f32`, `f16`, `bf16` or `fp8`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::BF16 => "bf16",
            Precision::Fp8 => "fp8",
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
            rule: "it must be f32, f16, bf16 or fp8".to_owned(),
        })
    }
}
