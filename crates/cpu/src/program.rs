//! A graph made ready to run on the CPU: fused, planned, its weights packed, its memory allocated.

use std::collections::HashMap;

use kinora_graph::{
    Graph, Node, NodeId, Op, Phase, Source, Tensor, TensorType, ValueId, passes,
    plan::{Buffer, Place, Plan, PlanOptions, Step},
    tensor::AlignedBytes,
};

use crate::{
    CpuError, Tensors,
    fast::{self, PackedWeight},
    reference::ReferenceEvaluator,
    simd::Isa,
    target::CpuTarget,
    tensors,
    view::{View, ViewMut},
};

/// How a [`Program`] is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The instruction set; the best one found, unless said otherwise.
    pub isa: Isa,
    /// Whether the passes run. Without them the graph runs as it was built: the baseline of comparisons.
    pub optimise: bool,
    /// The memory that weights and activations may take together, in bytes.
    pub budget: Option<usize>,
    /// Fills the arena with this byte before each phase, so that a read of something never written shows.
    pub poison: Option<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Options { isa: Isa::detect(), optimise: true, budget: None, poison: None }
    }
}

/// A graph made ready to run.
///
/// All memory is allocated when the program is made; running it allocates nothing but the tensors it returns and the
/// kernels' per-thread scratch, which is bounded by the cache it is meant for.
#[derive(Debug)]
pub struct Program {
    graph: Graph,
    plan: Plan,
    options: Options,
    arena: AlignedBytes,
    /// Weights that are read as they are, by value.
    resident: HashMap<ValueId, Tensor>,
    /// Weights of matrix products, in the kernels' own order, by node.
    packed: HashMap<NodeId, PackedWeight>,
    clip_has_run: bool,
}

impl Program {
    /// Optimises, plans, checks the budget, then loads the weights and allocates the arena.
    ///
    /// # Errors
    /// Where the graph does not fit the budget or the memory, or a weight is missing, of another type, or not finite.
    pub fn new(graph: &Graph, parameters: &Tensors, options: Options) -> Result<Program, CpuError> {
        let target = CpuTarget;
        let graph = if options.optimise {
            passes::optimise_traced(graph, &target, Some(&ReferenceEvaluator))?.0
        } else {
            graph.clone()
        };
        let plan =
            Plan::new(&graph, &target, &PlanOptions { budget: options.budget, ..PlanOptions::default() })?;
        plan.verify(&graph)?;
        for (_, value) in graph.parameters() {
            tensors::parameter(value, parameters)?;
        }
        let bytes = plan.arena_bytes();
        let arena = AlignedBytes::try_zeroed(bytes).ok_or(CpuError::OutOfMemory { bytes })?;
        let mut program = Program {
            graph,
            plan,
            options,
            arena,
            resident: HashMap::new(),
            packed: HashMap::new(),
            clip_has_run: false,
        };
        program.load(parameters)?;
        Ok(program)
    }

    /// The graph as it runs, after the passes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The arena as the last run left it: for tests and debuggers.
    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// Runs the clip phase and one step with all inputs given, and returns all results.
    ///
    /// # Errors
    /// As [`Program::run_clip`] and [`Program::run_step`].
    pub fn run(&mut self, inputs: &Tensors) -> Result<Tensors, CpuError> {
        tensors::refuse_unknown(&self.graph, inputs)?;
        self.poison();
        self.write_inputs(Phase::Clip, inputs)?;
        self.write_inputs(Phase::Step, inputs)?;
        self.run_phase(Phase::Clip)?;
        self.clip_has_run = true;
        self.run_phase(Phase::Step)?;
        self.read_outputs()
    }

    /// Gives the clip's inputs and runs what depends on them alone.
    ///
    /// # Errors
    /// Where an input of the clip phase is missing or of another type, or an op finds a bad index in its data.
    pub fn run_clip(&mut self, inputs: &Tensors) -> Result<(), CpuError> {
        tensors::refuse_unknown(&self.graph, inputs)?;
        self.poison();
        self.write_inputs(Phase::Clip, inputs)?;
        self.run_phase(Phase::Clip)?;
        self.clip_has_run = true;
        Ok(())
    }

    /// Gives a step's inputs, replays the step, and returns the results.
    ///
    /// # Errors
    /// Where the graph has a clip phase that has not run, an input of the step phase is missing or of another type, or an
    /// op finds a bad index in its data.
    pub fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, CpuError> {
        let has_clip_inputs =
            self.graph.inputs().iter().any(|&v| self.graph.value(v).source == Source::Input(Phase::Clip));
        if has_clip_inputs && !self.clip_has_run {
            return Err(CpuError::ClipNotRun);
        }
        tensors::refuse_unknown(&self.graph, inputs)?;
        self.write_inputs(Phase::Step, inputs)?;
        self.run_phase(Phase::Step)?;
        self.read_outputs()
    }

    /// Runs the step phase again on whatever the arena holds: for timing, since step inputs may have been overwritten.
    ///
    /// # Errors
    /// Where an op finds a bad index in its data.
    pub fn replay(&mut self) -> Result<(), CpuError> {
        self.run_phase(Phase::Step)
    }

