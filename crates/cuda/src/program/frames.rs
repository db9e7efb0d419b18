//! Frames in a row. What they hand on stays on the device, and a frame is one launch: its inputs' copies, its kernels and its
//! results' copies are recorded as one CUDA graph.

use kinora_graph::Phase;
use kinora_profile::Direction;
use kinora_runtime::{Carried, RunError, Tensors, tensors};

use super::{
    Program,
    staging::{Half, Inputs, Outputs, next_offset},
    timing::Copying,
};
use crate::{
    CudaError,
    driver::{DeviceBuffer, ExecutableGraph, Stream},
    launch::DevicePointer,
};

/// The state of a row of frames, and the frame as one launch.
#[derive(Debug)]
pub(super) struct Frames {
    /// Outside the arena: a step may overwrite its inputs, and a result may lie where an input is to be written.
    _memory: DeviceBuffer,
    /// Pairs of a result and an input.
    names: Vec<(String, String)>,
    /// Those inputs that something reads.
    carried: Vec<CarriedInput>,
    /// The results that are copied to the host.
    wanted: Vec<String>,
    /// `None` if launches are not to be recorded.
    recorded: Option<ExecutableGraph>,
}

/// An input that frames hand on.
#[derive(Clone, Debug)]
struct CarriedInput {
    name: String,
    bytes: usize,
    /// Where the plan wants it.
    to: DevicePointer,
    /// Where it waits between two frames.
    kept: DevicePointer,
    /// Where the frame before leaves it.
    result: DevicePointer,
}

impl Program {
    /// Begins a row of frames, whose state stays on the device. What was recorded for an earlier row is kept if it had the same
    /// state.
    ///
    /// # Errors
    /// As [`Carried::check`]; if memory runs out or the driver fails.
    pub fn begin_frames(&mut self, carried: Carried<'_>, first: &Tensors) -> Result<(), CudaError> {
        carried.check(&self.graph, first)?;
        let names: Vec<(String, String)> =
            carried.0.iter().map(|&(output, input)| (output.to_owned(), input.to_owned())).collect();
        // The same state as before: only its first values are new.
        if let Some(frames) = self.frames.take_if(|frames| frames.names == names) {
            frames.upload(&self.stream, first)?;
            self.stream.synchronise()?;
            self.frames = Some(frames);
            return Ok(());
        }
        self.frames = None;
        let carried_names = carried.0;
        let (carried, bytes) = self.carried_inputs(carried)?;
        let memory = DeviceBuffer::new(self.stream.context(), bytes)?;
        let base = memory.address();
        let carried: Vec<CarriedInput> = carried
            .into_iter()
            .map(|(offset, input)| CarriedInput { kept: base.offset(offset), ..input })
            .collect();
        let handed_on = |name: &str| carried_names.iter().any(|(output, _)| *output == name);
        let wanted = self.outputs.names().filter(|name| !handed_on(name)).map(str::to_owned);
        let mut frames = Frames { names, wanted: wanted.collect(), _memory: memory, carried, recorded: None };
        frames.upload(&self.stream, first)?;
        self.stream.synchronise()?;
        if self.executor.is_recorded() && self.inputs.is_pinned() && self.outputs.is_pinned() {
            let stream = Stream::new(self.stream.context())?;
            let mut graph = stream.capture(|| {
                frames.enqueue_inputs(&self.inputs, &stream)?;
                self.executor.enqueue_launches(&stream, Phase::Step)?;
                frames.enqueue_results(&mut self.outputs, &stream)
            })?;
            graph.upload(&stream)?;
            stream.synchronise()?;
            frames.recorded = Some(graph);
        }
        self.frames = Some(frames);
        Ok(())
    }

    /// Runs a frame on its inputs and what the frame before handed on. The results that it does not hand on are written to
    /// `results`, into the tensors that are there if they have the right type.
    ///
    /// # Errors
    /// As [`Program::run_step`]; if no row of frames has begun.
    pub fn run_frame(&mut self, inputs: &Tensors, results: &mut Tensors) -> Result<(), CudaError> {
        self.refuse_without_clip()?;
        tensors::refuse_unknown(&self.graph, &[Phase::Step], inputs)?;
        let mut frames = self.frames.take().ok_or(RunError::FramesNotBegun)?;
        let done = self.run_frame_of(&mut frames, inputs);
        let read = done.and_then(|()| self.outputs.read_into(&self.graph, &frames.wanted, results));
        self.frames = Some(frames);
        read
    }

