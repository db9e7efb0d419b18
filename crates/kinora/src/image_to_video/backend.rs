//! What runs a network: the CPU, or a GPU.

use std::sync::Arc;

use kinora_cpu::{CpuError, Options, Tensors};
use kinora_cuda::{CudaError, CudaOptions, driver};
use kinora_graph::{
    Graph, Parameters,
    plan::{Plan, PlanError},
};

use super::{Device, Kernels};

/// The device that runs the networks.
#[derive(Clone, Debug)]
pub(super) enum Backend {
    Cpu,
    Cuda(Arc<Gpu>),
}

/// A GPU, and which of its kernels run.
#[derive(Debug)]
pub(super) struct Gpu {
    device: driver::Device,
    kernels: Kernels,
}

/// Why a network could not be prepared or run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BackendError {
    /// On the CPU.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// On a GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl BackendError {
    /// The plan's error, where it is one.
    pub(super) fn plan(&self) -> Option<&PlanError> {
        match self {
            BackendError::Cpu(CpuError::Plan(error)) | BackendError::Cuda(CudaError::Plan(error)) => {
                Some(error)
            }
            _ => None,
        }
    }

    /// Whether memory is wanting.
    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self.plan(), Some(PlanError::TooLarge))
            || matches!(
                self,
                BackendError::Cpu(CpuError::OutOfMemory { .. })
                    | BackendError::Cuda(CudaError::OutOfMemory { .. })
            )
    }
}

impl Backend {
    /// Opens a device.
    pub fn open(device: Device, kernels: Kernels) -> Result<Backend, CudaError> {
        let gpu = |ordinal| {
            driver::Device::open(ordinal).map(|device| Backend::Cuda(Arc::new(Gpu { device, kernels })))
        };
        match device {
            Device::Cpu => Ok(Backend::Cpu),
            Device::Cuda(ordinal) => gpu(ordinal),
            Device::Auto => Ok(gpu(0).unwrap_or(Backend::Cpu)),
        }
    }

    /// The device in words.
    pub fn describe(&self) -> String {
        match self {
            Backend::Cpu => {
                format!("CPU, {} threads, {}", rayon::current_num_threads(), Options::default().isa.name())
            }
            Backend::Cuda(gpu) => {
                let info = gpu.device.info();
                format!("{} ({}), {} kernels", info.name, info.architecture(), gpu.kernels)
            }
        }
    }

    /// Plans a network.
    pub fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<PlannedNetwork, BackendError> {
        match self {
            Backend::Cpu => {
                let options = Options { budget, ..Options::default() };
                Ok(PlannedNetwork::Cpu(kinora_cpu::Planned::new(graph, options)?))
            }
            Backend::Cuda(gpu) => {
                let kernels = gpu.kernels.into();
                let options = CudaOptions { kernels, budget, ..CudaOptions::for_device(&gpu.device) };
                Ok(PlannedNetwork::Cuda(kinora_cuda::Planned::new(graph, &options)?, gpu.clone()))
            }
        }
    }
}

/// A network that is planned, and holds nothing yet.
#[derive(Clone, Debug)]
pub(super) enum PlannedNetwork {
    Cpu(kinora_cpu::Planned),
    Cuda(kinora_cuda::Planned, Arc<Gpu>),
}

impl PlannedNetwork {
    /// The graph as it will run.
    pub fn graph(&self) -> &Graph {
        match self {
            PlannedNetwork::Cpu(planned) => planned.graph(),
            PlannedNetwork::Cuda(planned, _) => planned.graph(),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        match self {
            PlannedNetwork::Cpu(planned) => planned.plan(),
            PlannedNetwork::Cuda(planned, _) => planned.plan(),
        }
    }

    /// Reads the weights and allocates what the network needs.
    pub fn load(&self, parameters: &dyn Parameters) -> Result<Network, BackendError> {
        Ok(match self {
            PlannedNetwork::Cpu(planned) => Network::Cpu(Box::new(planned.clone().load(parameters)?)),
            PlannedNetwork::Cuda(planned, gpu) => {
                Network::Cuda(Box::new(planned.clone().load(&gpu.device, parameters)?))
            }
        })
    }
}

/// A network with its weights.
#[derive(Debug)]
pub(super) enum Network {
    Cpu(Box<kinora_cpu::Program>),
    Cuda(Box<kinora_cuda::Program>),
}

impl Network {
    /// Gives the clip's inputs.
    pub fn run_clip(&mut self, inputs: &Tensors) -> Result<(), BackendError> {
        match self {
            Network::Cpu(program) => Ok(program.run_clip(inputs)?),
            Network::Cuda(program) => Ok(program.run_clip(inputs)?),
        }
    }

    /// Gives a step's inputs, and its results.
    pub fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, BackendError> {
        match self {
            Network::Cpu(program) => Ok(program.run_step(inputs)?),
            Network::Cuda(program) => Ok(program.run_step(inputs)?),
        }
    }
}
