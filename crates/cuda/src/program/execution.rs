//! Submitting a plan's launches to the GPU.

use kinora_graph::{NodeId, Phase};
use kinora_profile::Profiler;

use super::timing::{Copying, Timing};
use crate::{
    CudaError, CudaOptions,
    driver::{Context, ExecutableGraph, Stream},
    work::PreparedWork,
};

/// A node as it runs.
#[derive(Debug)]
pub(super) struct RunningNode {
    pub node: NodeId,
    pub layer: String,
    /// The name of what runs it.
    pub kernel: String,
    pub work: Vec<PreparedWork>,
}

/// The launches of both phases. The program that holds this also holds the memory that they point to.
#[derive(Debug)]
pub(super) struct Executor {
    /// The step as one launch. It is dropped before the kernels that it launches.
    recorded: Option<ExecutableGraph>,
    clip: Vec<RunningNode>,
    step: Vec<RunningNode>,
    synchronise_every_launch: bool,
    /// Times every launch, if requested.
    timing: Option<Timing>,
    /// The phase that was begun last, and how often the step has run.
    phase: Phase,
    steps: u64,
}

impl Executor {
    /// Records the step, if it is to run as a CUDA graph.
    pub fn new(
        context: &Context,
        clip: Vec<RunningNode>,
        step: Vec<RunningNode>,
        options: &CudaOptions,
    ) -> Result<Executor, CudaError> {
        let mut executor = Executor {
            clip,
            step,
            recorded: None,
            synchronise_every_launch: options.synchronise_every_launch,
            timing: None,
            phase: Phase::Load,
            steps: 0,
        };
        let wanted = options.cuda_graphs && !options.synchronise_every_launch;
        if wanted && executor.launches(Phase::Step) > 0 {
            // So that an error names its layer.
            executor.phase = Phase::Step;
            executor.recorded = Some(executor.record(context)?);
            executor.phase = Phase::Load;
        }
        Ok(executor)
    }

    /// Records the step in a stream of its own: another thread may be copying weights in the program's stream.
    fn record(&self, context: &Context) -> Result<ExecutableGraph, CudaError> {
        let stream = Stream::new(context)?;
        let mut graph = stream.capture(|| self.enqueue_launches(&stream, Phase::Step))?;
        graph.upload(&stream)?;
        stream.synchronise()?;
        Ok(graph)
    }

    fn nodes(&self, phase: Phase) -> &[RunningNode] {
        match phase {
            Phase::Load => &[],
            Phase::Clip => &self.clip,
            Phase::Step => &self.step,
        }
    }

    pub fn launches(&self, phase: Phase) -> usize {
        self.nodes(phase).iter().map(|node| node.work.len()).sum()
    }

    /// Enqueues a phase in the stream.
    pub fn enqueue(&mut self, stream: &Stream, phase: Phase) -> Result<(), CudaError> {
        self.phase = phase;
        if phase == Phase::Step {
            // Events within a CUDA graph would only show its last launch.
            if self.timing.is_none()
                && let Some(mut graph) = self.recorded.take()
            {
                let launched = self.enqueue_recorded(stream, &mut graph);
                self.recorded = Some(graph);
                return launched;
            }
            self.steps += 1;
        }
        if self.timing.is_some() {
            return self.enqueue_timed(stream, phase);
        }
        self.enqueue_launches(stream, phase)
    }

    /// Enqueues a step that was recorded elsewhere.
    pub fn enqueue_recorded(
        &mut self,
        stream: &Stream,
        graph: &mut ExecutableGraph,
    ) -> Result<(), CudaError> {
        self.phase = Phase::Step;
        self.steps += 1;
        // SAFETY: the memory lives as long as the program, which waits for the stream before it is dropped.
        let launched = unsafe { graph.enqueue(stream) };
        launched.map_err(|error| self.during_run(error))
    }

    /// Whether steps run as one launch.
    pub fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Whether every launch is timed.
    pub fn is_timed(&self) -> bool {
        self.timing.is_some()
    }

    /// Starts timing all launches, which then run one by one; `None` stops it.
    pub fn set_timing(&mut self, timing: Option<Timing>) {
        self.timing = timing;
    }

    /// Enqueues a copy between host and device in the stream.
    pub fn enqueue_copy(
        &mut self,
        stream: &Stream,
        copying: Copying,
        copy: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        match &mut self.timing {
            Some(timing) => timing.copy(stream, copying, copy),
            None => copy(),
        }
    }

    /// The profiler that records everything; one that is off if nothing is profiled.
    pub fn profiler(&self) -> Profiler {
        self.timing.as_ref().map_or_else(Profiler::off, |timing| timing.profiler().clone())
    }

    /// Reports the launches that have finished since the last report to the profiler, or discards them if they failed.
    pub fn report_times(&mut self, succeeded: bool) -> Result<(), CudaError> {
        match &mut self.timing {
            Some(timing) if succeeded => timing.report(),
            Some(timing) => {
                timing.forget();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The nodes of a phase that launch something, in order.
    pub fn launching(&self, phase: Phase) -> impl Iterator<Item = &RunningNode> {
        self.nodes(phase).iter().filter(|node| !node.work.is_empty())
    }

    fn enqueue_timed(&mut self, stream: &Stream, phase: Phase) -> Result<(), CudaError> {
        let Some(mut timing) = self.timing.take() else { return Ok(()) };
        let enqueued = timing.begin(stream, phase).and_then(|_launches| {
            let mut nodes = self.launching(phase).enumerate();
            nodes.try_for_each(|(number, node)| {
                timing.layer(stream, phase, number, || self.enqueue_node(stream, node))
            })
        });
        self.timing = Some(timing);
        enqueued
    }

    /// Enqueues the launches of a phase one by one.
    pub fn enqueue_launches(&self, stream: &Stream, phase: Phase) -> Result<(), CudaError> {
        self.nodes(phase).iter().try_for_each(|node| self.enqueue_node(stream, node))
    }

    fn enqueue_node(&self, stream: &Stream, node: &RunningNode) -> Result<(), CudaError> {
        for work in &node.work {
            // SAFETY: the work addresses only its call's memory (the contract of `Implementation`), which lives as long as the
            // program; the program waits for the stream before it is dropped.
            let launched = unsafe { work.enqueue(stream) };
            let done = launched.and_then(|()| match self.synchronise_every_launch {
                true => stream.synchronise(),
                false => Ok(()),
            });
            done.map_err(|error| self.error(error, Some(&node.layer)))?;
        }
        Ok(())
    }

    /// An error that occurred while the last launches ran.
    pub fn during_run(&self, error: CudaError) -> CudaError {
        self.error(error, None)
    }

    fn error(&self, error: CudaError, layer: Option<&str>) -> CudaError {
        if matches!(error, CudaError::DuringRun { .. }) || self.phase == Phase::Load {
            return error;
        }
        let layer = layer.map(str::to_owned);
        let replay = self.steps.saturating_sub(1);
        CudaError::DuringRun { phase: self.phase, replay, layer, source: Box::new(error) }
    }
}
