//! Many steps in a row, each on the results of the one before, without waiting for the host in between.

use kinora_graph::{DType, Graph, Phase, Source, Tensor};
use kinora_profile::{Direction, OpenSpan, Profiler, steps::STEP};
use kinora_runtime::{RunError, StepLoop, StepObserver, StepResults, Tensors};

use super::{
    Program,
    staging::{Half, Outputs, next_offset},
    timing::Copying,
};
use crate::{
    CudaError,
    driver::{DeviceBuffer, Event, PreparedLaunch},
    launch::{Argument, CType, DevicePointer, Kernel, Launch, Source as KernelSource},
};

const COUNT_SOURCE: KernelSource = KernelSource { path: "program/count.cu", text: include_str!("count.cu") };

/// Adds one to every number of an i32 tensor.
pub(super) fn count_up_kernel() -> Kernel {
    Kernel::new(COUNT_SOURCE, "count_up").taking(vec![CType::Pointer, CType::I64])
}

/// Whether a graph has an input that could count its steps.
pub(super) fn can_count(graph: &Graph) -> bool {
    let counts = |&id| {
        let value = graph.value(id);
        value.source == Source::Input(Phase::Step) && value.ty.dtype == DType::I32
    };
    graph.inputs().iter().any(counts)
}

/// Copies of the step's inputs on the device, outside the arena: a step may overwrite an input, and a result may lie where
/// an input is to be written.
#[derive(Debug)]
pub(super) struct Feed {
    memory: DeviceBuffer,
}

/// An input in a loop.
struct FedInput {
    /// Where the plan wants it.
    to: DevicePointer,
    /// The offset of its copy from the feed's first byte.
    offset: usize,
    bytes: usize,
    /// The distance from one step's copy to the next one's: 0 except for fresh inputs.
    stride: usize,
    /// The result that its copy is made of after each step.
    result: Option<DevicePointer>,
    /// How many of its numbers are incremented after each step.
    counted: usize,
}

/// The step that the host waits for, as the profiler sees it: from the results of the one before to its own.
struct AwaitedStep {
    profiler: Profiler,
    span: Option<OpenSpan>,
}

impl AwaitedStep {
    fn begin(profiler: Profiler) -> AwaitedStep {
        let span = Some(profiler.span(STEP));
        AwaitedStep { profiler, span }
    }

    /// The results are here. The next step has begun, if there is one.
    fn end(&mut self, another_follows: bool) {
        drop(self.span.take());
        self.span = another_follows.then(|| self.profiler.span(STEP));
    }
}

/// The results of a step that have been copied to the host.
struct Copied<'a> {
    graph: &'a Graph,
    outputs: &'a Outputs,
    half: Half,
}

impl StepResults for Copied<'_> {
    fn get(&self, name: &str) -> Option<Tensor> {
        self.outputs.read_one(self.graph, name, self.half)
    }
}

impl Program {
    /// Replays the step as often as the [`StepLoop`] says. Returns the results of the last step.
    ///
    /// `inputs` are those of the first step; [`StepLoop::fresh`] inputs may be left out. The host waits only for the
    /// end, unless there is an `observer`: it is called after each step, while the next one is already running, and may
    /// stop the loop.
    ///
    /// # Errors
    /// As [`Program::run_step`] and [`StepLoop::first_inputs`]; [`RunError::Stopped`] if the observer stopped it.
    pub fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        mut observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, CudaError> {
        self.refuse_without_clip()?;
        let first = steps.first_inputs(&self.graph, inputs)?;
        if steps.count == 0 {
            return Ok(Tensors::new());
        }
        self.inputs.stage(&self.graph, &[Phase::Step], &first)?;
        let (fed, bytes) = self.fed_inputs(steps)?;
        if self.feed.as_ref().is_none_or(|feed| feed.memory.bytes() < bytes) {
            self.feed = None;
            self.feed = Some(Feed { memory: DeviceBuffer::new(self.stream.context(), bytes)? });
        }
        let base = self.feed.as_ref().map_or(DevicePointer::NULL, |feed| feed.memory.address());
        let counters = self.counters(&fed, base)?;
        let done = [Event::new(self.stream.context())?, Event::new(self.stream.context())?];
        if observer.is_some() {
            self.outputs.make_second_half(self.stream.context())?;
        }
        let mut stopped = false;
        self.settled(|program| {
            let mut awaited = observer.as_ref().map(|_| AwaitedStep::begin(program.executor.profiler()));
            program.upload_feed(steps, &fed, base)?;
            for step in 0..steps.count {
                program.enqueue_fed_step(&fed, &counters, base, step, step + 1 < steps.count)?;
                let Some(observer) = &mut observer else { continue };
                program.download_results(Half::of(step))?;
                program.stream.record(&done[step % 2])?;
                // The observer sees the previous step while this one runs.
                if step > 0 {
                    program.wait_for_step(step - 1, &done)?;
                    awaited.iter_mut().for_each(|awaited| awaited.end(true));
                    if program.observe(step - 1, &mut **observer) {
                        stopped = true;
                        return Ok(());
                    }
                }
            }
            match &mut observer {
                Some(observer) => {
                    program.wait_for_step(steps.count - 1, &done)?;
                    awaited.iter_mut().for_each(|awaited| awaited.end(false));
                    stopped = program.observe(steps.count - 1, &mut **observer);
                }
                None => program.download_results(Half::of(steps.count - 1))?,
            }
            Ok(())
        })?;
        match stopped {
            true => Err(RunError::Stopped.into()),
            false => self.outputs.read(&self.graph, Half::of(steps.count - 1)),
        }
    }

