//! Loading a program: memory, launches, code and weights.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use kinora_graph::{Graph, Parameters, Phase, Tensor, ValueId, plan::Plan};
use kinora_profile::{Direction, Profiler};
use kinora_runtime::{HostOps, RunError, SharedWeights, load_in_parallel};

use super::{
    GPU_LANE, LoadTimes, Planned, Program, ProgramMemory,
    execution::{Executor, RunningNode},
    faults::FaultWord,
    lowering::{self, LoweredNode, Memory, WeightLayout},
    staging::{Inputs, Outputs},
    timing::{Copying, Timing},
    weights::{Borrowed, Weights},
};
use crate::{
    CudaError, CudaOptions, KernelPool, LoadedKernels,
    compiler::{Compilation, CompileTarget, Compiler, CompilerOptions, Progress, Statistics},
    driver::{Context, Device, DeviceBuffer, Event, PinnedBuffer, Stream},
    kernels::DevicePointer,
    work::PreparedWork,
};

/// The largest size of a buffer that weights go through, and how many of these there are at most.
const STAGING_BYTES: usize = 4 << 20;
const STAGING_BUFFERS: usize = 16;

/// How a program is loaded.
pub struct LoadOptions<'a> {
    /// How kernels are compiled and kept.
    pub compiler: CompilerOptions,
    /// Called for each kernel that is compiled or found.
    pub progress: &'a (dyn Fn(&Progress) + Sync),
    /// Records the copies of weights, if it is on.
    pub profiler: Profiler,
    /// The weights that programs have in common.
    pub shared: Option<&'a SharedWeights>,
    /// The kernels that programs have in common: those of one context.
    pub kernels: KernelPool,
    /// Results and inputs that stay on the device: see [`LoadContext::kept`](kinora_runtime::LoadContext::kept).
    pub kept: &'a [&'a str],
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions {
            compiler: CompilerOptions::from_environment(),
            progress: &|_| {},
            profiler: Profiler::off(),
            shared: None,
            kernels: KernelPool::default(),
            kept: &[],
        }
    }
}

pub(super) fn load(
    planned: Planned,
    device: &Device,
    parameters: &dyn Parameters,
    load: &LoadOptions<'_>,
) -> Result<Program, CudaError> {
    let start = Instant::now();
    let Planned { graph, plan, options } = planned;
    plan.verify(&graph)?;
    device.info().accepts(&options.chip)?;
    let context = device.context();
    let before = context.memory()?;

    let borrowed = Borrowed::new(&graph, &plan, load.shared);
    let own: Vec<ValueId> =
        plan.resident().iter().copied().filter(|value| !borrowed.0.contains_key(value)).collect();
    let layout = WeightLayout::new(&graph, own.iter().copied())?;
    let need = layout.bytes.saturating_add(plan.arena_bytes());
    if need > before.free {
        return Err(CudaError::OutOfMemory { need, free: before.free, total: before.total });
    }
    let stream = Stream::new(context)?;
    let weights = DeviceBuffer::new(context, layout.bytes)?;
    let mut addresses = layout.addresses(weights.address());
    addresses.extend(borrowed.0.iter().map(|(&value, weight)| (value, weight.address)));
    let arena = DeviceBuffer::new(context, plan.arena_bytes())?;
    let fault = FaultWord::new(context)?;
    let memory = Memory { weights: &addresses, arena: arena.address(), fault: fault.address() };
    let driver = Some(device.info().driver.major);
    let compiler_options = CompilerOptions { driver, ..load.compiler.clone() };
    let timing = load.profiler.device_lane(GPU_LANE).map(|lane| Timing::new(&load.profiler, lane, &stream));
    let uploader = Uploader::new(&stream, layout.bytes, timing.transpose()?);

    // Weights are read while kernels are compiled, libraries started and the step recorded.
    let (code, known, weights_seconds) = thread::scope(|scope| {
        let code = thread::Builder::new().spawn_scoped(scope, || {
            Code::new(context, (&graph, &plan), &options, &memory, (compiler_options, load))
        });
        let code = code.map_err(|error| RunError::Threads { reason: error.to_string() })?;
        let start = Instant::now();
        let known = upload_weights(&graph, &own, &addresses, (&*options.host, parameters), &uploader);
        let weights_seconds = start.elapsed().as_secs_f64();
        let code = code
            .join()
            .unwrap_or_else(|_| Err(CudaError::Internal("the thread that loads code panicked".into())));
        Ok::<_, CudaError>((code, known, weights_seconds))
    })?;
    let Code { kernels, executor, statistics } = code?;
    let known = known?;
    let inputs = Inputs::new(context, &graph, &plan, &memory, load.kept)?;
    let outputs = Outputs::new(context, &graph, &plan, &memory, &known, load.kept)?;
    stream.synchronise()?;
    uploader.report()?;
    drop(uploader);
    let weights = Weights::new(weights, borrowed, &addresses, &own);
    if let Some(shared) = load.shared {
        weights.share(&graph, shared);
    }

    let after = context.memory()?;
    let memory = ProgramMemory {
        weights: weights.own_bytes(),
        arena: arena.bytes(),
        planned: need,
        driver: before.free.saturating_sub(after.free),
    };
    Ok(Program {
        graph,
        plan,
        options,
        stream,
        executor,
        inputs,
        outputs,
        fault,
        kernels,
        feed: None,
        frames: None,
        arena,
        _weights: weights,
        memory,
        load_times: LoadTimes { seconds: start.elapsed().as_secs_f64(), weights_seconds },
        compiled: statistics,
        clip_has_run: false,
    })
}

