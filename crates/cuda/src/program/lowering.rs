//! From a plan to launches: every node's kernels, with the address of every tensor. Needs no device.

use std::collections::HashMap;

use kinora_graph::{
    Graph, NodeId, Phase, ValueId,
    plan::{Place, Plan, Step},
};

use super::step_loop;
use crate::{
    CudaError,
    kernels::{Call, Choose, DevicePointer, Kernel, Places, Work},
    target::weight_bytes,
    work::kernels,
};

/// Where the weights lie that a program allocates: those that no other program holds already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WeightLayout {
    /// The first byte of each, counted from the allocation's.
    pub offsets: HashMap<ValueId, usize>,
    /// How large the allocation is.
    pub bytes: usize,
}

impl WeightLayout {
    pub fn new(graph: &Graph, weights: impl Iterator<Item = ValueId>) -> Result<WeightLayout, CudaError> {
        let too_large = || CudaError::Plan(kinora_graph::plan::PlanError::TooLarge);
        let mut offsets = HashMap::new();
        let mut end = 0usize;
        for value in weights {
            offsets.insert(value, end);
            let bytes = weight_bytes(graph.ty(value)).ok_or_else(too_large)?;
            end = end.checked_add(bytes).ok_or_else(too_large)?;
        }
        Ok(WeightLayout { offsets, bytes: end })
    }

    /// The addresses in an allocation.
    pub fn addresses(&self, base: DevicePointer) -> HashMap<ValueId, DevicePointer> {
        self.offsets.iter().map(|(&value, &offset)| (value, base.offset(offset))).collect()
    }
}

/// Where everything lies on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory<'a> {
    pub weights: &'a HashMap<ValueId, DevicePointer>,
    pub arena: DevicePointer,
    pub fault: DevicePointer,
}

impl Memory<'_> {
    /// The address of a value; 0 if it has no elements.
    pub fn address(&self, graph: &Graph, plan: &Plan, value: ValueId) -> Result<DevicePointer, CudaError> {
        if graph.ty(value).elements() == 0 {
            return Ok(DevicePointer::NULL);
        }
        let missing = || CudaError::Internal(format!("no place for {}", graph.value(value).name));
        match plan.place(value) {
            Place::Arena(buffer) => Ok(self.arena.offset(buffer.offset)),
            Place::Resident => self.weights.get(&value).copied().ok_or_else(missing),
            Place::Unplaced => Err(missing()),
        }
    }
}

/// A node as launches and library calls.
#[derive(Debug)]
pub(super) struct LoweredNode {
    pub node: NodeId,
    /// The implementation's name; empty if nothing runs.
    pub kernel: String,
    pub work: Vec<Work>,
}

/// The nodes of both phases as launches and library calls.
#[derive(Debug)]
pub(super) struct Lowered {
    pub clip: Vec<LoweredNode>,
    pub step: Vec<LoweredNode>,
}

impl Lowered {
    /// The kernels that are launched, each once, and the one that counts the steps of a loop.
    pub fn kernels(&self, graph: &Graph) -> Vec<Kernel> {
        let mut kernels = kernels(self.clip.iter().chain(&self.step).flat_map(|node| &node.work));
        kernels.extend(step_loop::can_count(graph).then(step_loop::count_up_kernel));
        kernels
    }

    /// The node that a number in the fault word refers to, and its phase.
    pub fn numbered(plan: &Plan, number: i32) -> Option<(Phase, NodeId)> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let clip = plan.steps(Phase::Clip);
        match clip.get(index) {
            Some(step) => Some((Phase::Clip, step.node)),
            None => plan.steps(Phase::Step).get(index - clip.len()).map(|step| (Phase::Step, step.node)),
        }
    }
}

/// Asks every node for its launches.
pub(super) fn lower(
    graph: &Graph,
    plan: &Plan,
    choice: &dyn Choose,
    memory: &Memory<'_>,
) -> Result<Lowered, CudaError> {
    let lower_phase = |phase: Phase, before: usize| {
        let numbered = plan.steps(phase).iter().zip(before + 1..);
        numbered
            .map(|(step, number)| lower_node(graph, plan, choice, memory, step, number))
            .collect::<Result<Vec<_>, CudaError>>()
    };
    let clip = lower_phase(Phase::Clip, 0)?;
    let step = lower_phase(Phase::Step, clip.len())?;
    Ok(Lowered { clip, step })
}

fn lower_node(
    graph: &Graph,
    plan: &Plan,
    choice: &dyn Choose,
    memory: &Memory<'_>,
    step: &Step,
    number: usize,
) -> Result<LoweredNode, CudaError> {
    let node = graph.node(step.node);
    let (inputs, outputs) = (graph.input_types(node), graph.output_types(node));
    let call = Call { layer: &node.name, op: &node.op, inputs: &inputs, outputs: &outputs };
    if !call.runs() {
        return Ok(LoweredNode { node: step.node, kernel: String::new(), work: Vec::new() });
    }
    let implementation = choice.choose(&call)?;
    let needed = implementation.workspace();
    let workspace = step.workspace.filter(|buffer| buffer.bytes > 0);
    if workspace.map_or(0, |buffer| buffer.bytes) < needed {
        return Err(CudaError::Internal(format!(
            "{}: {} needs {needed} bytes of scratch memory, which the plan does not provide",
            node.name,
            implementation.name()
        )));
    }
    let address = |&value: &ValueId| memory.address(graph, plan, value);
    let places = Places {
        inputs: node.inputs.iter().map(address).collect::<Result<_, CudaError>>()?,
        outputs: node.outputs.iter().map(address).collect::<Result<_, CudaError>>()?,
        workspace: workspace.map_or(DevicePointer::NULL, |buffer| memory.arena.offset(buffer.offset)),
        fault: memory.fault,
        number: i32::try_from(number)
            .map_err(|_| CudaError::Internal("the plan has too many nodes to number".into()))?,
    };
    let work = implementation.work(&places).map_err(|error| call.blame(error))?;
    Ok(LoweredNode { node: step.node, kernel: implementation.name(), work })
}
