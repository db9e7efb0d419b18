//! Planning and lowering, without a device.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use kinora_graph::{
    DType, Graph, GraphBuilder, Op, Phase, TensorType, ValueId,
    op::{Activation, Linear, Stage},
    plan::{Place, PlanError},
};

use super::{
    Planned,
    lowering::{Lowered, LoweredNode, Memory, WeightLayout, lower},
};
use crate::{
    Architecture, Chip, CudaError, CudaOptions,
    kernels::{Argument, Call, Choose, DevicePointer, Implementation, Kernel, Launch, Places, Source, Work},
};

/// Runs every op with one launch, whose arguments are the call's places.
#[derive(Debug)]
struct Everything {
    workspace: usize,
}

const EVERYTHING: Everything = Everything { workspace: 0 };

impl Choose for Everything {
    fn choose(&self, call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError> {
        match call.op {
            Op::Softmax => Err(CudaError::NoKernel {
                layer: call.layer.into(),
                op: String::new(),
                inputs: String::new(),
            }),
            Op::Mul => Ok(Arc::new(Everything { workspace: 1000 })),
            _ => Ok(Arc::new(EVERYTHING)),
        }
    }
}

// SAFETY: its empty source has no kernel, so nothing runs.
unsafe impl Implementation for Everything {
    fn name(&self) -> String {
        "everything".into()
    }

    fn workspace(&self) -> usize {
        self.workspace
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let kernel = Kernel::new(Source { path: "test/all.cu", text: "" }, "all");
        let all = places.inputs.iter().chain(&places.outputs).chain([&places.workspace, &places.fault]);
        let mut arguments: Vec<Argument> = all.map(|&address| Argument::Pointer(address)).collect();
        arguments.push(Argument::I32(places.number));
        Ok(vec![Launch::new(kernel, 1, 32, arguments)])
    }
}

fn options() -> CudaOptions {
    let chip = Chip::typical(Architecture::AMPERE);
    CudaOptions {
        choice: Some(Arc::new(EVERYTHING)),
        optimise: false,
        ..CudaOptions::new(chip, kinora_cpu::CpuOps::shared())
    }
}

/// A clip node, then step nodes: one with a weight and a workspace, a reshape, one without elements.
fn graph() -> Graph {
    let f32s = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let mut g = GraphBuilder::new("test");
    let c = g.input("c", f32s(&[3, 5]), Phase::Clip).unwrap();
    let x = g.input("x", f32s(&[3, 5]), Phase::Step).unwrap();
    let nothing = g.input("nothing", f32s(&[0, 5]), Phase::Step).unwrap();
    let weight = g.parameter("weight", f32s(&[5])).unwrap();
    let other = g.parameter("other", f32s(&[3, 5])).unwrap();
    let clip = g.activate("clip", c, Activation::Silu).unwrap();
    let y = g.mul("mul", x, weight).unwrap();
    let y = g.add("add", y, clip).unwrap();
    let y = g.add("plus", y, other).unwrap();
    let flat = g.reshape("flat", y, [15]).unwrap();
    let empty = g.activate("empty", nothing, Activation::Silu).unwrap();
    g.output("y", flat).unwrap();
    g.output("empty", empty).unwrap();
    g.output("weight", weight).unwrap();
    g.finish()
}

/// The weights of a plan, in one allocation.
fn layout(planned: &Planned) -> WeightLayout {
    WeightLayout::new(planned.graph(), planned.plan().resident().iter().copied()).unwrap()
}

fn weights(layout: &WeightLayout) -> HashMap<ValueId, DevicePointer> {
    layout.addresses(DevicePointer::new(0x10_0000))
}

fn memory(weights: &HashMap<ValueId, DevicePointer>) -> Memory<'_> {
    let [arena, fault] = [0x20_0000, 0x30_0000].map(DevicePointer::new);
    Memory { weights, arena, fault }
}

