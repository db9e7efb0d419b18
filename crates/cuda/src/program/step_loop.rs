//! Many steps in a row, of which each takes up results of the one before, without a wait for the host between them.

use std::ops::ControlFlow;

use kinora_cpu::{CpuError, Tensors, tensors};
use kinora_graph::{DType, Graph, Phase, Source, Tensor};

use super::{Program, staging::next_offset};
use crate::{
    CudaError,
    driver::{DeviceBuffer, Event, PreparedLaunch},
    kernels::{Argument, DevicePointer, Kernel, Launch, Source as KernelSource},
};

const COUNT_SOURCE: KernelSource = KernelSource { path: "program/count.cu", text: include_str!("count.cu") };

/// Adds one to every number of an i32 tensor.
pub(super) fn count_up_kernel() -> Kernel {
    Kernel::new(COUNT_SOURCE, "count_up")
}

/// Whether a graph has an input that could count its steps.
pub(super) fn can_count(graph: &Graph) -> bool {
    let counts = |&id| {
        let value = graph.value(id);
        value.source == Source::Input(Phase::Step) && value.ty.dtype == DType::I32
    };
    graph.inputs().iter().any(counts)
}

/// How the steps of a loop follow from each other. An input of the step phase that is not named here is the same in every
/// step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepLoop<'a> {
    /// How many steps there are.
    pub count: usize,
    /// Results that are inputs of the next step: pairs of output and input.
    pub feedback: &'a [(&'a str, &'a str)],
    /// Inputs of type i32 that grow by one from step to step.
    pub counters: &'a [&'a str],
    /// Inputs with a value of their own for each step, such as fresh noise.
    pub fresh: &'a [(&'a str, &'a [Tensor])],
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
    /// Where its copy lies, counted from the feed's first byte.
    offset: usize,
    bytes: usize,
    /// From one step's copy to the next one's: 0 but for fresh inputs.
    stride: usize,
    /// The result that its copy is made of after each step.
    result: Option<DevicePointer>,
    /// How many numbers of it count up after each step.
    counted: usize,
}

