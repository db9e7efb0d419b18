//! What runs a stage's network.

use std::sync::Arc;

use kinora::{device::Device, runtime::Tuning};
use kinora_cuda::{CudaOptions, driver, tuning::Tuner};
use kinora_graph::{Graph, Parameters};
use kinora_runtime::Tensors;

use crate::{Failure, tuner};

/// The device that runs the networks.
pub enum Backend {
    /// The CPU, all cores.
    Cpu,
    /// A GPU, and what chooses among its kernels.
    Cuda(driver::Device, Option<Arc<Tuner>>),
}

impl Backend {
    /// Opens a device. One that is not named is refused: a comparison must say what it is of.
    pub fn open(device: Device, tuning: Tuning) -> Result<Backend, Failure> {
        match device {
            Device::Auto => Err("--device must be cpu, cuda or cuda:N".into()),
            Device::Cpu => Ok(Backend::Cpu),
            Device::Cuda(ordinal) => {
                let device = driver::Device::open(ordinal)?;
                let tuner = tuner::open(tuning, &device)?;
                Ok(Backend::Cuda(device, tuner))
            }
        }
    }

    /// The device in words.
    pub fn describe(&self) -> String {
        match self {
            Backend::Cpu => kinora_bench::processor(kinora_cpu::Options::default().isa.name()),
            Backend::Cuda(device, _) => device.info().name.clone(),
        }
    }

    /// Runs a network once; its weights and memory are held no longer than that.
    pub fn run(&self, graph: &Graph, weights: &dyn Parameters, inputs: &Tensors) -> Result<Tensors, Failure> {
        Ok(match self {
            Backend::Cpu => {
                kinora_cpu::Program::new(graph, weights, kinora_cpu::Options::default())?.run(inputs)?
            }
            Backend::Cuda(device, tuner) => {
                let options = tuner::tuned(
                    CudaOptions::for_device(device, kinora_cpu::CpuOps::shared()),
                    tuner.as_ref(),
                    graph,
                )?;
                kinora_cuda::Planned::new(graph, &options)?.load(device, weights)?.run(inputs)?
            }
        })
    }
}
