//! A graph that is ready to run on a GPU: planned, its kernels compiled, its weights uploaded, its memory allocated.
//!
//! Everything is decided when the program is loaded: each node has become launches with final addresses. Running it
//! copies inputs in, launches, and copies results out.

mod calls;
mod execution;
mod faults;
mod frames;
mod loading;
mod lowering;
mod planned;
mod staging;
mod step_loop;
#[cfg(test)]
mod tests;
mod timing;
mod weights;

use kinora_graph::{Graph, Phase, Source, plan::Plan};
use kinora_profile::{Direction, Profiler};
use kinora_runtime::{RunError, Tensors, tensors};

pub use calls::CountedCall;
pub use loading::LoadOptions;
pub use planned::Planned;

use crate::{
    CudaError, CudaOptions, LoadedKernels,
    compiler::Statistics,
    cupti::{Cupti, Trace},
    driver::{Context, DeviceBuffer, Event, Stream},
};
use execution::{Executor, RunningNode};
use faults::FaultWord;
use frames::Frames;
use staging::{Half, Inputs, Outputs};
use step_loop::Feed;
use timing::{Copying, Timing};
use weights::Weights;

/// The name of the GPU's queue in a profile.
const GPU_LANE: &str = "GPU";

/// A graph that is ready to run on a GPU.
///
/// The arena and the weights are one allocation each, made when the program is loaded: [`Plan::arena_bytes`] and
/// [`Plan::weight_bytes`]. It also holds two words on the device, its code, and pinned host memory for inputs and
/// results. A step allocates nothing on the device.
#[derive(Debug)]
pub struct Program {
    graph: Graph,
    plan: Plan,
    options: CudaOptions,
    stream: Stream,
    // What was recorded is dropped before the kernels that it launches.
    feed: Option<Feed>,
    /// The row of frames that has begun.
    frames: Option<Frames>,
    executor: Executor,
    inputs: Inputs,
    outputs: Outputs,
    fault: FaultWord,
    /// Includes the kernel that counts steps, if the graph has an input for it.
    kernels: LoadedKernels,
    arena: DeviceBuffer,
    /// Kept alive while launches point into it.
    _weights: Weights,
    memory: ProgramMemory,
    load_times: LoadTimes,
    compiled: Statistics,
    clip_has_run: bool,
}

/// The GPU memory that a program takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramMemory {
    /// The weights' allocation.
    pub weights: usize,
    /// The arena.
    pub arena: usize,
    /// What the plan predicted for both: [`Plan::peak_bytes`].
    pub planned: usize,
    /// How much the driver's free memory shrank while the program was loaded, its code included. Allocations of other
    /// processes count too.
    pub driver: usize,
}

/// How long a program took to load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadTimes {
    /// All of it, in seconds.
    pub seconds: f64,
    /// Reading, folding and copying the weights, while kernels were compiled.
    pub weights_seconds: f64,
}

impl Program {
    /// The graph as it runs, after the passes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The GPU memory that it takes.
    pub fn memory(&self) -> ProgramMemory {
        self.memory
    }

    /// How long it took to load.
    pub fn load_times(&self) -> LoadTimes {
        self.load_times
    }

    /// What compiling its kernels took.
    pub fn compiled(&self) -> &Statistics {
        &self.compiled
    }

    /// The context that it runs in.
    pub fn context(&self) -> &Context {
        self.stream.context()
    }

