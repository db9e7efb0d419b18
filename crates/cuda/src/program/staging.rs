//! Inputs on their way to the GPU and results on their way back, through pinned memory.

use std::collections::HashMap;

use kinora_graph::{
    Graph, Phase, Source, Tensor, ValueId,
    plan::{Place, Plan},
};
use kinora_runtime::{RunError, Tensors, tensors};

use super::lowering::Memory;
use crate::{
    CudaError,
    driver::{Context, PinnedBuffer, Stream},
    kernels::DevicePointer,
    target::ALIGNMENT,
};

/// A tensor's place in pinned memory and on the device.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub value: ValueId,
    /// The input's or the result's name.
    pub name: String,
    pub phase: Phase,
    pub offset: usize,
    pub bytes: usize,
    pub address: DevicePointer,
}

/// The inputs of both phases.
#[derive(Debug)]
pub(super) struct Inputs {
    slots: Vec<Slot>,
    /// Those that never come from the host.
    kept: Vec<Slot>,
    staging: PinnedBuffer,
}

impl Inputs {
    pub fn new(
        context: &Context,
        graph: &Graph,
        plan: &Plan,
        memory: &Memory<'_>,
        kept_names: &[&str],
    ) -> Result<Inputs, CudaError> {
        let (mut slots, mut kept) = (Vec::new(), Vec::new());
        let mut end = 0;
        for &id in graph.inputs() {
            let value = graph.value(id);
            // An input that nothing reads has no place in the plan.
            if let (Source::Input(phase), Place::Arena(buffer)) = (&value.source, plan.place(id)) {
                let address = memory.address(graph, plan, id)?;
                let (name, bytes) = (value.name.clone(), buffer.bytes);
                let is_kept = kept_names.contains(&name.as_str());
                let slot = Slot { value: id, name, phase: *phase, offset: end, bytes, address };
                if is_kept {
                    kept.push(slot);
                } else {
                    slots.push(slot);
                    end = next_offset(end, bytes)?;
                }
            }
        }
        Ok(Inputs { slots, kept, staging: PinnedBuffer::new(context, end)? })
    }

    /// Those that never come from the host and have a place.
    pub fn kept(&self) -> &[Slot] {
        &self.kept
    }

    /// Whether copies to the device can be recorded.
    pub fn is_pinned(&self) -> bool {
        self.staging.is_pinned()
    }

    /// Those of a phase that have a place.
    pub fn slots(&self, phase: Phase) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.phase == phase)
    }

    /// Checks the inputs of some phases and stages them. No copy of an earlier run is in progress.
    pub fn stage(&mut self, graph: &Graph, phases: &[Phase], inputs: &Tensors) -> Result<(), CudaError> {
        self.stage_if(graph, phases, inputs, |_| true)
    }

    /// The same for those inputs that `chosen` chooses by name.
    pub fn stage_if(
        &mut self,
        graph: &Graph,
        phases: &[Phase],
        inputs: &Tensors,
        chosen: impl Fn(&str) -> bool,
    ) -> Result<(), CudaError> {
        for &id in graph.inputs() {
            let value = graph.value(id);
            let of_phases = matches!(value.source, Source::Input(phase) if phases.contains(&phase));
            let is_kept = self.kept.iter().any(|slot| slot.value == id);
            if of_phases && !is_kept && chosen(&value.name) {
                tensors::input(value, inputs)?;
            }
        }
        for slot in self.slots.iter().filter(|slot| phases.contains(&slot.phase) && chosen(&slot.name)) {
            let tensor = tensors::input(graph.value(slot.value), inputs)?;
            self.staging[slot.offset..slot.offset + slot.bytes].copy_from_slice(tensor.bytes());
        }
        Ok(())
    }

    /// What was staged for an input.
    pub fn staged(&self, slot: &Slot) -> &[u8] {
        &self.staging[slot.offset..slot.offset + slot.bytes]
    }

    /// The bytes in the inputs of some phases.
    pub fn bytes(&self, phases: &[Phase]) -> usize {
        self.slots.iter().filter(|slot| phases.contains(&slot.phase)).map(|slot| slot.bytes).sum()
    }

    /// Copies what was staged to where the plan wants it.
    pub fn upload(&self, stream: &Stream, phases: &[Phase]) -> Result<(), CudaError> {
        for slot in self.slots.iter().filter(|slot| phases.contains(&slot.phase)) {
            // SAFETY: the buffer belongs to the input, and the staged bytes stay until the run is waited for.
            unsafe { stream.upload(slot.address, self.staged(slot))? };
        }
        Ok(())
    }
}

/// Where results are copied to: a loop of steps reads one half while the next step's results go to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    First,
    Second,
}

impl Half {
    /// The half of a step in a loop.
    pub fn of(step: usize) -> Half {
        if step.is_multiple_of(2) { Half::First } else { Half::Second }
    }
}

/// The results.
#[derive(Debug)]
pub(super) struct Outputs {
    slots: Vec<Slot>,
    /// Those that never go to the host.
    kept: Vec<Slot>,
    /// Results that are known after the load phase, by name.
    known: HashMap<String, Tensor>,
    first: PinnedBuffer,
    /// Allocated for the first loop that has an observer; until then, everything goes to the first.
    second: Option<PinnedBuffer>,
}

impl Outputs {
    /// Whether copies from the device can be recorded.
    pub fn is_pinned(&self) -> bool {
        self.first.is_pinned()
    }

