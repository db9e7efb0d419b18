//! The traits of a backend: what a pipeline needs of a device.
//!
//! Each of the three stages has a trait, because each may happen without the next: a plan needs no weights and no
//! memory, and a loaded network can run any number of times.

use std::{any::Any, fmt};

use kinora_graph::{DType, Graph, Parameters, plan::Plan};
use kinora_profile::{Ceilings, Profiler};
use serde::Serialize;

use crate::{
    CachedSteps, Carried, RunError, SharedWeights, StepLoop, StepObserver, Stop, Tensors, TuningObserver,
};

/// A device that runs networks.
pub trait Backend: fmt::Debug + Send + Sync {
    /// The device in words, for reports.
    fn describe(&self) -> String;

    /// The storage type that suits the device if the caller asks for none.
    fn default_dtype(&self) -> DType {
        DType::F32
    }

    /// Whether the device multiplies e4m3, so that products of measured activations may be done in 8 bits.
    fn multiplies_e4m3(&self) -> bool {
        false
    }

    /// The best the device can do with elements of this type, measured now. `None` if it cannot be measured.
    ///
    /// # Errors
    /// If the device fails.
    fn ceilings(&self, _dtype: DType) -> Result<Option<Ceilings>, RunError> {
        Ok(None)
    }

    /// How much is free of the memory that the device has of its own, in bytes. `None` if its networks are held in the
    /// machine's memory, with everything else.
    ///
    /// # Errors
    /// If the device fails.
    fn free_memory(&self) -> Result<Option<usize>, RunError> {
        Ok(None)
    }

    /// Whether [`PlannedNetwork::tune`] may measure anything.
    fn tunes(&self) -> bool {
        false
    }

    /// Optimises a graph for the device and plans its memory. Allocates nothing on the device.
    ///
    /// # Errors
    /// If the graph is wrong, the device cannot run one of its nodes, or the plan does not fit the budget, in bytes.
    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError>;
}

/// A network that is planned but holds neither weights nor an arena yet.
pub trait PlannedNetwork: fmt::Debug + Send + Sync {
    /// The graph as it will run, after the passes.
    fn graph(&self) -> &Graph;

    /// The plan.
    fn plan(&self) -> &Plan;

    /// Measures the kernels that could run the network, if that was asked for and they were not measured before. Returns
    /// whether any were: the network should then be planned again.
    ///
    /// # Errors
    /// If the device fails, or the observer stops it ([`RunError::Stopped`]).
    fn tune(&self, _observer: &mut TuningObserver<'_>) -> Result<bool, RunError> {
        Ok(false)
    }

    /// Reads the weights and allocates what the network needs.
    ///
    /// # Errors
    /// If memory runs out, or a weight is missing, unreadable, of another type or not finite.
    fn load(
        &self,
        parameters: &dyn Parameters,
        context: &LoadContext<'_>,
    ) -> Result<Box<dyn Network>, RunError>;
}

/// The observers of a network's loading.
#[derive(Clone, Copy)]
pub struct LoadContext<'a> {
    /// Records copies to a device, if it is on.
    pub profiler: &'a Profiler,
    /// Called for each kernel that had to be compiled, with how many are ready and how many there are. Any thread may
    /// call it.
    pub compiled: &'a (dyn Fn(usize, usize) + Sync),
    /// Networks that are loaded with the same one have their weights in common.
    pub shared: Option<&'a SharedWeights>,
    /// Results and inputs of steps that only [`Network::run_cached_steps`] hands on. A device with memory of its own needs none of
    /// the host's for them, and no other run then gives or takes them.
    pub kept: &'a [&'a str],
}

/// A network with its weights, ready to run.
pub trait Network: fmt::Debug + Send + Any {
    /// The memory that it holds.
    fn memory(&self) -> NetworkMemory;

    /// What loading it took, for a device that compiles kernels and has memory of its own.
    fn device_load(&self) -> Option<DeviceLoad> {
        None
    }

