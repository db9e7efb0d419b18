//! A graph that is ready to run on the CPU: fused, planned, its weights packed, its memory allocated.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kinora_graph::{
    DType, Graph, NodeId, Op, Parameters, Phase, Source, Tensor, TensorType, ValueId, passes,
    plan::{Buffer, Place, Plan, PlanOptions, Step},
    tensor::AlignedBytes,
};

use kinora_profile::Profiler;
use kinora_runtime::{
    HostFrames, Loader, RunError, SharedWeights, StepLoop, StepObserver, Stop, Tensors, WeightSlot, tensors,
};

use crate::{
    CpuOps, CpuTarget,
    fast::{self, PackedWeight},
    profile::Profiled,
    reference::ReferenceEvaluator,
    simd::Isa,
    tasks,
    view::{View, ViewMut},
};

/// The options of a [`Program`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The instruction set; the best one by default.
    pub isa: Isa,
    /// Whether the passes run. Without them the graph runs as it was built: the baseline of comparisons.
    pub optimise: bool,
    /// The memory that weights and activations may take together, in bytes.
    pub budget: Option<usize>,
    /// Fills the arena with this byte before the clip phase, in [`Program::run`] and [`Program::run_clip`], so that
    /// reading something that was never written shows up. A step keeps what the clip phase left for it.
    pub poison: Option<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Options { isa: Isa::detect(), optimise: true, budget: None, poison: None }
    }
}

/// A graph optimised and planned for this CPU. It holds neither weights nor an arena: what a program would need is
/// known before anything is read or allocated, even on a machine that could not run it.
#[derive(Clone, Debug)]
pub struct Planned {
    graph: Graph,
    plan: Plan,
    options: Options,
}

impl Planned {
    /// Optimises, plans and checks the budget.
    ///
    /// # Errors
    /// If the graph is wrong, or its plan does not fit the budget.
    pub fn new(graph: &Graph, options: Options) -> Result<Planned, RunError> {
        let target = CpuTarget { isa: options.isa };
        let graph = if options.optimise {
            passes::optimise_traced(graph, &target, Some(&ReferenceEvaluator))?.0
        } else {
            graph.clone()
        };
        let plan =
            Plan::new(&graph, &target, &PlanOptions { budget: options.budget, ..PlanOptions::default() })?;
        Ok(Planned { graph, plan, options })
    }

    /// The graph as it will run, after the passes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Loads the weights and allocates the arena.
    ///
    /// # Errors
    /// If the memory cannot be allocated, or a weight that the graph uses is missing, unreadable, of another type, or
    /// not finite.
    pub fn load(self, parameters: &dyn Parameters) -> Result<Program, RunError> {
        self.load_sharing(parameters, None)
    }

    /// The same with weights that other programs may hold already.
    ///
    /// # Errors
    /// As [`Planned::load`].
    pub fn load_sharing(
        self,
        parameters: &dyn Parameters,
        shared: Option<&SharedWeights>,
    ) -> Result<Program, RunError> {
        let Planned { graph, plan, options } = self;
        plan.verify(&graph)?;
        let bytes = plan.arena_bytes();
        let arena = AlignedBytes::try_zeroed(bytes).ok_or(RunError::OutOfMemory { bytes })?;
        let mut program = Program {
            graph,
            plan,
            options,
            arena,
            resident: HashMap::new(),
            packed: HashMap::new(),
            clip_weights: Vec::new(),
            borrowed_bytes: 0,
            nothing: Tensor::zeros(TensorType::new(DType::F32, [0])),
            clip_has_run: false,
            profiled: Profiled::default(),
            frames: None,
            stop: Stop::new(),
        };
        program.load(parameters, shared)?;
        Ok(program)
    }
}

/// A graph that is ready to run.
///
/// The arena and the weights are allocated when the program is made: [`Plan::arena_bytes`] and [`Plan::weight_bytes`].
/// In addition to the tensors it returns, running it allocates:
/// - scratch memory per thread, kept from op to op: blocks of the operands and sums of products and attention, sized
///   for the caches (some 3 MiB per thread with heads of up to 160 channels, and proportionally more beyond), and one
///   packed right operand of a batched matrix product;
/// - while an op runs, a row in each thread for a norm or a softmax, f32 copies of biases and other vectors, and three
///   numbers per row if a norm is fused into a linear layer;
/// - with each clip phase, the packed form of the weights that it computes, which [`Plan::weight_bytes`] counts;
/// - while an op runs, the packed form of a weight, or of a right operand that serves a whole batch, which is known only
///   in the op's own phase: about as large as it is;
/// - while an op runs, f32 copies of the operands and the result of a product of e4m3, its packed weight, and an f32 copy of
///   what becomes e4m3;
/// - while an op runs, an f32 copy of the input of a convolution with a norm fused in, or of a linear layer with a group
///   norm. The passes never fuse these for the CPU; a graph may come with them.
#[derive(Debug)]
pub struct Program {
    graph: Graph,
    plan: Plan,
    options: Options,
    arena: AlignedBytes,
    /// Weights that are read unpacked, by value.
    resident: HashMap<ValueId, Arc<Tensor>>,
    /// Weights of matrix products, in the kernels' own order, by node.
    packed: HashMap<NodeId, Arc<PackedWeight>>,
    /// The weights of matrix products of the step phase that the clip phase computes, by node.
    clip_weights: Vec<(NodeId, ValueId)>,
    /// The size of those weights that other programs had loaded before.
    borrowed_bytes: usize,
    /// Placeholder for a weight that exists only in packed form: a tensor without elements.
    nothing: Tensor,
    clip_has_run: bool,
    profiled: Profiled,
    /// The row of frames that has begun.
    pub(crate) frames: Option<HostFrames>,
    stop: Stop,
}