impl Program {
    /// Replays the step so many times; see [`StepLoop`]. Returns the results of the last step.
    ///
    /// `inputs` are those of the first step; one that is [`StepLoop::fresh`] may be left out. The host waits for nothing
    /// but the end, unless there is an `observer`: that is called after each step with the number of steps done, and may
    /// stop the loop.
    ///
    /// # Errors
    /// As [`Program::run_step`]; and where a name is no input or output, the types of a pair differ, a counter is not i32,
    /// or there are not as many fresh tensors as steps. [`CudaError::Stopped`] where the observer stopped it.
    pub fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        mut observer: Option<&mut dyn FnMut(usize) -> ControlFlow<()>>,
    ) -> Result<Tensors, CudaError> {
        self.refuse_without_clip()?;
        if steps.count == 0 {
            return Ok(Tensors::new());
        }
        let first = self.first_inputs(steps, inputs)?;
        self.inputs.stage(&self.graph, &[Phase::Step], &first)?;
        let (fed, bytes) = self.fed_inputs(steps)?;
        if self.feed.as_ref().is_none_or(|feed| feed.memory.bytes() < bytes) {
            self.feed = None;
            self.feed = Some(Feed { memory: DeviceBuffer::new(self.stream.context(), bytes)? });
        }
        let base = self.feed.as_ref().map_or(0, |feed| feed.memory.address());
        let counters = self.counters(&fed, base)?;
        let done = Event::new(self.stream.context())?;
        let mut stopped = None;
        self.settled(|program| {
            program.upload_feed(steps, &fed, base)?;
            for step in 0..steps.count {
                program.enqueue_fed_step(&fed, &counters, base, step, step + 1 < steps.count)?;
                if let Some(observer) = &mut observer {
                    program.stream.record(&done)?;
                    done.synchronise().map_err(|error| program.executor.during_run(error))?;
                    if observer(step + 1).is_break() {
                        stopped = Some(step + 1);
                        break;
                    }
                }
            }
            program.outputs.enqueue(&program.stream)
        })?;
        match stopped {
            Some(steps) => Err(CudaError::Stopped { steps }),
            None => self.outputs.read(&self.graph),
        }
    }

    /// All inputs of the first step.
    fn first_inputs(&self, steps: &StepLoop<'_>, inputs: &Tensors) -> Result<Tensors, CudaError> {
        let mut first = inputs.clone();
        for &(name, tensors) in steps.fresh {
            if tensors.len() != steps.count {
                return Err(CudaError::FreshCount {
                    input: name.to_owned(),
                    got: tensors.len(),
                    steps: steps.count,
                });
            }
            first.insert(name.to_owned(), tensors[0].clone());
        }
        let named = steps.feedback.iter().map(|pair| pair.1).chain(steps.counters.iter().copied());
        for name in named {
            let is_input = |&id: &kinora_graph::ValueId| {
                let value = self.graph.value(id);
                value.name == name && value.source == Source::Input(Phase::Step)
            };
            if !self.graph.inputs().iter().any(is_input) {
                return Err(CpuError::UnknownInput(name.to_owned()).into());
            }
        }
        tensors::refuse_unknown(&self.graph, &[Phase::Step], &first)?;
        Ok(first)
    }

    /// The inputs that have a place, with how each changes, and the bytes that their copies take.
    fn fed_inputs(&self, steps: &StepLoop<'_>) -> Result<(Vec<FedInput>, usize), CudaError> {
        let mut fed = Vec::new();
        let mut end = 0usize;
        for slot in self.inputs.slots(Phase::Step) {
            let ty = self.graph.ty(slot.value);
            let fresh = steps.fresh.iter().find(|(name, _)| *name == slot.name);
            for tensor in fresh.map_or(&[][..], |(_, tensors)| tensors) {
                self.check_type(&slot.name, ty, tensor.ty())?;
            }
            let result = match steps.feedback.iter().find(|(_, input)| *input == slot.name) {
                Some((output, _)) => {
                    let from = self
                        .outputs
                        .slot(output)
                        .ok_or_else(|| CudaError::UnknownOutput((*output).to_owned()))?;
                    self.check_type(&slot.name, ty, self.graph.ty(from.value))?;
                    Some(from.address)
                }
                None => None,
            };
            let counts = steps.counters.contains(&slot.name.as_str());
            if counts && ty.dtype != DType::I32 {
                let expected = kinora_graph::TensorType::new(DType::I32, ty.shape.clone());
                self.check_type(&slot.name, &expected, ty)?;
            }
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

    fn check_type(
        &self,
        name: &str,
        expected: &kinora_graph::TensorType,
        got: &kinora_graph::TensorType,
    ) -> Result<(), CudaError> {
        if expected == got {
            return Ok(());
        }
        let (expected, got) = (expected.clone(), got.clone());
        Err(CpuError::WrongType { name: name.to_owned(), expected, got }.into())
    }

    /// The launches that count.
    fn counters(&self, fed: &[FedInput], base: DevicePointer) -> Result<Vec<PreparedLaunch>, CudaError> {
        const BLOCK: u32 = 256;
        let launch = |input: &FedInput| {
            let blocks = u32::try_from(input.counted.div_ceil(BLOCK as usize))
                .map_err(|_| CudaError::Internal("a counter has too many numbers".into()))?;
            let arguments = vec![
                Argument::Pointer(base + input.offset as u64),
                Argument::I64(i64::try_from(input.counted).unwrap_or(i64::MAX)),
            ];
            self.kernels.prepare(&Launch::new(count_up_kernel(), blocks, BLOCK, arguments))
        };
        fed.iter().filter(|input| input.counted > 0).map(launch).collect()
    }

    /// Fills the copies with what the first step reads, which has been staged, and the fresh ones with what all steps read.
    fn upload_feed(
        &mut self,
        steps: &StepLoop<'_>,
        fed: &[FedInput],
        base: DevicePointer,
    ) -> Result<(), CudaError> {
        for (slot, input) in self.inputs.slots(Phase::Step).zip(fed) {
            let at = base + input.offset as u64;
            let Some((_, tensors)) = steps.fresh.iter().find(|(name, _)| *name == slot.name) else {
                // SAFETY: the feed has room for the copy, and what is staged stays until the loop is waited for.
                unsafe { self.stream.upload(at, self.inputs.staged(slot))? };
                continue;
            };
            for (step, tensor) in tensors.iter().enumerate() {
                let to = at + (step * input.stride) as u64;
                // SAFETY: the feed has room for every copy, and the tensors outlive the loop, which is waited for.
                unsafe { self.stream.upload(to, tensor.bytes())? };
            }
        }
        Ok(())
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
            let from = base + (input.offset + step * input.stride) as u64;
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
                unsafe { self.stream.copy(base + input.offset as u64, result, input.bytes)? };
            }
        }
        for counter in counters {
            // SAFETY: the argument is an input's copy, of so many numbers, and is there until the loop is waited for.
            unsafe { counter.enqueue(&self.stream)? };
        }
        Ok(())
    }
}
