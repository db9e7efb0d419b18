//! What runs a network: the CPU, or a GPU.

use std::sync::Arc;

use kinora_cpu::{CpuError, Options, StepLoop, StepObserver, Tensors};
use kinora_cuda::{
    CudaError, CudaOptions,
    compiler::{CompilerOptions, Origin},
    cupti::Cupti,
    driver,
    kernels::Choose,
    tuning::{Tuner, TuningObserver},
};
use kinora_graph::{
    Graph, Parameters,
    plan::{Plan, PlanError},
};

use kinora_profile::{Ceilings, Profiler};

use super::{Device, GpuLoad, Kernels, LoadOptions, Precision, Tuning, open_gpu};

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
    /// What was measured, where anything was or is to be.
    tuner: Option<Arc<Tuner>>,
}

impl Gpu {
    fn open(ordinal: usize, options: &LoadOptions) -> Result<Gpu, CudaError> {
        let device = open_gpu(ordinal)?;
        let compiler = CompilerOptions::from_environment();
        let folder = compiler.cache.clone();
        let tuner = match (options.kernels, options.tuning) {
            (Kernels::Baseline, _) | (_, Tuning::Off) => None,
            (Kernels::Fused, Tuning::Auto) => Tuner::remembered(&device, folder),
            (Kernels::Fused, Tuning::Measure(candidates)) => {
                Some(Tuner::new(&device, candidates, compiler, folder)?)
            }
        };
        Ok(Gpu { device, kernels: options.kernels, tuner: tuner.map(Arc::new) })
    }

    fn options(&self, budget: Option<usize>) -> CudaOptions {
        let choice = self.tuner.clone().map(|tuner| tuner as Arc<dyn Choose>);
        let kernels = self.kernels.into();
        CudaOptions { kernels, budget, choice, ..CudaOptions::for_device(&self.device) }
    }
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

    /// Whether it is no error, but the caller's wish.
    pub(super) fn is_stop(&self) -> bool {
        matches!(
            self,
            BackendError::Cpu(CpuError::Stopped) | BackendError::Cuda(CudaError::Host(CpuError::Stopped))
        )
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
    pub fn open(options: &LoadOptions) -> Result<Backend, CudaError> {
        let gpu = |ordinal| Gpu::open(ordinal, options).map(|gpu| Backend::Cuda(Arc::new(gpu)));
        match options.device {
            Device::Cpu => Ok(Backend::Cpu),
            Device::Cuda(ordinal) => gpu(ordinal),
            // A GPU that is there, and cannot be used as it was asked for, is an error and no reason for hours on the CPU.
            Device::Auto if open_gpu(0).is_ok() => gpu(0),
            Device::Auto => Ok(Backend::Cpu),
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

    /// Whether kernels that were not measured yet are to be.
    pub fn measures(&self) -> bool {
        match self {
            Backend::Cpu => false,
            Backend::Cuda(gpu) => gpu.tuner.as_ref().is_some_and(|tuner| tuner.measures()),
        }
    }

    /// What the device does at best in a precision, measured now.
    pub fn ceilings(&self, precision: Precision) -> Result<Option<Ceilings>, CudaError> {
        match self {
            Backend::Cpu => Ok(kinora_cpu::ceilings::measure(Options::default().isa)),
            Backend::Cuda(gpu) => {
                let compiler = CompilerOptions::from_environment();
                kinora_cuda::ceilings::measure(&gpu.device, compiler, precision.dtype()).map(Some)
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
                let planned = kinora_cuda::Planned::new(graph, &gpu.options(budget))?;
                Ok(PlannedNetwork::Cuda(planned, gpu.clone()))
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

    /// Measures the kernels that could run it, where that was asked for and they were not measured yet. Whether any were:
    /// a plan that is made then is another.
    pub fn tune(&self, observer: &mut TuningObserver<'_>) -> Result<bool, BackendError> {
        match self {
            PlannedNetwork::Cpu(_) => Ok(false),
            PlannedNetwork::Cuda(planned, gpu) => match &gpu.tuner {
                Some(tuner) => Ok(tuner.tune(planned, observer)? > 0),
                None => Ok(false),
            },
        }
    }

    /// Reads the weights and allocates what the network needs. The profiler is told of copies to a device; `compiled` of kernels
    /// that are compiled: how many are ready, and how many there are.
    pub fn load(
        &self,
        parameters: &dyn Parameters,
        profiler: &Profiler,
        compiled: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Network, BackendError> {
        Ok(match self {
            PlannedNetwork::Cpu(planned) => Network::Cpu(Box::new(planned.clone().load(parameters)?)),
            PlannedNetwork::Cuda(planned, gpu) => {
                let progress = |progress: &kinora_cuda::compiler::Progress| {
                    if progress.origin == Origin::Compiled {
                        compiled(progress.done, progress.total);
                    }
                };
                let profiler = profiler.clone();
                let load = kinora_cuda::LoadOptions { progress: &progress, profiler, ..Default::default() };
                Network::Cuda(Box::new(planned.clone().load_with(&gpu.device, parameters, &load)?))
            }
        })
    }
}

/// The owners of a network's memory, by their names in a profile.
pub(super) struct Holding {
    weights: String,
    activations: String,
}

impl Holding {
    pub fn new(network: &str) -> Holding {
        Holding { weights: format!("{network}: weights"), activations: format!("{network}: activations") }
    }

    fn begin(&self, profiler: &Profiler, weights: usize, activations: usize) {
        profiler.holds(&self.weights, weights);
        profiler.holds(&self.activations, activations);
    }

    /// Nothing is held any more.
    pub fn end(&self, profiler: &Profiler) {
        self.begin(profiler, 0, 0);
    }
}

/// A network with its weights.
#[derive(Debug)]
pub(super) enum Network {
    Cpu(Box<kinora_cpu::Program>),
    Cuda(Box<kinora_cuda::Program>),
}

impl Network {
    /// What loading it took, on a GPU.
    pub fn gpu_load(&self) -> Option<GpuLoad> {
        let Network::Cuda(program) = self else { return None };
        let (memory, kernels) = (program.memory(), program.compiled());
        Some(GpuLoad {
            weights_seconds: program.load_times().weights_seconds,
            kernels_seconds: kernels.seconds,
            kernels_compiled: kernels.compiled,
            kernels_found: kernels.cached + kernels.bundled,
            planned_bytes: memory.planned,
            driver_bytes: memory.driver,
        })
    }

    /// Records from now on what its layers take, and what memory it holds.
    pub fn profile(&mut self, profiler: &Profiler, name: &'static str) -> Result<(), BackendError> {
        if !profiler.is_on() {
            return Ok(());
        }
        let (weights, activations) = match self {
            Network::Cpu(program) => {
                program.profile(profiler, name);
                (program.weight_bytes(), program.arena().len())
            }
            Network::Cuda(program) => {
                program.profile(profiler, name, Cupti::for_profile(profiler))?;
                (program.memory().weights, program.memory().arena)
            }
        };
        Holding::new(name).begin(profiler, weights, activations);
        Ok(())
    }

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

    /// Runs many steps, of which each takes up results of the one before.
    pub fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: &mut StepObserver<'_>,
    ) -> Result<Tensors, BackendError> {
        match self {
            Network::Cpu(program) => Ok(program.run_steps(steps, inputs, Some(observer))?),
            Network::Cuda(program) => Ok(program.run_steps(steps, inputs, Some(observer))?),
        }
    }
}