/// The weight that another program holds, or else a new one, which others may share from now on; and whether it was held.
fn held_or<T: Send + Sync + 'static>(
    slot: Option<WeightSlot<'_>>,
    load: impl FnOnce() -> Result<T, RunError>,
) -> Result<(Arc<T>, bool), RunError> {
    if let Some(held) = slot.as_ref().and_then(WeightSlot::get) {
        return Ok((held, true));
    }
    let weight = Arc::new(load()?);
    if let Some(slot) = slot {
        slot.set(&weight);
    }
    Ok((weight, false))
}

impl Program {
    /// Optimises, plans, checks the budget, then loads the weights and allocates the arena.
    ///
    /// # Errors
    /// As [`Planned::new`] and [`Planned::load`].
    pub fn new(graph: &Graph, parameters: &dyn Parameters, options: Options) -> Result<Program, RunError> {
        Planned::new(graph, options)?.load(parameters)
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

    /// The memory that the weights take, in bytes: packed, and so padded to whole panels, for matrix products, and
    /// unpacked for everything else. [`Plan::weight_bytes`] predicts it. The weights that the clip phase computes count from the
    /// start, though they are packed when it has run.
    pub fn weight_bytes(&self) -> usize {
        let mut copies = HashSet::new();
        let of_clip: HashSet<NodeId> = self.clip_weights.iter().map(|&(node, _)| node).collect();
        let of_load = self.packed.iter().filter(|(node, _)| !of_clip.contains(node));
        let of_load = of_load.filter(|(_, weight)| copies.insert(Arc::as_ptr(weight)));
        let packed: usize = of_load.map(|(_, weight)| weight.bytes()).sum();
        let mut forms = HashSet::new();
        let of_clip = self.clip_weights.iter().map(|&(node, value)| (&self.graph.node(node).op, value));
        let of_clip = of_clip.filter(|&(op, value)| forms.insert((value, format!("{op:?}"))));
        let of_clip: usize = of_clip
            .map(|(op, value)| PackedWeight::bytes_of(self.options.isa, op, self.graph.ty(value)))
            .sum();
        packed + of_clip + self.resident.values().map(|tensor| tensor.bytes().len()).sum::<usize>()
    }

    /// The share of [`Program::weight_bytes`] that other programs had loaded before.
    pub fn borrowed_bytes(&self) -> usize {
        self.borrowed_bytes
    }

    /// Starts recording how long every layer takes, under this name for the program.
    pub fn profile(&mut self, profiler: &Profiler, name: &str) {
        self.profiled = Profiled::new(profiler, name, &self.graph, &self.plan);
    }

    /// Lets a request stop whatever runs: it then fails with [`RunError::Stopped`], also in the middle of a layer.
    pub fn stop_on(&mut self, stop: &Stop) {
        self.stop = stop.clone();
    }

    /// Runs the clip phase and one step with all inputs given, and returns all results.
    ///
    /// # Errors
    /// As [`Program::run_clip`] and [`Program::run_step`].
    pub fn run(&mut self, inputs: &Tensors) -> Result<Tensors, RunError> {
        tensors::refuse_unknown(&self.graph, &[Phase::Clip, Phase::Step], inputs)?;
        self.start_clip();
        self.write_inputs(Phase::Clip, inputs)?;
        self.write_inputs(Phase::Step, inputs)?;
        self.run_clip_phase()?;
        self.run_phase(Phase::Step)?;
        self.read_outputs()
    }

    /// Sets the clip's inputs and runs what depends on them alone.
    ///
    /// # Errors
    /// If an input of the clip phase is missing or of another type, an input is not one of the clip phase's, or an op
    /// finds a bad index in its data. The clip phase must then succeed before the next step.
    pub fn run_clip(&mut self, inputs: &Tensors) -> Result<(), RunError> {
        tensors::refuse_unknown(&self.graph, &[Phase::Clip], inputs)?;
        self.start_clip();
        self.write_inputs(Phase::Clip, inputs)?;
        self.run_clip_phase()
    }

    /// Sets a step's inputs, replays the step, and returns the results.
    ///
    /// # Errors
    /// If the graph has a clip phase that has not run, an input of the step phase is missing or of another type, an
    /// input is not one of the step phase's, or an op finds a bad index in its data.
    pub fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, RunError> {
        let has_clip_inputs =
            self.graph.inputs().iter().any(|&v| self.graph.value(v).source == Source::Input(Phase::Clip));
        if has_clip_inputs && !self.clip_has_run {
            return Err(RunError::ClipNotRun);
        }
        tensors::refuse_unknown(&self.graph, &[Phase::Step], inputs)?;
        self.write_inputs(Phase::Step, inputs)?;
        self.run_phase(Phase::Step)?;
        self.read_outputs()
    }

    /// Replays the step as often as the [`StepLoop`] says. Returns the results of the last step.
    ///
    /// `inputs` are those of the first step; [`StepLoop::fresh`] inputs may be left out.
    ///
    /// # Errors
    /// As [`Program::run_step`] and [`StepLoop::first_inputs`]; [`RunError::Stopped`] if the observer stopped it.
    pub fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError> {
        let first = steps.first_inputs(&self.graph, inputs)?;
        steps.run(first, observer, |inputs| self.run_step(inputs))
    }

    /// Runs the step phase again on whatever the arena holds: for timing, since step inputs may have been overwritten.
    ///
    /// # Errors
    /// If an op finds a bad index in its data.
    pub fn replay(&mut self) -> Result<(), RunError> {
        self.run_phase(Phase::Step)
    }

    /// Runs the load phase and keeps what the later phases read: packed if the reader is a matrix product.
    fn load(&mut self, parameters: &dyn Parameters, shared: Option<&SharedWeights>) -> Result<(), RunError> {
        let phases = self.graph.phases();
        let known = |value: ValueId| phases[value.index()] == Phase::Load;

        let mut resident: Vec<ValueId> =
            self.graph.outputs().iter().map(|o| o.value).filter(|&value| known(value)).collect();
        let mut packed: Vec<(NodeId, ValueId)> = Vec::new();
        for step in [Phase::Clip, Phase::Step].into_iter().flat_map(|phase| self.plan.steps(phase)) {
            let node = self.graph.node(step.node);
            let weight = PackedWeight::operand(&node.op).filter(|&operand| known(node.inputs[operand]));
            packed.extend(weight.map(|operand| (step.node, node.inputs[operand])));
            let raw = node.inputs.iter().enumerate().filter(|(i, _)| Some(*i) != weight);
            resident.extend(raw.map(|(_, &value)| value).filter(|&value| known(value)));
        }
        for step in self.plan.steps(Phase::Step) {
            let node = self.graph.node(step.node);
            let weight = PackedWeight::operand(&node.op).map(|operand| node.inputs[operand]);
            let of_clip = weight.filter(|value| phases[value.index()] == Phase::Clip);
            self.clip_weights.extend(of_clip.map(|value| (step.node, value)));
        }
        resident.sort_unstable();
        resident.dedup();

        let wanted = resident.iter().copied().chain(packed.iter().map(|&(_, value)| value));
        let isa = self.options.isa;
        let ops = CpuOps { isa };
        let mut loader = Loader::new(&self.graph, &ops, parameters, wanted);
        // Nodes that read a weight by the same op share a copy.
        let mut copies: HashMap<(ValueId, String), Arc<PackedWeight>> = HashMap::new();
        for (node, value) in packed {
            let op = &self.graph.node(node).op;
            let form = format!("packed for {} and {op:?}", isa.name());
            if let Some(copy) = copies.get(&(value, form.clone())) {
                self.packed.insert(node, copy.clone());
                continue;
            }
            let slot = shared.and_then(|shared| shared.slot(&self.graph, value, form.clone()));
            let (weight, borrowed) = held_or(slot, || {
                let weight = loader.take(value)?;
                tensors::reserve(PackedWeight::bytes_of(isa, op, weight.ty()))?;
                Ok(PackedWeight::new(isa, op, View::of(&weight)))
            })?;
            self.borrowed_bytes += if borrowed { weight.bytes() } else { 0 };
            copies.insert((value, form), weight.clone());
            self.packed.insert(node, weight);
        }
        for value in resident {
            let slot = shared.and_then(|shared| shared.slot(&self.graph, value, "plain".to_owned()));
            let (weight, borrowed) = held_or(slot, || loader.take(value))?;
            self.borrowed_bytes += if borrowed { weight.bytes().len() } else { 0 };
            self.resident.insert(value, weight);
        }
        Ok(())
    }

    /// Marks that the arena holds no clip that a step could read, until the clip phase has run.
    fn start_clip(&mut self) {
        self.clip_has_run = false;
        if let Some(byte) = self.options.poison {
            self.arena.fill(byte);
        }
    }

    fn write_inputs(&mut self, phase: Phase, inputs: &Tensors) -> Result<(), RunError> {
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

    /// Runs the clip phase, and packs the weights that it has computed for the steps.
    fn run_clip_phase(&mut self) -> Result<(), RunError> {
        self.run_phase(Phase::Clip)?;
        // The old ones' memory goes before the new ones' comes.
        for (node, _) in &self.clip_weights {
            self.packed.remove(node);
        }
        let mut copies: HashMap<(ValueId, String), Arc<PackedWeight>> = HashMap::new();
        for &(node, value) in &self.clip_weights {
            let (op, ty, isa) = (&self.graph.node(node).op, self.graph.ty(value), self.options.isa);
            let form = (value, format!("{op:?}"));
            if let Some(copy) = copies.get(&form) {
                self.packed.insert(node, copy.clone());
                continue;
            }
            tensors::reserve(PackedWeight::bytes_of(isa, op, ty))?;
            let Buffer { offset, .. } = self.buffer(value)?;
            // SAFETY: the plan's buffers lie within the arena and are as large as the value's type; no node runs meanwhile.
            let weight = unsafe { View::new(ty, self.arena.as_mut_ptr().add(offset)) };
            let weight = Arc::new(PackedWeight::new(isa, op, weight));
            copies.insert(form, weight.clone());
            self.packed.insert(node, weight);
        }
        self.clip_has_run = true;
        Ok(())
    }

    fn run_phase(&mut self, phase: Phase) -> Result<(), RunError> {
        let base = self.arena.as_mut_ptr();
        let steps = self.plan.steps(phase);
        let _phase = (!steps.is_empty()).then(|| self.profiled.phase(phase));
        for step in steps {
            self.stop.check()?;
            let _layer = self.profiled.node(step.node);
            tasks::stoppable(&self.stop, || self.run_node(step, base))?;
        }
        // It may have come in the middle of the last layer.
        self.stop.check()
    }

    fn run_node(&self, step: &Step, base: *mut u8) -> Result<(), RunError> {
        let node = self.graph.node(step.node);
        if matches!(node.op, Op::Reshape(_)) {
            return Ok(());
        }
        let packed = self.packed.get(&step.node).map(|weight| &**weight);
        let skipped = packed.and_then(|_| PackedWeight::operand(&node.op));
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (operand, &value) in node.inputs.iter().enumerate() {
            let view = match self.resident.get(&value) {
                // The kernel has the packed form.
                _ if Some(operand) == skipped => View::of(&self.nothing),
                Some(tensor) => View::of(tensor),
                None => {
                    let Buffer { offset, .. } = self.buffer(value)?;
                    // SAFETY: the plan's buffers lie within the arena, which `base` is the start of, and are as large as the
                    // value's type; only an operand that the kernel may overwrite is written meanwhile.
                    unsafe { View::new(self.graph.ty(value), base.add(offset)) }
                }
            };
            inputs.push(view);
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for &value in &node.outputs {
            let Buffer { offset, .. } = self.buffer(value)?;
            // SAFETY: the plan gave the result a buffer in the arena, and `Program::new` verified that nothing live overlaps
            // it but an operand that the kernel may overwrite.
            outputs.push(unsafe { ViewMut::new(self.graph.ty(value), base.add(offset)) });
        }
        fast::run(self.options.isa, &node.name, &node.op, &inputs, packed, outputs)
    }

    /// The place of a value in the arena.
    fn buffer(&self, value: ValueId) -> Result<Buffer, RunError> {
        match self.plan.place(value) {
            Place::Arena(buffer) => Ok(buffer),
            Place::Resident | Place::Unplaced => {
                Err(RunError::Internal(format!("no place for {}", self.graph.value(value).name)))
            }
        }
    }

    fn read_outputs(&self) -> Result<Tensors, RunError> {
        let mut outputs = Tensors::new();
        for output in self.graph.outputs() {
            let tensor = match self.resident.get(&output.value) {
                Some(tensor) => Tensor::clone(tensor),
                None => {
                    let Buffer { offset, bytes } = self.buffer(output.value)?;
                    tensors::reserve(bytes)?;
                    Tensor::from_bytes(
                        self.graph.ty(output.value).clone(),
                        &self.arena[offset..offset + bytes],
                    )
                    .map_err(|error| RunError::Internal(format!("output {}: {error}", output.name)))?
                }
            };
            outputs.insert(output.name.clone(), tensor);
        }
        Ok(outputs)
    }
}
