//! A backend that measures how large the activations of networks are while they run.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use kinora_graph::{
    DType, Graph, Parameters,
    calibration::{self, Measurement},
    plan::Plan,
};
use kinora_profile::{Ceilings, Profiler};
use kinora_runtime::{
    Backend, Carried, DeviceLoad, LoadContext, Network, NetworkMemory, PlannedNetwork, RunError, StepLoop,
    StepObserver, StepResults, Stop, Tensors, TuningObserver,
};

use super::{Denoiser, Networks};

/// Another backend, whose denoising networks tell how large their activations are at each step. Everything else runs as it would there.
#[derive(Debug)]
pub(crate) struct Calibrating {
    inner: Arc<dyn Backend>,
    found: Arc<Mutex<Networks>>,
}

impl Calibrating {
    pub fn new(inner: Arc<dyn Backend>) -> Calibrating {
        Calibrating { inner, found: Arc::default() }
    }

    /// What was measured so far.
    pub fn found(&self) -> Networks {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Backend for Calibrating {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn default_dtype(&self) -> DType {
        self.inner.default_dtype()
    }

    fn ceilings(&self, dtype: DType) -> Result<Option<Ceilings>, RunError> {
        self.inner.ceilings(dtype)
    }

    fn free_memory(&self) -> Result<Option<usize>, RunError> {
        self.inner.free_memory()
    }

    fn tunes(&self) -> bool {
        self.inner.tunes()
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        let Some(denoiser) = Denoiser::of(graph) else { return self.inner.plan(graph, budget) };
        let (measuring, measurements) = denoiser.measured(graph)?;
        let inner = self.inner.plan(&measuring, budget)?;
        let recorder = Recorder { name: denoiser.name, measurements, found: self.found.clone() };
        Ok(Box::new(Planned { inner, recorder }))
    }
}

/// What reads the measurements of a network.
#[derive(Clone, Debug)]
struct Recorder {
    name: &'static str,
    measurements: Vec<Measurement>,
    found: Arc<Mutex<Networks>>,
}

impl Recorder {
    fn record(&self, results: &dyn StepResults) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = found.entry(self.name.to_owned()).or_default();
        calibration::record(largest, &self.measurements, |name| results.get(name));
    }
}

#[derive(Debug)]
struct Planned {
    inner: Box<dyn PlannedNetwork>,
    recorder: Recorder,
}

impl PlannedNetwork for Planned {
    fn graph(&self) -> &Graph {
        self.inner.graph()
    }

    fn plan(&self) -> &Plan {
        self.inner.plan()
    }

    fn tune(&self, observer: &mut TuningObserver<'_>) -> Result<bool, RunError> {
        self.inner.tune(observer)
    }

    fn load(
        &self,
        parameters: &dyn Parameters,
        context: &LoadContext<'_>,
    ) -> Result<Box<dyn Network>, RunError> {
        let inner = self.inner.load(parameters, context)?;
        Ok(Box::new(Measuring { inner, recorder: self.recorder.clone() }))
    }
}

#[derive(Debug)]
struct Measuring {
    inner: Box<dyn Network>,
    recorder: Recorder,
}

impl Network for Measuring {
    fn memory(&self) -> NetworkMemory {
        self.inner.memory()
    }

    fn device_load(&self) -> Option<DeviceLoad> {
        self.inner.device_load()
    }

    fn profile(&mut self, profiler: &Profiler, name: &str) -> Result<(), RunError> {
        self.inner.profile(profiler, name)
    }

    fn stop_on(&mut self, stop: &Stop) {
        self.inner.stop_on(stop);
    }

    fn run_clip(&mut self, inputs: &Tensors) -> Result<(), RunError> {
        self.inner.run_clip(inputs)
    }

    fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, RunError> {
        let results = self.inner.run_step(inputs)?;
        self.recorder.record(&results);
        Ok(results)
    }

    fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError> {
        let Measuring { inner, recorder } = self;
        let mut observer = observer;
        let mut recording = |done: usize, results: &dyn StepResults| {
            recorder.record(results);
            observer.as_mut().map_or(ControlFlow::Continue(()), |observer| observer(done, results))
        };
        inner.run_steps(steps, inputs, Some(&mut recording))
    }

    fn begin_frames(&mut self, carried: Carried<'_>, first: &Tensors) -> Result<(), RunError> {
        self.inner.begin_frames(carried, first)
    }

    fn run_frame(&mut self, inputs: &Tensors, results: &mut Tensors) -> Result<(), RunError> {
        self.inner.run_frame(inputs, results)
    }

    fn handed_on(&mut self) -> Result<Tensors, RunError> {
        self.inner.handed_on()
    }

    fn time_step(&mut self, inputs: &Tensors) -> Result<f64, RunError> {
        self.inner.time_step(inputs)
    }
}