    /// What the last frame handed on, by input.
    ///
    /// # Errors
    /// If no row of frames has begun, memory runs out or the driver fails.
    pub fn handed_on(&mut self) -> Result<Tensors, CudaError> {
        let frames = self.frames.as_ref().ok_or(RunError::FramesNotBegun)?;
        let mut state = Vec::with_capacity(frames.carried.len());
        for input in &frames.carried {
            let value = self.graph.inputs().iter().map(|&id| self.graph.value(id));
            let value = value.into_iter().find(|value| value.name == input.name);
            let value = value.ok_or_else(|| RunError::UnknownInput(input.name.clone()))?;
            state.push((input, tensors::zeros(value.ty.clone())?));
        }
        let copied = state.iter_mut().try_for_each(|(input, tensor)| {
            // SAFETY: the state has the input's bytes, and the tensor lives until the copy is waited for, below.
            unsafe { self.stream.download(tensor.bytes_mut(), input.kept) }
        });
        self.stream.synchronise()?;
        copied?;
        Ok(state.into_iter().map(|(input, tensor)| (input.name.clone(), tensor)).collect())
    }

    fn run_frame_of(&mut self, frames: &mut Frames, inputs: &Tensors) -> Result<(), CudaError> {
        if let Some(name) = inputs.keys().filter(|name| frames.carries(name)).min() {
            return Err(RunError::UnknownInput(name.clone()).into());
        }
        self.inputs.stage_if(&self.graph, &[Phase::Step], inputs, |name| !frames.carries(name))?;
        self.settled(|program| program.enqueue_frame(frames))
    }

    fn enqueue_frame(&mut self, frames: &mut Frames) -> Result<(), CudaError> {
        let stream = self.stream.clone();
        match &mut frames.recorded {
            Some(graph) if !self.executor.is_timed() => {
                return self.executor.enqueue_recorded(&stream, graph);
            }
            _ => {}
        }
        let slots = self.inputs.slots(Phase::Step).filter(|slot| !frames.carries(&slot.name));
        let bytes = slots.map(|slot| slot.bytes).sum();
        let copying = Copying { name: "inputs", direction: Direction::ToDevice, bytes };
        self.executor.enqueue_copy(&stream, copying, || frames.enqueue_inputs(&self.inputs, &stream))?;
        self.executor.enqueue(&stream, Phase::Step)?;
        let bytes =
            frames.wanted.iter().filter_map(|name| self.outputs.slot(name)).map(|slot| slot.bytes).sum();
        let copying = Copying { name: "results", direction: Direction::FromDevice, bytes };
        self.executor.enqueue_copy(&stream, copying, || frames.enqueue_results(&mut self.outputs, &stream))
    }

    /// The inputs that are carried, each with its offset from the state's first byte, and the state's bytes.
    fn carried_inputs(&self, carried: Carried<'_>) -> Result<(Vec<(usize, CarriedInput)>, usize), CudaError> {
        let (mut inputs, mut end) = (Vec::new(), 0usize);
        for &(output, input) in carried.0 {
            // An input that nothing reads has no place, and need not be handed on.
            let Some(slot) = self.inputs.slots(Phase::Step).find(|slot| slot.name == input) else { continue };
            // A result that is known after the load phase is not on the device.
            let result =
                self.outputs.slot(output).ok_or_else(|| RunError::UnknownOutput(output.to_owned()))?;
            inputs.push((
                end,
                CarriedInput {
                    name: input.to_owned(),
                    bytes: slot.bytes,
                    to: slot.address,
                    kept: DevicePointer::NULL,
                    result: result.address,
                },
            ));
            end = next_offset(end, slot.bytes)?;
        }
        Ok((inputs, end))
    }
}

impl Frames {
    fn carries(&self, input: &str) -> bool {
        self.names.iter().any(|(_, carried)| carried == input)
    }

    /// Copies the first values of the state to the device. They must live until the copies are waited for.
    fn upload(&self, stream: &Stream, first: &Tensors) -> Result<(), CudaError> {
        for input in &self.carried {
            let tensor = first.get(&input.name).ok_or_else(|| RunError::UnknownInput(input.name.clone()))?;
            // SAFETY: the state has room for the tensor, which lives until the caller has waited for the copy.
            unsafe { stream.upload(input.kept, tensor.bytes())? };
        }
        Ok(())
    }

    /// Enqueues the copies of everything that a frame reads.
    fn enqueue_inputs(&self, inputs: &Inputs, stream: &Stream) -> Result<(), CudaError> {
        for slot in inputs.slots(Phase::Step).filter(|slot| !self.carries(&slot.name)) {
            // SAFETY: the buffer belongs to the input, and the staged bytes stay until the frame is waited for.
            unsafe { stream.upload(slot.address, inputs.staged(slot))? };
        }
        for input in &self.carried {
            // SAFETY: both are the input's, in the arena and outside it.
            unsafe { stream.copy(input.to, input.kept, input.bytes)? };
        }
        Ok(())
    }

    /// Enqueues the copies of everything that a frame leaves.
    fn enqueue_results(&self, outputs: &mut Outputs, stream: &Stream) -> Result<(), CudaError> {
        for input in &self.carried {
            // SAFETY: the result is in the arena, of the input's type, and the state outside it.
            unsafe { stream.copy(input.kept, input.result, input.bytes)? };
        }
        outputs.enqueue_if(stream, Half::First, |name| self.wanted.iter().any(|wanted| wanted == name))
    }
}
