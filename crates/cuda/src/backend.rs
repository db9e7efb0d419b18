//! A GPU as a backend; and a GPU that is not there, for plans alone.

use std::{any::Any, sync::Arc};

use kinora_graph::{DType, Graph, Parameters, plan::Plan};
use kinora_profile::{Ceilings, Profiler};
use kinora_runtime::{
    Backend, CachedSteps, Carried, DeviceLoad, HostOps, KernelSet, LoadContext, Network, NetworkMemory,
    PlannedNetwork, RunError, StepLoop, StepObserver, Tensors, Tuning, TuningObserver,
};

use crate::{
    Architecture, Chip, CudaError, CudaOptions, KernelPool, LoadOptions, Planned, Program, ceilings,
    compiler::{CompilerOptions, Origin, Progress},
    cupti::Cupti,
    driver::Device,
    kernels::Choose,
    tuning::Tuner,
};

/// A GPU, and how its kernels are chosen.
#[derive(Clone, Debug)]
pub struct CudaBackend {
    device: Device,
    kernels: KernelSet,
    host: Arc<dyn HostOps>,
    /// What was measured, if anything was or is to be.
    tuner: Option<Arc<Tuner>>,
    /// What its programs have loaded.
    pool: KernelPool,
    poison: Option<u8>,
}

impl CudaBackend {
    /// A backend on a GPU that is open.
    ///
    /// # Errors
    /// If kernels are to be measured and the tuner cannot start.
    pub fn new(
        device: Device,
        kernels: KernelSet,
        tuning: Tuning,
        host: Arc<dyn HostOps>,
    ) -> Result<CudaBackend, CudaError> {
        let compiler = CompilerOptions::from_environment();
        let folder = compiler.cache.clone();
        let tuner = match (kernels, tuning) {
            (KernelSet::Baseline, _) | (_, Tuning::Off) => None,
            (KernelSet::Fused, Tuning::Auto) => Tuner::remembered(&device, folder),
            (KernelSet::Fused, Tuning::Measure(candidates)) => {
                Some(Tuner::new(&device, candidates, compiler, folder)?)
            }
        };
        let (tuner, pool) = (tuner.map(Arc::new), KernelPool::default());
        Ok(CudaBackend { device, kernels, host, tuner, pool, poison: None })
    }

    /// The same, with memory filled with this byte before a run, so that a read of something never written shows.
    #[must_use]
    pub fn poisoned(self, byte: u8) -> CudaBackend {
        CudaBackend { poison: Some(byte), ..self }
    }

    /// The GPU.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn options(&self, budget: Option<usize>) -> CudaOptions {
        let choice = self.tuner.clone().map(|tuner| tuner as Arc<dyn Choose>);
        let base = CudaOptions::for_device(&self.device, self.host.clone());
        CudaOptions { kernels: self.kernels, budget, choice, poison: self.poison, ..base }
    }
}

impl Backend for CudaBackend {
    fn describe(&self) -> String {
        let info = self.device.info();
        format!("{} ({}), {} kernels", info.name, info.architecture(), self.kernels)
    }

    /// f16: the tensor cores are made for it.
    fn default_dtype(&self) -> DType {
        DType::F16
    }

    fn multiplies_e4m3(&self) -> bool {
        self.device.info().architecture() >= Architecture::ADA
    }

    fn ceilings(&self, dtype: DType) -> Result<Option<Ceilings>, RunError> {
        Ok(ceilings::measure(&self.device, CompilerOptions::from_environment(), dtype).map(Some)?)
    }

    fn free_memory(&self) -> Result<Option<usize>, RunError> {
        Ok(Some(self.device.memory()?.free))
    }

    fn tunes(&self) -> bool {
        self.tuner.as_ref().is_some_and(|tuner| tuner.measures())
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        let planned = Planned::new(graph, &self.options(budget))?;
        Ok(Box::new(PlannedOnGpu { planned, backend: self.clone() }))
    }
}

/// A network that is planned for a GPU.
#[derive(Debug)]
struct PlannedOnGpu {
    planned: Planned,
    backend: CudaBackend,
}

impl PlannedNetwork for PlannedOnGpu {
    fn graph(&self) -> &Graph {
        self.planned.graph()
    }

    fn plan(&self) -> &Plan {
        self.planned.plan()
    }

    fn tune(&self, observer: &mut TuningObserver<'_>) -> Result<bool, RunError> {
        match &self.backend.tuner {
            Some(tuner) => Ok(tuner.tune(&self.planned, observer)? > 0),
            None => Ok(false),
        }
    }