#[test]
fn every_node_gets_the_addresses_of_its_tensors() {
    let planned = Planned::new(&graph(), &options()).unwrap();
    let (graph, plan) = (planned.graph(), planned.plan());
    let layout = layout(&planned);
    assert_eq!(layout.bytes, 512);
    let weights = weights(&layout);
    let memory = memory(&weights);
    let lowered = lower(graph, plan, &EVERYTHING, &memory).unwrap();
    assert_eq!((lowered.clip.len(), lowered.step.len()), (1, 5));

    let mut numbers = Vec::new();
    for node in lowered.clip.iter().chain(&lowered.step) {
        let described = graph.node(node.node);
        let runs = !["flat", "empty"].contains(&described.name.as_str());
        assert_eq!(node.work.len(), usize::from(runs), "{}", described.name);
        let Some(Work::Launch(launch)) = node.work.first() else { continue };
        let values = described.inputs.iter().chain(&described.outputs);
        for (&value, argument) in values.zip(&launch.arguments) {
            let expected = match plan.place(value) {
                Place::Arena(buffer) => memory.arena.offset(buffer.offset),
                Place::Resident => weights[&value],
                Place::Unplaced => panic!("{} has no place", graph.value(value).name),
            };
            assert_eq!(*argument, Argument::Pointer(expected));
            assert!(expected.is_aligned_to(256));
        }
        let [.., Argument::Pointer(workspace), fault, Argument::I32(number)] = &launch.arguments[..] else {
            panic!("{:?}", launch.arguments)
        };
        assert_eq!(*workspace >= memory.arena, described.name == "mul");
        assert_eq!(*fault, Argument::Pointer(memory.fault));
        let phase = if described.name == "clip" { Phase::Clip } else { Phase::Step };
        assert_eq!(Lowered::numbered(plan, *number), Some((phase, node.node)));
        numbers.push(*number);
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
    // One kernel for each number of arguments runs everything; no input could count steps.
    assert_eq!(lowered.kernels(graph).len(), 2);
    assert_eq!(Lowered::numbered(plan, 0), None);
    assert_eq!(Lowered::numbered(plan, 7), None);
}

#[test]
fn the_plan_is_checked_before_anything_is_allocated() {
    let small = CudaOptions { budget: Some(100), ..options() };
    let error = Planned::new(&graph(), &small).unwrap_err();
    assert!(matches!(error, CudaError::Plan(PlanError::OverBudget { .. })), "{error}");

    let mut g = GraphBuilder::new("softmax");
    let x = g.input("x", TensorType::new(DType::F32, [2, 3]), Phase::Step).unwrap();
    let y = g.softmax("the.softmax", x).unwrap();
    g.output("y", y).unwrap();
    let error = Planned::new(&g.finish(), &options()).unwrap_err();
    assert!(matches!(&error, CudaError::NoKernel { layer, .. } if layer == "the.softmax"), "{error}");
}

/// Asks for more scratch memory each time that it is asked for an implementation.
#[derive(Debug, Default)]
struct Greedy(AtomicUsize);

#[derive(Debug)]
struct Scratch(usize);

impl Choose for Greedy {
    fn choose(&self, _call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError> {
        Ok(Arc::new(Scratch(self.0.fetch_add(10_000, Ordering::Relaxed))))
    }
}

// SAFETY: as for `Everything`, whose launches it gives.
unsafe impl Implementation for Scratch {
    fn name(&self) -> String {
        "scratch".into()
    }

    fn workspace(&self) -> usize {
        self.0
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        EVERYTHING.launches(places)
    }
}

#[test]
fn weights_take_what_the_plan_says() {
    let planned = Planned::new(&graph(), &options()).unwrap();
    let layout = layout(&planned);
    let plain: usize = planned.plan().resident().iter().map(|&value| planned.graph().ty(value).bytes()).sum();
    assert_eq!(layout.bytes, planned.plan().weight_bytes());
    assert!(layout.bytes > plain, "none of {plain} bytes is rounded up: the test shows nothing");
}

#[test]
fn a_choice_that_changes_does_not_change_a_plan() {
    let options = CudaOptions { choice: Some(Arc::new(Greedy::default())), ..options() };
    let planned = Planned::new(&graph(), &options).unwrap();
    let weights = weights(&layout(&planned));
    let memory = memory(&weights);
    let choice = planned.options.chooser();
    assert!(lower(planned.graph(), planned.plan(), &*choice, &memory).is_ok());
    // What was given to the plan asks for more by now.
    assert!(lower(planned.graph(), planned.plan(), &*options.chooser(), &memory).is_err());
}

#[test]
fn the_default_implementation_runs_if_another_does_not_fit() {
    let chip = Chip::typical(Architecture::AMPERE);
    let own = CudaOptions { optimise: false, ..CudaOptions::new(chip, kinora_cpu::CpuOps::shared()) };
    let need = Planned::new(&graph(), &own).unwrap().plan().peak_bytes();
    let greedy = || CudaOptions { choice: Some(Arc::new(Greedy::default())), ..own.clone() };
    assert!(Planned::new(&graph(), &greedy()).unwrap().plan().peak_bytes() > need);
    let within = CudaOptions { budget: Some(need), ..greedy() };
    assert_eq!(Planned::new(&graph(), &within).unwrap().plan().peak_bytes(), need);
    let too_little = CudaOptions { budget: Some(need - 1), ..greedy() };
    let error = Planned::new(&graph(), &too_little).unwrap_err();
    assert!(matches!(error, CudaError::Plan(PlanError::OverBudget { need: n, .. }) if n == need), "{error}");
}

#[test]
fn the_counting_kernel_compiles_everywhere() {
    for architecture in Architecture::TESTED {
        crate::testing::compile(architecture, &[super::step_loop::count_up_kernel()]);
    }
}

#[test]
fn a_program_may_move_to_another_thread() {
    fn movable<T: Send>() {}
    movable::<super::Program>();
}

/// As a LoRA whose strength is turned: the weight is merged in the clip phase, by two launches, and a step launches what it
/// would with a weight that was loaded.
#[test]
fn a_weight_that_the_clip_phase_merges_costs_a_step_nothing() {
    let f16s = |shape: &[usize]| TensorType::new(DType::F16, shape);
    let graph = |merged: bool| {
        let mut g = GraphBuilder::new("merged");
        let x = g.input("x", f16s(&[1024, 320]), Phase::Step).unwrap();
        let mut weight = g.parameter("weight", f16s(&[640, 320])).unwrap();
        if merged {
            let scale = g.input("scale", TensorType::new(DType::F32, [8]), Phase::Clip).unwrap();
            let up = g.parameter("up", f16s(&[640, 8])).unwrap();
            let down = g.parameter("down", f16s(&[320, 8])).unwrap();
            let scaled = g.mul("scaled", up, scale).unwrap();
            let product = Op::Linear(Linear { epilogue: vec![Stage::Add], ..Linear::default() });
            weight = g.node("merged", product, &[scaled, down, weight]).unwrap()[0];
        }
        let y = g.linear("y", x, weight, None).unwrap();
        g.output("y", y).unwrap();
        g.finish()
    };
    for architecture in Architecture::TESTED {
        let options = CudaOptions::new(Chip::typical(architecture), kinora_cpu::CpuOps::shared());
        let [plain, merged] = [false, true].map(|merged| {
            let planned = Planned::new(&graph(merged), &options).unwrap();
            let weights = weights(&layout(&planned));
            let Planned { graph, plan, options } = &planned;
            lower(graph, plan, &*options.chooser(), &memory(&weights)).unwrap()
        });
        let kernels = |nodes: &[LoweredNode]| -> Vec<(String, usize)> {
            nodes.iter().map(|node| (node.kernel.clone(), node.work.len())).collect()
        };
        assert_eq!(kernels(&merged.step), kernels(&plain.step), "{architecture}");
        assert_eq!(plain.clip.len(), 0);
        let launches = merged.clip.iter().map(|node| node.work.len()).sum::<usize>();
        assert_eq!((merged.clip.len(), launches), (2, 2), "{architecture}: {:?}", kernels(&merged.clip));
    }
}
