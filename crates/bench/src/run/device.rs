//! The devices that suites run on.

use std::{fmt, sync::Arc};

use kinora::Device;
use kinora_cpu::{ceilings, simd::Isa};
use kinora_graph::{DType, Graph};
use kinora_runtime::{Backend, KernelSet, Tuning};

use super::{cpu::CpuBench, gpu, turns::Contestant};
use crate::{
    BenchError,
    cases::Numbers,
    results::{CPU, Gpu},
};

/// A device that suites run on.
pub trait BenchDevice: fmt::Debug + Send + Sync {
    /// Its name in results.
    fn name(&self) -> String;

    /// What pipelines call it.
    fn device(&self) -> Device;

    /// What results say of it, if it is a GPU.
    fn gpu(&self) -> Option<Gpu>;

    /// The floating-point operations a second of a large product alone, measured now: also how fast the device is clocked.
    ///
    /// # Errors
    /// If the device fails.
    fn arithmetic(&self, dtype: DType) -> Result<f64, BenchError>;

    /// What runs single layers on it.
    ///
    /// # Errors
    /// If the device fails.
    fn layers(&self) -> Result<Box<dyn LayerBench>, BenchError>;

    /// What runs networks on it, with the kernels that the tuner measured before, or else by shape.
    ///
    /// # Errors
    /// If the device fails.
    fn backend(&self) -> Result<Arc<dyn Backend>, BenchError> {
        Ok(self.device().open(KernelSet::Fused, Tuning::Auto)?)
    }

    /// What runs networks with the baseline's kernels and without passes; `None` if the device has no other kernels.
    ///
    /// # Errors
    /// If the device fails.
    fn baseline(&self) -> Result<Option<Arc<dyn Backend>>, BenchError> {
        Ok(None)
    }
}

/// Runs single layers on a device.
pub trait LayerBench {
    /// How many copies of operands of so many bytes runs cycle through, at most `most`.
    fn copies(&self, bytes: u64, most: usize) -> usize;

    /// Our ways to run a layer: the one that a network would run and, with `all`, every other one.
    ///
    /// # Errors
    /// If nothing can be measured on the device any more. A way that fails is among the contestants.
    fn contestants(
        &self,
        graph: &Graph,
        numbers: &[Numbers],
        copies: usize,
        all: bool,
    ) -> Result<Vec<Contestant<'static>>, BenchError>;
}

/// What computes.
#[derive(Clone, Debug)]
pub struct Target {
    /// The device.
    pub device: Arc<dyn BenchDevice>,
    /// Why no GPU works, if any device would have done and it is the CPU.
    pub no_gpu: Option<String>,
}

impl Target {
    /// Opens a device. If any will do and no GPU works, it is the CPU.
    ///
    /// # Errors
    /// If the GPU that was asked for does not work.
    pub fn open(device: Device) -> Result<Target, BenchError> {
        let (device, no_gpu): (Arc<dyn BenchDevice>, _) = match device {
            Device::Cpu => (Arc::new(CpuDevice), None),
            Device::Cuda(ordinal) => (gpu::open(ordinal)?, None),
            Device::Auto => match gpu::open(0) {
                Ok(gpu) => (gpu, None),
                Err(why) => (Arc::new(CpuDevice), Some(why.with_causes())),
            },
        };
        Ok(Target { device, no_gpu })
    }
}

/// The CPU, all cores.
#[derive(Debug)]
pub(super) struct CpuDevice;

impl BenchDevice for CpuDevice {
    fn name(&self) -> String {
        CPU.to_owned()
    }

    fn device(&self) -> Device {
        Device::Cpu
    }

    fn gpu(&self) -> Option<Gpu> {
        None
    }

    fn arithmetic(&self, _: DType) -> Result<f64, BenchError> {
        Ok(ceilings::arithmetic(Isa::detect()))
    }

    fn layers(&self) -> Result<Box<dyn LayerBench>, BenchError> {
        Ok(Box::new(CpuBench))
    }
}
