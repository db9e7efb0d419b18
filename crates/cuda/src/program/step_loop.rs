//! Many steps in a row, each on the results of the one before, without waiting for the host in between.

use kinora_graph::{DType, Graph, Phase, Source, Tensor};
use kinora_profile::{Direction, OpenSpan, Profiler, steps::STEP};
use kinora_runtime::{CachedSteps, RunError, StepLoop, StepObserver, StepResults, Tensors};

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

/// The copy of an input in a loop.
struct FedInput {
    name: String,
    /// Its offset from the feed's first byte.
    offset: usize,
    bytes: usize,
    /// The distance from one step's copy to the next one's: 0 except for fresh inputs.
    stride: usize,
    /// How many of its numbers are incremented after each step.
    counted: usize,
}

/// What a program of a loop reads and leaves: places in its arena, each with the number of the copy.
#[derive(Default)]
struct Ports {
    reads: Vec<(DevicePointer, usize)>,
    leaves: Vec<(DevicePointer, usize)>,
}

/// A loop whose inputs have their places. If two programs share it, each runs in its own stream, and waits for the other's where
/// its turn begins.
struct Row<'a> {
    steps: &'a StepLoop<'a>,
    /// Which of the steps are whole, if not all are.
    cached: Option<&'a CachedSteps<'a>>,
    /// The inputs of the first step.
    first: &'a Tensors,
    fed: Vec<FedInput>,
    /// The feed's first byte.
    base: DevicePointer,
    whole: Ports,
    shallow: Ports,
    counters: Vec<PreparedLaunch>,
    /// The results of even steps have arrived, and those of odd ones.
    done: [Event; 2],
    /// Marks the end of a program's turn.
    turn: Event,
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
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, CudaError> {
        self.refuse_without_clip()?;
        let first = steps.first_inputs(&self.graph, inputs)?;
        self.run_row(None, (steps, None), &first, observer)
    }

    /// The same for steps of which another program, of the same context, runs the shallow ones. What is kept for them stays on the
    /// device, and no step waits for the host.
    ///
    /// # Errors
    /// As [`Program::run_steps`] for either program, and [`CachedSteps::first_inputs`].
    pub fn run_cached_steps(
        &mut self,
        shallow: &mut Program,
        cached: &CachedSteps<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, CudaError> {
        self.refuse_without_clip()?;
        shallow.refuse_without_clip()?;
        if shallow.context() != self.context() {
            let reason = "the program of the shallow steps is of another context";
            return Err(CudaError::Internal(reason.to_owned()));
        }
        let first = cached.first_inputs(&self.graph, &shallow.graph, inputs)?;
        self.run_row(Some(shallow), (&cached.steps, Some(cached)), &first, observer)
    }

    fn run_row(
        &mut self,
        mut shallow: Option<&mut Program>,
        (steps, cached): (&StepLoop<'_>, Option<&CachedSteps<'_>>),
        first: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, CudaError> {
        if steps.count == 0 {
            return Ok(Tensors::new());
        }
        self.inputs.stage(&self.graph, &[Phase::Step], first)?;
        if observer.is_some() {
            self.outputs.make_second_half(self.stream.context())?;
            if let Some(shallow) = &mut shallow {
                shallow.outputs.make_second_half(self.stream.context())?;
            }
        }
        let row = self.row(shallow.as_deref(), (steps, cached), first)?;
        let mut stopped = false;
        match &mut shallow {
            None => self.settled(|program| {
                stopped = row.run(program, None, observer)?;
                Ok(())
            })?,
            Some(shallow) => self.settled(|whole| {
                shallow.settled(|shallow| {
                    stopped = row.run(whole, Some(shallow), observer)?;
                    Ok(())
                })
            })?,
        }
        if stopped {
            return Err(RunError::Stopped.into());
        }
        let last = steps.count - 1;
        let program = row.program_of(last, self, shallow.as_deref());
        program.outputs.read(&program.graph, Half::of(last))
    }

    /// Gives the inputs of a loop their places.
    fn row<'a>(
        &mut self,
        shallow: Option<&Program>,
        (steps, cached): (&'a StepLoop<'a>, Option<&'a CachedSteps<'a>>),
        first: &'a Tensors,
    ) -> Result<Row<'a>, CudaError> {
        let mut fed = Vec::new();
        let mut end = 0;
        for program in std::iter::once(&*self).chain(shallow) {
            program.feed_inputs(steps, &mut fed, &mut end)?;
        }
        let kept = cached.map_or(&[][..], |cached| cached.kept);
        let whole = self.ports(&fed, steps, kept)?;
        let shallow = shallow.map(|shallow| shallow.ports(&fed, steps, &[])).transpose()?;
        if self.feed.as_ref().is_none_or(|feed| feed.memory.bytes() < end) {
            self.feed = None;
            self.feed = Some(Feed { memory: DeviceBuffer::new(self.stream.context(), end)? });
        }
        let base = self.feed.as_ref().map_or(DevicePointer::NULL, |feed| feed.memory.address());
        let context = self.stream.context();
        Ok(Row {
            steps,
            cached,
            first,
            counters: self.counters(&fed, base)?,
            fed,
            base,
            whole,
            shallow: shallow.unwrap_or_default(),
            done: [Event::new(context)?, Event::new(context)?],
            turn: Event::new(context)?,
        })
    }

    /// Adds the step's inputs that have a place, with how each changes. `end` is where the next copy may begin.
    fn feed_inputs(
        &self,
        steps: &StepLoop<'_>,
        fed: &mut Vec<FedInput>,
        end: &mut usize,
    ) -> Result<(), CudaError> {
        for slot in self.inputs.slots(Phase::Step).chain(self.inputs.kept()) {
            if fed.iter().any(|input| input.name == slot.name) {
                continue;
            }
            let is_fresh = steps.fresh.iter().any(|(name, _)| *name == slot.name);
            let counts = steps.counters.contains(&slot.name.as_str());
            let copies = if is_fresh { steps.count } else { 1 };
            let start = *end;
            for _ in 0..copies {
                *end = next_offset(*end, slot.bytes)?;
            }
            fed.push(FedInput {
                name: slot.name.clone(),
                offset: start,
                bytes: slot.bytes,
                stride: if is_fresh { (*end - start) / copies } else { 0 },
                counted: if counts { self.graph.ty(slot.value).elements() } else { 0 },
            });
        }
        Ok(())
    }

    /// What the program reads and leaves of the inputs of a loop. `kept` are pairs of a result and an input, as in a loop.
    fn ports(
        &self,
        fed: &[FedInput],
        steps: &StepLoop<'_>,
        kept: &[(&str, &str)],
    ) -> Result<Ports, CudaError> {
        // By name, with the same size: copies are made without another look.
        let number = |name: &str, bytes: usize| match fed.iter().position(|input| input.name == name) {
            Some(number) if fed[number].bytes != bytes => Err(CudaError::Internal(format!(
                "{name} has {bytes} bytes, and {} elsewhere",
                fed[number].bytes
            ))),
            number => Ok(number),
        };
        let (mut reads, mut leaves) = (Vec::new(), Vec::new());
        for slot in self.inputs.slots(Phase::Step).chain(self.inputs.kept()) {
            reads.extend(number(&slot.name, slot.bytes)?.map(|number| (slot.address, number)));
        }
        for &(output, input) in steps.feedback.iter().chain(kept) {
            // An input that nothing reads has no copy.
            if fed.iter().all(|fed| fed.name != input) {
                continue;
            }
            // A result that is known after the load phase is the same after every step, and is not on the device.
            let slot = self.outputs.slot(output).or_else(|| self.outputs.kept_slot(output));
            let slot = slot.ok_or_else(|| RunError::UnknownOutput(output.to_owned()))?;
            leaves.extend(number(input, slot.bytes)?.map(|number| (slot.address, number)));
        }
        Ok(Ports { reads, leaves })
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

    /// Calls the observer with a step whose results have arrived; returns whether it stops the loop.
    fn observe(&self, step: usize, observer: &mut StepObserver<'_>) -> bool {
        let results = Copied { graph: &self.graph, outputs: &self.outputs, half: Half::of(step) };
        observer(step + 1, &results).is_break()
    }
}