    /// `known` has the results that are known after the load phase, by value.
    pub fn new(
        context: &Context,
        graph: &Graph,
        plan: &Plan,
        memory: &Memory<'_>,
        known: &HashMap<ValueId, Tensor>,
        kept_names: &[&str],
    ) -> Result<Outputs, CudaError> {
        let (mut outputs, mut kept) = (Vec::new(), Vec::new());
        let mut tensors = HashMap::new();
        let mut end = 0;
        for output in graph.outputs() {
            if let Some(tensor) = known.get(&output.value) {
                tensors.insert(output.name.clone(), tensor.clone());
                continue;
            }
            let bytes = graph.ty(output.value).bytes();
            let slot = Slot {
                value: output.value,
                name: output.name.clone(),
                phase: Phase::Step,
                offset: end,
                bytes,
                address: memory.address(graph, plan, output.value)?,
            };
            if kept_names.contains(&output.name.as_str()) {
                kept.push(slot);
            } else {
                outputs.push(slot);
                end = next_offset(end, bytes)?;
            }
        }
        let first = PinnedBuffer::new(context, end)?;
        Ok(Outputs { slots: outputs, kept, known: tensors, first, second: None })
    }

    /// The place of a result that a run makes and the host gets.
    pub fn slot(&self, name: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.name == name)
    }

    /// The place of a result that a run makes and leaves on the device.
    pub fn kept_slot(&self, name: &str) -> Option<&Slot> {
        self.kept.iter().find(|slot| slot.name == name)
    }

    /// The bytes in the results.
    pub fn bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.bytes).sum()
    }

    /// Gives the second half memory of its own.
    pub fn make_second_half(&mut self, context: &Context) -> Result<(), CudaError> {
        if self.second.is_none() {
            self.second = Some(PinnedBuffer::new(context, self.first.len())?);
        }
        Ok(())
    }

    fn staging(&self, half: Half) -> &PinnedBuffer {
        match (half, &self.second) {
            (Half::Second, Some(second)) => second,
            _ => &self.first,
        }
    }

    /// The names of the results that a run makes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// Enqueues the copies of the results.
    pub fn enqueue(&mut self, stream: &Stream, half: Half) -> Result<(), CudaError> {
        self.enqueue_if(stream, half, |_| true)
    }

    /// The same for those results that `chosen` chooses by name.
    pub fn enqueue_if(
        &mut self,
        stream: &Stream,
        half: Half,
        chosen: impl Fn(&str) -> bool,
    ) -> Result<(), CudaError> {
        let staging = match (half, &mut self.second) {
            (Half::Second, Some(second)) => second,
            _ => &mut self.first,
        };
        for slot in self.slots.iter().filter(|slot| chosen(&slot.name)) {
            let to = &mut staging[slot.offset..slot.offset + slot.bytes];
            // SAFETY: the copy is waited for before the bytes are read; the buffer waits for it when it is dropped.
            unsafe { stream.download(to, slot.address)? };
        }
        Ok(())
    }

    /// The results, after the copies have been waited for.
    pub fn read(&self, graph: &Graph, half: Half) -> Result<Tensors, CudaError> {
        let mut results: Tensors = self.known.clone();
        for slot in &self.slots {
            let tensor = self.copied(graph, slot, half).ok_or(RunError::OutOfMemory { bytes: slot.bytes })?;
            results.insert(slot.name.clone(), tensor);
        }
        Ok(results)
    }

    /// Sets `results` to some of the results and to those that are known after the load phase, after the copies have been
    /// waited for. Tensors of the right type that are there are written in place.
    pub fn read_into(&self, graph: &Graph, names: &[String], results: &mut Tensors) -> Result<(), CudaError> {
        results.retain(|name, _| names.contains(name));
        for (name, tensor) in &self.known {
            results.insert(name.clone(), tensor.clone());
        }
        for slot in self.slots.iter().filter(|slot| names.contains(&slot.name)) {
            match results.get_mut(&slot.name) {
                Some(there) if there.ty() == graph.ty(slot.value) => {
                    there.bytes_mut().copy_from_slice(&self.first[slot.offset..slot.offset + slot.bytes]);
                }
                _ => {
                    let made = self.copied(graph, slot, Half::First);
                    let made = made.ok_or(RunError::OutOfMemory { bytes: slot.bytes })?;
                    results.insert(slot.name.clone(), made);
                }
            }
        }
        Ok(())
    }

    /// One of the results, after the copies have been waited for.
    pub fn read_one(&self, graph: &Graph, name: &str, half: Half) -> Option<Tensor> {
        match self.slot(name) {
            Some(slot) => self.copied(graph, slot, half),
            None => self.known.get(name).cloned(),
        }
    }

    fn copied(&self, graph: &Graph, slot: &Slot, half: Half) -> Option<Tensor> {
        let mut tensor = Tensor::try_zeros(graph.ty(slot.value).clone())?;
        tensor.bytes_mut().copy_from_slice(&self.staging(half)[slot.offset..slot.offset + slot.bytes]);
        Some(tensor)
    }
}

/// Where the next tensor may begin.
pub(super) fn next_offset(offset: usize, bytes: usize) -> Result<usize, CudaError> {
    offset
        .checked_add(bytes)
        .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
        .ok_or(CudaError::Run(RunError::OutOfMemory { bytes }))
}