    /// The stream that it runs in.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Starts recording how long every layer and every copy takes on the GPU, under this name for the program. Layers
    /// are then launched one by one instead of as one CUDA graph. A profiler that is off stops the recording.
    ///
    /// With [`Cupti`], the profile also shows when each kernel ran, and a layer takes as long as its kernels. Without
    /// it, a layer's time includes the wait for its launch, a few microseconds.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn profile(
        &mut self,
        profiler: &Profiler,
        name: &str,
        cupti: Option<&'static Cupti>,
    ) -> Result<(), CudaError> {
        let Some(lane) = profiler.device_lane(GPU_LANE) else {
            self.executor.set_timing(None);
            return Ok(());
        };
        let works = [Phase::Clip, Phase::Step].map(|phase| {
            let nodes = self.executor.launching(phase);
            let work = |running: &RunningNode| {
                let node = self.graph.node(running.node);
                let kernel = Some(running.kernel.clone());
                kinora_runtime::work::work(name, &self.graph, node, kernel, running.work.len())
            };
            nodes.filter_map(|running| profiler.work(|| work(running))).collect()
        });
        let trace = match cupti.map(|cupti| Trace::begin(cupti, &self.stream)).transpose() {
            Ok(trace) => trace,
            // The process may lack permission, or another tool may be using CUPTI: the profile works without it.
            Err(error) => {
                profiler.note(&format!("the times of single kernels are missing: {error}"));
                None
            }
        };
        let timing = Timing::new(profiler, lane, &self.stream)?.with_layers(works, trace);
        self.executor.set_timing(Some(timing));
        Ok(())
    }

    /// How many kernels a phase launches.
    pub fn launches(&self, phase: Phase) -> usize {
        self.executor.launches(phase)
    }

    /// Runs the clip phase and one step with all inputs given, and returns all results.
    ///
    /// # Errors
    /// As [`Program::run_clip`] and [`Program::run_step`].
    pub fn run(&mut self, inputs: &Tensors) -> Result<Tensors, CudaError> {
        tensors::refuse_unknown(&self.graph, &[Phase::Clip, Phase::Step], inputs)?;
        self.clip_has_run = false;
        self.inputs.stage(&self.graph, &[Phase::Clip, Phase::Step], inputs)?;
        self.settled(|program| {
            program.start_clip()?;
            program.upload_inputs(&[Phase::Clip, Phase::Step])?;
            program.executor.enqueue(&program.stream, Phase::Clip)?;
            program.clip_has_run = true;
            program.executor.enqueue(&program.stream, Phase::Step)?;
            program.download_results(Half::First)
        })?;
        self.outputs.read(&self.graph, Half::First)
    }

    /// Sets the clip's inputs and runs what depends on them alone.
    ///
    /// # Errors
    /// If an input of the clip phase is missing or of another type, an input is not one of the clip phase's, an op
    /// finds a bad index in its data, or the GPU fails. The clip phase must then succeed before the next step.
    pub fn run_clip(&mut self, inputs: &Tensors) -> Result<(), CudaError> {
        tensors::refuse_unknown(&self.graph, &[Phase::Clip], inputs)?;
        self.clip_has_run = false;
        self.inputs.stage(&self.graph, &[Phase::Clip], inputs)?;
        self.settled(|program| {
            program.start_clip()?;
            program.upload_inputs(&[Phase::Clip])?;
            program.executor.enqueue(&program.stream, Phase::Clip)?;
            program.clip_has_run = true;
            Ok(())
        })
    }

    /// Sets a step's inputs, replays the step, and returns the results.
    ///
    /// # Errors
    /// If the graph has a clip phase that has not run, an input of the step phase is missing or of another type, an
    /// input is not one of the step phase's, an op finds a bad index in its data, or the GPU fails.
    pub fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, CudaError> {
        self.refuse_without_clip()?;
        tensors::refuse_unknown(&self.graph, &[Phase::Step], inputs)?;
        self.inputs.stage(&self.graph, &[Phase::Step], inputs)?;
        self.settled(|program| {
            program.upload_inputs(&[Phase::Step])?;
            program.executor.enqueue(&program.stream, Phase::Step)?;
            program.download_results(Half::First)
        })?;
        self.outputs.read(&self.graph, Half::First)
    }

    /// Runs the step phase again with the inputs that were given last: for timing.
    ///
    /// # Errors
    /// If an op finds a bad index in its data, or the GPU fails.
    pub fn replay(&mut self) -> Result<(), CudaError> {
        self.settled(|program| {
            program.upload_inputs(&[Phase::Step])?;
            program.executor.enqueue(&program.stream, Phase::Step)
        })
    }

    /// Replays the step `count` times without waiting in between, and returns the milliseconds that each took on the
    /// GPU, without the copies of its inputs.
    ///
    /// # Errors
    /// As [`Program::replay`].
    pub fn time_replays(&mut self, count: usize) -> Result<Vec<f32>, CudaError> {
        let context = self.context().clone();
        let event = |_| Event::new(&context);
        let starts: Vec<Event> = (0..count).map(event).collect::<Result<_, CudaError>>()?;
        let ends: Vec<Event> = (0..count).map(event).collect::<Result<_, CudaError>>()?;
        self.settled(|program| {
            for (start, end) in starts.iter().zip(&ends) {
                // A step may have overwritten them.
                program.upload_inputs(&[Phase::Step])?;
                program.stream.record(start)?;
                program.executor.enqueue(&program.stream, Phase::Step)?;
                program.stream.record(end)?;
            }
            Ok(())
        })?;
        starts.iter().zip(&ends).map(|(start, end)| end.milliseconds_since(start)).collect()
    }

    /// Copies the staged inputs of some phases to the GPU.
    fn upload_inputs(&mut self, phases: &[Phase]) -> Result<(), CudaError> {
        let bytes = self.inputs.bytes(phases);
        let copying = Copying { name: "inputs", direction: Direction::ToDevice, bytes };
        self.executor.enqueue_copy(&self.stream, copying, || self.inputs.upload(&self.stream, phases))
    }

    /// Copies the results to the host.
    fn download_results(&mut self, half: Half) -> Result<(), CudaError> {
        let bytes = self.outputs.bytes();
        let copying = Copying { name: "results", direction: Direction::FromDevice, bytes };
        self.executor.enqueue_copy(&self.stream, copying, || self.outputs.enqueue(&self.stream, half))
    }

    /// Refuses a step before the clip phase, whose results it reads.
    fn refuse_without_clip(&self) -> Result<(), CudaError> {
        let has_clip_inputs =
            self.graph.inputs().iter().any(|&v| self.graph.value(v).source == Source::Input(Phase::Clip));
        if has_clip_inputs && !self.clip_has_run {
            return Err(RunError::ClipNotRun.into());
        }
        Ok(())
    }

    /// Marks that the arena holds no clip that a step could read, until the clip phase has run.
    fn start_clip(&mut self) -> Result<(), CudaError> {
        self.clip_has_run = false;
        if let Some(byte) = self.options.poison {
            // SAFETY: the arena is this program's own.
            unsafe { self.stream.fill(self.arena.address(), byte, self.arena.bytes())? };
        }
        Ok(())
    }

    /// Submits work to the GPU and waits for it. Whatever happens, nothing is running afterwards, and an error of the
    /// device or in the data is returned.
    fn settled(&mut self, work: impl FnOnce(&mut Program) -> Result<(), CudaError>) -> Result<(), CudaError> {
        let given = self.fault.clear(&self.stream).and_then(|()| work(self));
        let read = given.and_then(|()| self.fault.enqueue(&self.stream));
        let waited = self.stream.synchronise();
        let result = match (read, waited) {
            // The device's own error says more than the error of a call that came after it.
            (Err(error @ CudaError::DuringRun { .. }), _) => Err(error),
            (_, Err(error)) => Err(self.executor.during_run(error)),
            (Err(error), Ok(())) => Err(error),
            (Ok(()), Ok(())) => self.fault.check(&self.graph, &self.plan),
        };
        let result = self.executor.report_times(result.is_ok()).and(result);
        if result.is_err() && self.fault.phase(&self.plan) != Some(Phase::Step) {
            self.clip_has_run = false;
        }
        result
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Running launches read what is about to be freed.
        let _ = self.stream.synchronise();
    }
}