/// A program's code: everything but its weights.
struct Code {
    kernels: LoadedKernels,
    executor: Executor,
    statistics: Statistics,
}

impl Code {
    /// Compiles, loads and records what a plan launches.
    fn new(
        context: &Context,
        (graph, plan): (&Graph, &Plan),
        options: &CudaOptions,
        memory: &Memory<'_>,
        (compiler, load): (CompilerOptions, &LoadOptions<'_>),
    ) -> Result<Code, CudaError> {
        let lowered = lowering::lower(graph, plan, &*options.chooser(), memory)?;
        let target = CompileTarget { architecture: options.chip.architecture, form: options.chip.form };
        let compiler = Compiler::new(target, compiler)?;
        let (mut kernels, missing) = load.kernels.find(context, lowered.kernels(graph));
        let Compilation { codes, mut statistics } = compiler.compile_all(&missing, load.progress)?;
        statistics.loaded = kernels.len();
        kernels.add(context, codes)?;
        load.kernels.keep(&kernels);
        let kernels = kernels.overlapping(options.overlap_launches);
        let clip = prepare(graph, lowered.clip, &kernels)?;
        let step = prepare(graph, lowered.step, &kernels)?;
        let executor = Executor::new(context, clip, step, options)?;
        Ok(Code { kernels, executor, statistics })
    }
}

/// Prepares every launch.
fn prepare(
    graph: &Graph,
    nodes: Vec<LoweredNode>,
    kernels: &LoadedKernels,
) -> Result<Vec<RunningNode>, CudaError> {
    let running = |LoweredNode { node, kernel, work }: LoweredNode| {
        let work = work
            .into_iter()
            .map(|work| PreparedWork::new(work, kernels))
            .collect::<Result<_, CudaError>>()?;
        Ok(RunningNode { node, layer: graph.node(node).name.clone(), kernel, work })
    };
    nodes.into_iter().map(running).collect()
}

/// Runs the load phase on the host and copies what the later phases read to the device. Returns the values that are
/// results of the graph.
fn upload_weights(
    graph: &Graph,
    own: &[ValueId],
    addresses: &HashMap<ValueId, DevicePointer>,
    host: (&dyn HostOps, &dyn Parameters),
    uploader: &Uploader<'_>,
) -> Result<HashMap<ValueId, Tensor>, CudaError> {
    let results = known_results(graph);
    let uploaded: HashSet<ValueId> = own.iter().copied().collect();
    let others = results.iter().copied().filter(|value| !uploaded.contains(value));
    let wanted: Vec<ValueId> = own.iter().copied().chain(others).collect();
    let known = Mutex::new(HashMap::new());
    load_in_parallel(graph, host, &wanted, |value, tensor| {
        if uploaded.contains(&value) {
            let address = addresses.get(&value).ok_or_else(|| {
                CudaError::Internal(format!("no place for the weight {}", graph.value(value).name))
            })?;
            uploader.upload(*address, tensor.bytes())?;
        }
        if results.contains(&value) {
            known.lock().unwrap_or_else(PoisonError::into_inner).insert(value, tensor);
        }
        Ok::<_, CudaError>(())
    })?;
    Ok(known.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The results of the graph that are weights, which the host keeps as well.
fn known_results(graph: &Graph) -> HashSet<ValueId> {
    let phases = graph.phases();
    let results = graph.outputs().iter().map(|output| output.value);
    results.filter(|value| phases[value.index()] == Phase::Load).collect()
}

/// Copies to the device through pinned buffers: some are filled, each by a thread of its own, while others are copied. They are
/// allocated when something is copied, and no more than there is to copy: pinning 64 MiB takes tens of milliseconds, and a program
/// that borrows its weights has few of its own or none.
struct Uploader<'a> {
    stream: &'a Stream,
    /// The size of a buffer.
    bytes: usize,
    /// How many buffers are made before any is used again.
    most: usize,
    state: Mutex<Uploading>,
}

/// What threads that upload have in common.
#[derive(Default)]
struct Uploading {
    made: usize,
    /// Buffers that may be filled again once their copy is done, the oldest first.
    filled: VecDeque<(PinnedBuffer, Event)>,
    /// Times the copies, if requested.
    timing: Option<Timing>,
}

impl Uploader<'_> {
    /// For so many bytes in all.
    fn new(stream: &Stream, total: usize, timing: Option<Timing>) -> Uploader<'_> {
        let most = total.div_ceil(STAGING_BYTES).min(STAGING_BUFFERS);
        let state = Mutex::new(Uploading { timing, ..Uploading::default() });
        Uploader { stream, bytes: total.clamp(1, STAGING_BYTES), most, state }
    }