    /// Runs the load phase and keeps what the later phases read: packed where the reader is a matrix product.
    fn load(&mut self, parameters: &Tensors) -> Result<(), CpuError> {
        let mut values: HashMap<ValueId, Tensor> = HashMap::new();
        for (id, value) in self.graph.value_ids() {
            match &value.source {
                Source::Parameter => {
                    if let Some(tensor) = parameters.get(&value.name) {
                        values.insert(id, tensor.clone());
                    }
                }
                Source::Constant(tensor) => {
                    values.insert(id, tensor.clone());
                }
                Source::Input(_) | Source::Node { .. } => {}
            }
        }
        for &id in self.plan.load_nodes() {
            let node = self.graph.node(id);
            let inputs: Vec<&Tensor> = node.inputs.iter().filter_map(|v| values.get(v)).collect();
            let outputs = fast::run_on_tensors(self.options.isa, &node.name, &node.op, &inputs)?;
            for (&value, tensor) in node.outputs.iter().zip(outputs) {
                values.insert(value, tensor);
            }
        }

        // Weights that nothing but packing kernels read are not kept a second time.
        let mut read_raw: Vec<ValueId> = self.graph.outputs().iter().map(|o| o.value).collect();
        for step in [Phase::Clip, Phase::Step].into_iter().flat_map(|phase| self.plan.steps(phase)) {
            let node = self.graph.node(step.node);
            let weight = packable_weight(node).and_then(|operand| values.get(&node.inputs[operand]));
            if let Some(weight) = weight {
                let packed = PackedWeight::new(self.options.isa, &node.op, View::of(weight));
                self.packed.insert(step.node, packed);
            }
            let skipped = if weight.is_some() { packable_weight(node) } else { None };
            read_raw.extend(
                node.inputs.iter().enumerate().filter(|(i, _)| Some(*i) != skipped).map(|(_, &value)| value),
            );
        }
        self.resident = read_raw.into_iter().filter_map(|id| Some((id, values.get(&id)?.clone()))).collect();
        Ok(())
    }

    fn poison(&mut self) {
        if let Some(byte) = self.options.poison {
            self.arena.fill(byte);
        }
    }

    fn write_inputs(&mut self, phase: Phase, inputs: &Tensors) -> Result<(), CpuError> {
        for &id in self.graph.inputs() {
            let value = self.graph.value(id);
            if value.source != Source::Input(phase) {
                continue;
            }
            let tensor = tensors::input(value, inputs)?;
            if let Place::Arena(Buffer { offset, bytes }) = self.plan.place(id) {
                self.arena[offset..offset + bytes].copy_from_slice(tensor.bytes());
            }
        }
        Ok(())
    }

    fn run_phase(&mut self, phase: Phase) -> Result<(), CpuError> {
        let base = self.arena.as_mut_ptr();
        for step in self.plan.steps(phase) {
            self.run_node(step, base)?;
        }
        Ok(())
    }

    fn run_node(&self, step: &Step, base: *mut u8) -> Result<(), CpuError> {
        let node = self.graph.node(step.node);
        if matches!(node.op, Op::Reshape(_)) {
            return Ok(());
        }
        let inputs: Vec<View<'_>> = node.inputs.iter().map(|&value| self.view(value, base)).collect();
        let outputs: Vec<ViewMut<'_>> = node
            .outputs
            .iter()
            .map(|&value| {
                // SAFETY: the plan gave a node's result a place in the arena, and `Program::new` verified that nothing
                // live overlaps it but an operand that the kernel may overwrite.
                unsafe { ViewMut::new(self.graph.ty(value), base.add(self.offset(value))) }
            })
            .collect();
        fast::run(self.options.isa, &node.name, &node.op, &inputs, self.packed.get(&step.node), outputs)
    }

    /// An operand: in the arena, or a weight. A weight that exists in packed form alone is never looked at.
    fn view(&self, value: ValueId, base: *mut u8) -> View<'_> {
        let ty: &TensorType = self.graph.ty(value);
        match self.resident.get(&value) {
            Some(tensor) => View::of(tensor),
            // SAFETY: the plan's places lie within the arena, which `base` is the start of.
            None => unsafe { View::new(ty, base.add(self.offset(value))) },
        }
    }

    fn offset(&self, value: ValueId) -> usize {
        match self.plan.place(value) {
            Place::Arena(buffer) => buffer.offset,
            Place::Resident | Place::Unplaced => 0,
        }
    }

    fn read_outputs(&self) -> Result<Tensors, CpuError> {
        let mut outputs = Tensors::new();
        for output in self.graph.outputs() {
            let ty = self.graph.ty(output.value);
            let tensor = match (self.plan.place(output.value), self.resident.get(&output.value)) {
                (Place::Arena(Buffer { offset, bytes }), _) => {
                    Tensor::from_bytes(ty.clone(), &self.arena[offset..offset + bytes])
                }
                (_, Some(tensor)) => Ok(tensor.clone()),
                (_, None) => Ok(Tensor::zeros(ty.clone())),
            };
            let tensor = tensor.map_err(|_| CpuError::OutOfMemory { bytes: ty.bytes() })?;
            outputs.insert(output.name.clone(), tensor);
        }
        Ok(outputs)
    }
}

/// The operand that a kernel wants in packed form.
fn packable_weight(node: &Node) -> Option<usize> {
    matches!(node.op, Op::Conv(_) | Op::Linear(_)).then_some(1)
}