    fn load(
        &self,
        parameters: &dyn Parameters,
        context: &LoadContext<'_>,
    ) -> Result<Box<dyn Network>, RunError> {
        let progress = |progress: &Progress| {
            if progress.origin == Origin::Compiled {
                (context.compiled)(progress.done, progress.total);
            }
        };
        let profiler = context.profiler.clone();
        let (shared, kernels) = (context.shared, self.backend.pool.clone());
        let kept = context.kept;
        let load =
            LoadOptions { progress: &progress, profiler, shared, kernels, kept, ..LoadOptions::default() };
        Ok(Box::new(self.planned.clone().load_with(&self.backend.device, parameters, &load)?))
    }
}

/// A GPU that is not there: plans networks for a chip, and loads none.
#[derive(Clone, Debug)]
pub struct ChipBackend {
    chip: Chip,
    host: Arc<dyn HostOps>,
}

impl ChipBackend {
    /// For a chip.
    pub fn new(chip: Chip, host: Arc<dyn HostOps>) -> ChipBackend {
        ChipBackend { chip, host }
    }
}

impl Backend for ChipBackend {
    fn describe(&self) -> String {
        format!("a GPU of {}", self.chip.architecture)
    }

    fn multiplies_e4m3(&self) -> bool {
        self.chip.architecture >= Architecture::ADA
    }

    fn default_dtype(&self) -> DType {
        DType::F16
    }

    /// A GPU of any size.
    fn free_memory(&self) -> Result<Option<usize>, RunError> {
        Ok(Some(usize::MAX))
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        let options = CudaOptions { budget, ..CudaOptions::new(self.chip.clone(), self.host.clone()) };
        Ok(Box::new(PlannedForChip(Planned::new(graph, &options)?)))
    }
}

#[derive(Debug)]
struct PlannedForChip(Planned);

impl PlannedNetwork for PlannedForChip {
    fn graph(&self) -> &Graph {
        self.0.graph()
    }

    fn plan(&self) -> &Plan {
        self.0.plan()
    }

    fn load(&self, _: &dyn Parameters, _: &LoadContext<'_>) -> Result<Box<dyn Network>, RunError> {
        Err(CudaError::NoDevice.into())
    }
}

impl Network for Program {
    fn memory(&self) -> NetworkMemory {
        NetworkMemory { weights: self.memory().weights, activations: self.memory().arena }
    }

    fn device_load(&self) -> Option<DeviceLoad> {
        let (memory, kernels) = (self.memory(), self.compiled());
        Some(DeviceLoad {
            weights_seconds: self.load_times().weights_seconds,
            kernels_seconds: kernels.seconds,
            kernels_compiled: kernels.compiled,
            kernels_found: kernels.cached + kernels.bundled + kernels.loaded,
            planned_bytes: memory.planned,
            driver_bytes: memory.driver,
        })
    }

    fn profile(&mut self, profiler: &Profiler, name: &str) -> Result<(), RunError> {
        Ok(self.profile(profiler, name, Cupti::for_profile(profiler))?)
    }

    fn run_clip(&mut self, inputs: &Tensors) -> Result<(), RunError> {
        Ok(self.run_clip(inputs)?)
    }

    fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, RunError> {
        Ok(self.run_step(inputs)?)
    }

    fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError> {
        Ok(self.run_steps(steps, inputs, observer)?)
    }

    fn run_cached_steps(
        &mut self,
        shallow: &mut (dyn Network + 'static),
        steps: &CachedSteps<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError> {
        let shallow: &mut dyn Any = shallow;
        let other = || RunError::Internal("the network of the shallow steps is not a GPU's".to_owned());
        let shallow = shallow.downcast_mut::<Program>().ok_or_else(other)?;
        Ok(self.run_cached_steps(shallow, steps, inputs, observer)?)
    }

    fn begin_frames(&mut self, carried: Carried<'_>, first: &Tensors) -> Result<(), RunError> {
        Ok(self.begin_frames(carried, first)?)
    }

    fn run_frame(&mut self, inputs: &Tensors, results: &mut Tensors) -> Result<(), RunError> {
        Ok(self.run_frame(inputs, results)?)
    }

    fn handed_on(&mut self) -> Result<Tensors, RunError> {
        Ok(self.handed_on()?)
    }

    fn time_step(&mut self, _inputs: &Tensors) -> Result<f64, RunError> {
        // The program still has the inputs that it was given last.
        let milliseconds = self.time_replays(1)?;
        let first = milliseconds.first().ok_or_else(|| RunError::Internal("a replay has no time".into()))?;
        Ok(f64::from(*first) / 1e3)
    }
}