    fn state(&self) -> MutexGuard<'_, Uploading> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer that nothing is copied from.
    fn buffer(&self) -> Result<(PinnedBuffer, Event), CudaError> {
        let mut state = self.state();
        let filled = if state.made < self.most { None } else { state.filled.pop_front() };
        let Some((buffer, copied)) = filled else {
            state.made += 1;
            drop(state);
            return Ok((
                PinnedBuffer::new(self.stream.context(), self.bytes)?,
                Event::new(self.stream.context())?,
            ));
        };
        drop(state);
        copied.synchronise()?;
        Ok((buffer, copied))
    }

    fn upload(&self, to: DevicePointer, bytes: &[u8]) -> Result<(), CudaError> {
        let mut to = to;
        for chunk in bytes.chunks(self.bytes) {
            let (mut buffer, copied) = self.buffer()?;
            buffer[..chunk.len()].copy_from_slice(chunk);
            let mut state = self.state();
            // SAFETY: the buffer is not written again before the event recorded next has completed, and waits for
            // copies when it is dropped; the weight has that many bytes there.
            let copy = || unsafe { self.stream.upload(to, &buffer[..chunk.len()]) };
            match &mut state.timing {
                Some(timing) => {
                    let (name, direction) = ("weights", Direction::ToDevice);
                    timing.copy(self.stream, Copying { name, direction, bytes: chunk.len() }, copy)?;
                }
                None => copy()?,
            }
            self.stream.record(&copied)?;
            state.filled.push_back((buffer, copied));
            to = to.offset(chunk.len());
        }
        Ok(())
    }

    /// Reports the copies, which have finished, to the profiler.
    fn report(&self) -> Result<(), CudaError> {
        self.state().timing.as_mut().map_or(Ok(()), Timing::report)
    }
}