impl Row<'_> {
    /// Runs all steps. Returns whether the observer stopped them.
    fn run(
        &self,
        whole: &mut Program,
        mut shallow: Option<&mut Program>,
        mut observer: Option<&mut StepObserver<'_>>,
    ) -> Result<bool, CudaError> {
        let mut awaited = observer.as_ref().map(|_| AwaitedStep::begin(whole.executor.profiler()));
        let mut stopped = false;
        self.upload(whole)?;
        for step in 0..self.steps.count {
            if step > 0 {
                self.pass_turn(step - 1, step, whole, shallow.as_deref())?;
            }
            let program = match &mut shallow {
                Some(shallow) if !self.is_whole(step) => &mut **shallow,
                _ => &mut *whole,
            };
            self.enqueue(program, step)?;
            if observer.is_some() || step + 1 == self.steps.count {
                program.download_results(Half::of(step))?;
            }
            let Some(observer) = &mut observer else { continue };
            program.stream.record(&self.done[step % 2])?;
            // The observer sees the previous step while this one runs.
            if step > 0 {
                self.wait_for(step - 1, whole)?;
                awaited.iter_mut().for_each(|awaited| awaited.end(true));
                let before = self.program_of(step - 1, whole, shallow.as_deref());
                stopped = before.observe(step - 1, &mut **observer);
                if stopped {
                    break;
                }
            }
        }
        let last = self.steps.count - 1;
        if let Some(observer) = observer.filter(|_| !stopped) {
            self.wait_for(last, whole)?;
            awaited.iter_mut().for_each(|awaited| awaited.end(false));
            stopped = self.program_of(last, whole, shallow.as_deref()).observe(last, observer);
        }
        // Who waits for the shallow steps then waits for all of them.
        if let Some(shallow) = shallow {
            whole.stream.record(&self.turn)?;
            shallow.stream.wait_for(&self.turn)?;
        }
        Ok(stopped)
    }

    fn is_whole(&self, step: usize) -> bool {
        self.cached.is_none_or(|cached| cached.is_whole(step))
    }

    /// The program that runs a step.
    fn program_of<'p>(&self, step: usize, whole: &'p Program, shallow: Option<&'p Program>) -> &'p Program {
        shallow.filter(|_| !self.is_whole(step)).unwrap_or(whole)
    }

    /// If another program runs a step than the one before, it waits for that one.
    fn pass_turn(
        &self,
        before: usize,
        step: usize,
        whole: &Program,
        shallow: Option<&Program>,
    ) -> Result<(), CudaError> {
        if self.is_whole(before) == self.is_whole(step) {
            return Ok(());
        }
        self.program_of(before, whole, shallow).stream.record(&self.turn)?;
        self.program_of(step, whole, shallow).stream.wait_for(&self.turn)
    }

    /// Waits for a step's results.
    fn wait_for(&self, step: usize, whole: &Program) -> Result<(), CudaError> {
        self.done[step % 2].synchronise().map_err(|error| whole.executor.during_run(error))
    }

    /// Fills the copies with the staged inputs of the first step, and those of fresh inputs with the values of all
    /// steps.
    fn upload(&self, whole: &mut Program) -> Result<(), CudaError> {
        let (inputs, stream) = (&whole.inputs, &whole.stream);
        let mut copies: Vec<(DevicePointer, &[u8])> = Vec::new();
        for input in &self.fed {
            let at = self.base.offset(input.offset);
            if let Some((_, tensors)) = self.steps.fresh.iter().find(|(fresh, _)| *fresh == input.name) {
                let place = |step: usize| at.offset(step * input.stride);
                copies.extend(tensors.iter().enumerate().map(|(step, tensor)| (place(step), tensor.bytes())));
                continue;
            }
            // What nothing reads in a whole step is not staged, and what is kept comes later.
            let staged = inputs.slots(Phase::Step).find(|slot| slot.name == input.name);
            let given = staged.map(|slot| inputs.staged(slot));
            let given = given.or_else(|| self.first.get(&input.name).map(Tensor::bytes));
            copies.extend(given.map(|bytes| (at, bytes)));
        }
        let bytes = copies.iter().map(|(_, from)| from.len()).sum();
        let copying = Copying { name: "inputs", direction: Direction::ToDevice, bytes };
        whole.executor.enqueue_copy(stream, copying, || {
            copies.iter().try_for_each(|(to, from)| {
                // SAFETY: the feed has room for every copy, of which each has its input's type; the staged bytes and the
                // tensors stay until the loop is waited for.
                unsafe { stream.upload(*to, from) }
            })
        })
    }

    fn enqueue(&self, program: &mut Program, step: usize) -> Result<(), CudaError> {
        let ports = if self.is_whole(step) { &self.whole } else { &self.shallow };
        for &(to, number) in &ports.reads {
            let input = &self.fed[number];
            let from = self.base.offset(input.offset + step * input.stride);
            // SAFETY: both are the input's, in the arena and outside it, and of one size.
            unsafe { program.stream.copy(to, from, input.bytes)? };
        }
        program.executor.enqueue(&program.stream, Phase::Step)?;
        if step + 1 == self.steps.count {
            return Ok(());
        }
        for &(result, number) in &ports.leaves {
            let input = &self.fed[number];
            // SAFETY: the result is in the arena, and its copy, of the same size, outside it.
            unsafe { program.stream.copy(self.base.offset(input.offset), result, input.bytes)? };
        }
        for counter in &self.counters {
            // SAFETY: the argument is an input's copy, of that many numbers, and lives until the loop is waited for.
            unsafe { counter.enqueue(&program.stream)? };
        }
        Ok(())
    }
}