    /// Starts recording how long every layer takes, under this name.
    ///
    /// # Errors
    /// If the device fails.
    fn profile(&mut self, _profiler: &Profiler, _name: &str) -> Result<(), RunError> {
        Ok(())
    }

    /// Lets a request stop the clip phase, a step or a frame that is running: it then fails with [`RunError::Stopped`], soon if it
    /// would take seconds. What earlier steps and frames have left stays. A device whose steps take milliseconds may ignore it.
    fn stop_on(&mut self, _stop: &Stop) {}

    /// Sets the inputs of the clip phase and runs what depends on them alone.
    ///
    /// # Errors
    /// If an input is missing, unknown or of another type, an op finds a bad index in its data, or the device fails. The
    /// clip phase must then succeed before the next step.
    fn run_clip(&mut self, inputs: &Tensors) -> Result<(), RunError>;

    /// Sets a step's inputs, runs the step and returns the results.
    ///
    /// # Errors
    /// As [`Network::run_clip`], and [`RunError::ClipNotRun`].
    fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, RunError>;

    /// Runs many steps, each on the results of the one before, and returns the results of the last.
    ///
    /// # Errors
    /// As [`Network::run_step`]; if the loop does not fit the graph; [`RunError::Stopped`] if the observer stops it.
    fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError>;

    /// Runs many steps, of which this network runs the whole ones, and `shallow`, of the same backend, the others. Returns the
    /// results of the last; what is kept is in no results. The clip phase of both has run.
    ///
    /// # Errors
    /// As [`Network::run_steps`].
    fn run_cached_steps(
        &mut self,
        shallow: &mut (dyn Network + 'static),
        steps: &CachedSteps<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError> {
        steps.run(inputs, observer, |inputs| self.run_step(inputs), |inputs| shallow.run_step(inputs))
    }

    /// Begins a row of frames. The device keeps what they hand on; `first` has its first values, by input.
    ///
    /// # Errors
    /// As [`Carried::check`]; if memory runs out or the device fails.
    fn begin_frames(&mut self, carried: Carried<'_>, first: &Tensors) -> Result<(), RunError>;

    /// Runs the step on a frame's own inputs and on what the frame before handed on. Sets `results` to those that are not
    /// handed on; a device with memory of its own writes them into the tensors that are there, if they have the right type.
    ///
    /// # Errors
    /// As [`Network::run_step`], and [`RunError::FramesNotBegun`].
    fn run_frame(&mut self, inputs: &Tensors, results: &mut Tensors) -> Result<(), RunError>;

    /// What the last frame handed on, by the input that the next one reads it from: another network can begin with it. An
    /// input that nothing reads may be absent.
    ///
    /// # Errors
    /// [`RunError::FramesNotBegun`]; if memory runs out or the device fails.
    fn handed_on(&mut self) -> Result<Tensors, RunError>;

    /// Runs the step once more, and returns the seconds it took by the device's own clock. `inputs` must be those that
    /// [`Network::run_step`] was given last: a device with memory of its own still holds them, and does not copy them again.
    ///
    /// # Errors
    /// As [`Network::run_step`].
    fn time_step(&mut self, inputs: &Tensors) -> Result<f64, RunError>;
}

/// The memory that a loaded network holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkMemory {
    /// Weights.
    pub weights: usize,
    /// The arena of its activations.
    pub activations: usize,
}

/// What loading a network took on a device that compiles kernels and has memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeviceLoad {
    /// Seconds of reading and copying the weights, while kernels were compiled.
    pub weights_seconds: f64,
    /// Seconds of compiling kernels, or of finding them.
    pub kernels_seconds: f64,
    /// Kernels that were compiled.
    pub kernels_compiled: usize,
    /// Kernels that had been compiled before.
    pub kernels_found: usize,
    /// The memory that weights and activations take according to the plan, in bytes.
    pub planned_bytes: usize,
    /// The memory that the driver allocated meanwhile, in bytes.
    pub driver_bytes: usize,
}