    /// Waits for a step's results.
    fn wait_for_step(&self, step: usize, done: &[Event; 2]) -> Result<(), CudaError> {
        done[step % 2].synchronise().map_err(|error| self.executor.during_run(error))
    }

    /// Calls the observer with a step whose results have arrived; returns whether it stops the loop.
    fn observe(&self, step: usize, observer: &mut StepObserver<'_>) -> bool {
        let results = Copied { graph: &self.graph, outputs: &self.outputs, half: Half::of(step) };
        observer(step + 1, &results).is_break()
    }

    /// The inputs that have a place, with how each changes, and the bytes that their copies take.
    fn fed_inputs(&self, steps: &StepLoop<'_>) -> Result<(Vec<FedInput>, usize), CudaError> {
        let mut fed = Vec::new();
        let mut end = 0usize;
        for slot in self.inputs.slots(Phase::Step) {
            let ty = self.graph.ty(slot.value);
            let fresh = steps.fresh.iter().find(|(name, _)| *name == slot.name);
            let result = match steps.feedback.iter().find(|(_, input)| *input == slot.name) {
                Some((output, _)) => {
                    // A result that is known after the load phase is the same after every step, and is not on the
                    // device.
                    let unknown = || RunError::UnknownOutput((*output).to_owned());
                    Some(self.outputs.slot(output).ok_or_else(unknown)?.address)
                }
                None => None,
            };
            let counts = steps.counters.contains(&slot.name.as_str());
            let copies = if fresh.is_some() { steps.count } else { 1 };
            let start = end;
            for _ in 0..copies {
                end = next_offset(end, slot.bytes)?;
            }
            fed.push(FedInput {
                to: slot.address,
                offset: start,
                bytes: slot.bytes,
                stride: if fresh.is_some() { (end - start) / copies } else { 0 },
                result,
                counted: if counts { ty.elements() } else { 0 },
            });
        }
        Ok((fed, end))
    }

    /// The launches that count.
    fn counters(&self, fed: &[FedInput], base: DevicePointer) -> Result<Vec<PreparedLaunch>, CudaError> {
        const BLOCK: u32 = 256;
        let launch = |input: &FedInput| {
            let blocks = u32::try_from(input.counted.div_ceil(BLOCK as usize))
                .map_err(|_| CudaError::Internal("a counter has too many numbers".into()))?;
            let arguments = vec![
                Argument::Pointer(base.offset(input.offset)),
                Argument::I64(i64::try_from(input.counted).unwrap_or(i64::MAX)),
            ];
            self.kernels.prepare(&Launch::new(count_up_kernel(), blocks, BLOCK, arguments))
        };
        fed.iter().filter(|input| input.counted > 0).map(launch).collect()
    }

    /// Fills the copies with the staged inputs of the first step, and those of fresh inputs with the values of all
    /// steps.
    fn upload_feed(
        &mut self,
        steps: &StepLoop<'_>,
        fed: &[FedInput],
        base: DevicePointer,
    ) -> Result<(), CudaError> {
        let (inputs, stream) = (&self.inputs, &self.stream);
        let fresh =
            |name: &str| steps.fresh.iter().find(|(fresh, _)| *fresh == name).map(|(_, tensors)| *tensors);
        let copies = inputs.slots(Phase::Step).zip(fed).flat_map(|(slot, input)| {
            let at = base.offset(input.offset);
            match fresh(&slot.name) {
                Some(tensors) => {
                    let place = |step: usize| at.offset(step * input.stride);
                    tensors.iter().enumerate().map(|(step, tensor)| (place(step), tensor.bytes())).collect()
                }
                None => vec![(at, inputs.staged(slot))],
            }
        });
        let copies: Vec<(DevicePointer, &[u8])> = copies.collect();
        let bytes = copies.iter().map(|(_, from)| from.len()).sum();
        let copying = Copying { name: "inputs", direction: Direction::ToDevice, bytes };
        self.executor.enqueue_copy(stream, copying, || {
            copies.iter().try_for_each(|(to, from)| {
                // SAFETY: the feed has room for every copy; the staged bytes and the tensors stay until the loop is
                // waited for.
                unsafe { stream.upload(*to, from) }
            })
        })
    }

    fn enqueue_fed_step(
        &mut self,
        fed: &[FedInput],
        counters: &[PreparedLaunch],
        base: DevicePointer,
        step: usize,
        another_follows: bool,
    ) -> Result<(), CudaError> {
        for input in fed {
            let from = base.offset(input.offset + step * input.stride);
            // SAFETY: both are the input's, in the arena and outside it.
            unsafe { self.stream.copy(input.to, from, input.bytes)? };
        }
        self.executor.enqueue(&self.stream, Phase::Step)?;
        if !another_follows {
            return Ok(());
        }
        for input in fed {
            if let Some(result) = input.result {
                // SAFETY: the result is in the arena, of the input's type, and its copy outside it.
                unsafe { self.stream.copy(base.offset(input.offset), result, input.bytes)? };
            }
        }
        for counter in counters {
            // SAFETY: the argument is an input's copy, of that many numbers, and lives until the loop is waited for.
            unsafe { counter.enqueue(&self.stream)? };
        }
        Ok(())
    }
}
