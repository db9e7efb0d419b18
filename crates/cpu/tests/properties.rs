//! Random graphs: every executor and every pass reproduces the reference's result, and every plan keeps its promises.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::collections::{HashMap, HashSet};

use kinora_cpu::{CpuTarget, Options, Program, reference, run_on_tensors, simd::Isa};
use kinora_graph::{
    DType, FuseAll, Graph, Phase, Source, Target, Tensor, passes,
    plan::{Place, Plan, PlanOptions},
};
use kinora_runtime::Tensors;
use proptest::prelude::*;

use kinora_testing::{
    compare::{assert_all_close, close_beyond, distance},
    movement::{MOVEMENTS, bars_of_the_whole, movement_of_graph, movement_of_layer, with_stored_prologue},
    random_graph::{random_graph, random_tensors},
};

/// A graph before and after a pass. In f32 a pass changes nothing but the order of f64 arithmetic and the rounding of folded
/// weights: at most 1.3e-6 was seen. With 16-bit storage, each result has a bar.
fn assert_pass_kept(label: &str, bars: Option<&HashMap<String, f64>>, expected: &Tensors, got: &Tensors) {
    let Some(bars) = bars else {
        return assert_all_close(label, expected, got, 1e-5);
    };
    assert_eq!(expected.len(), got.len(), "{label}: number of results");
    for (name, expected) in expected {
        assert_eq!(expected.ty(), got[name].ty(), "{label}: {name}");
        let Some(&bar) = bars.get(name) else { continue };
        let distance = distance(&expected.to_f32(), &got[name].to_f32());
        assert!(distance <= bar, "{label}: {name} {} is {distance:.1e} off, over {bar:.1e}", expected.ty());
    }
}

fn numbers() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 20..100)
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop_oneof![2 => Just(DType::F32), 1 => Just(DType::F16), 1 => Just(DType::BF16)]
}

/// The inputs of one phase.
fn of_phase(graph: &Graph, inputs: &Tensors, phase: Phase) -> Tensors {
    let ids = graph.inputs().iter().filter(|&&id| graph.value(id).source == Source::Input(phase));
    ids.map(|&id| graph.value(id).name.clone()).map(|name| (name.clone(), inputs[&name].clone())).collect()
}

fn build(numbers: &[u32], dtype: DType) -> Graph {
    random_graph(numbers, dtype, &mut Vec::new()).unwrap()
}

fn run(graph: &Graph, parameters: &Tensors, inputs: &Tensors, options: Options) -> (Program, Tensors) {
    let mut program = Program::new(graph, parameters, options).unwrap();
    let outputs = program.run(inputs).unwrap();
    (program, outputs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Two executors of one graph: each op rounds its result to storage in the same place, and only the order of f32 sums
    /// differs.
    #[test]
    fn fast_and_reference_agree(numbers in numbers(), dtype in dtypes(), seed in any::<u64>()) {
        let graph = build(&numbers, dtype);
        let (parameters, inputs) = random_tensors(&graph, seed);
        for optimise in [false, true] {
            let mut expected = None;
            for isa in Isa::available() {
                let options = Options { isa, optimise, poison: Some(0xFF), ..Options::default() };
                let (program, outputs) = run(&graph, &parameters, &inputs, options);
                // What the passes make of the graph is held to the same bar; what they change is another test's subject.
                let graph = program.graph();
                let (expected, bars, movement) = expected.get_or_insert_with(|| {
                    let expected = reference::evaluate(graph, &parameters, &inputs).unwrap();
                    let bars = bars_of_the_whole(graph, &parameters, &inputs);
                    (expected, bars, movement_of_graph(graph, &parameters, &inputs))
                });
                prop_assert_eq!(expected.len(), outputs.len());
                for (name, expected) in expected.iter() {
                    prop_assert_eq!(expected.ty(), outputs[name].ty(), "{}", name);
                    if let Some(bars) = bars {
                        let Some(&bar) = bars.get(name) else { continue };
                        let distance = distance(&expected.to_f32(), &outputs[name].to_f32());
                        let label = format!("{isa:?} optimise {optimise} {name}");
                        prop_assert!(distance <= bar, "{}: {:.1e} off, over {:.1e}", label, distance, bar);
                        continue;
                    }
                    let same = close_beyond(MOVEMENTS * movement[name], expected, &outputs[name]);
                    if let Err(why) = same {
                        prop_assert!(false, "{:?} optimise {} {}: {}", isa, optimise, name, why);
                    }
                }
            }
        }
    }

    /// Each layer on the reference's own operands: nothing before it can have been off, so that every element counts, and
    /// is held to the bar of the golden tests, beyond what rounding the op's operands would do.
    #[test]
    fn every_layer_alone_agrees(numbers in numbers(), dtype in dtypes(), seed in any::<u64>()) {
        let graph = build(&numbers, dtype);
        let (parameters, inputs) = random_tensors(&graph, seed);
        let optimised = passes::optimise_traced(&graph, &CpuTarget::default(), None).unwrap().0;
        for graph in [graph, optimised] {
            let values = reference::evaluate_all(&graph, &parameters, &inputs).unwrap();
            for node in graph.nodes() {
                let operands: Vec<&Tensor> = node.inputs.iter().map(|value| &values[value]).collect();
                let movement = movement_of_layer(&node.op, &operands);
                let stored = with_stored_prologue(&node.op, &operands);
                for isa in Isa::available() {
                    let results = run_on_tensors(isa, &node.name, &node.op, &operands).unwrap();
                    for (i, (value, result)) in node.outputs.iter().zip(&results).enumerate() {
                        let close = |expected: &Tensor| close_beyond(MOVEMENTS * movement[i], expected, result);
                        let same = close(&values[value])
                            .or_else(|why| stored.as_ref().map_or(Err(why), |stored| close(&stored[i])));
                        if let Err(why) = same {
                            prop_assert!(false, "{:?} {} {:?}: {}", isa, node.name, node.op, why);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_pass_keeps_the_result(numbers in numbers(), dtype in dtypes(), seed in any::<u64>()) {
        let graph = build(&numbers, dtype);
        let (parameters, inputs) = random_tensors(&graph, seed);
        let expected = reference::evaluate(&graph, &parameters, &inputs).unwrap();
        let bars = bars_of_the_whole(&graph, &parameters, &inputs);
        let targets: [(&str, &dyn Target); 2] = [("fuse all", &FuseAll), ("cpu", &CpuTarget::default())];
        let evaluator = reference::ReferenceEvaluator;
        for (target_name, target) in targets {
            // Each alone, then all of them on one another's results.
            for pass in passes::all(Some(&evaluator)) {
                let after = pass.run(&graph, target).unwrap();
                let outputs = reference::evaluate(&after, &parameters, &inputs).unwrap();
                let label = format!("{} for {target_name}", pass.name());
                assert_pass_kept(&label, bars.as_ref(), &expected, &outputs);
            }
            let after = passes::optimise_traced(&graph, target, Some(&evaluator)).unwrap().0;
            let outputs = reference::evaluate(&after, &parameters, &inputs).unwrap();
            assert_pass_kept(&format!("all for {target_name}"), bars.as_ref(), &expected, &outputs);
        }
    }

    #[test]
    fn a_replay_gives_the_same_bytes(numbers in numbers(), dtype in dtypes(), seed in any::<u64>()) {
        let graph = build(&numbers, dtype);
        let (parameters, inputs) = random_tensors(&graph, seed);
        let (mut program, first) = run(&graph, &parameters, &inputs, Options { poison: Some(0xFF), ..Options::default() });
        program.run_clip(&of_phase(&graph, &inputs, Phase::Clip)).unwrap();
        let step = of_phase(&graph, &inputs, Phase::Step);
        for _ in 0..2 {
            let again = program.run_step(&step).unwrap();
            for (name, first) in &first {
                // Not as numbers: a NaN would not equal itself.
                prop_assert_eq!(first.bytes(), again[name].bytes(), "{}", name);
            }
        }
    }

    /// Runs twice over memory filled with different bytes: what differs afterwards was never written.
    #[test]
    fn the_peak_is_what_execution_touches(numbers in numbers(), dtype in dtypes(), seed in any::<u64>()) {
        let graph = build(&numbers, dtype);
        let (parameters, inputs) = random_tensors(&graph, seed);
        let (one, _) = run(&graph, &parameters, &inputs, Options { poison: Some(0x5A), ..Options::default() });
        let (two, _) = run(&graph, &parameters, &inputs, Options { poison: Some(0xA5), ..Options::default() });
        prop_assert_eq!(one.arena().len(), one.plan().arena_bytes());
        prop_assert_eq!(one.weight_bytes(), one.plan().weight_bytes());
        let touched: Vec<bool> = one.arena().iter().zip(two.arena()).map(|(a, b)| a == b).collect();
        if let Some(last) = touched.last() {
            prop_assert!(last, "the last byte of the arena is never written");
        }
        // Every buffer is written whole; only alignment gaps, which no buffer covers, stay as they were.
        let mut covered = vec![false; touched.len()];
        for (id, _) in one.graph().value_ids() {
            if let Place::Arena(buffer) = one.plan().place(id) {
                covered[buffer.offset..buffer.offset + buffer.bytes].fill(true);
            }
        }
        for (at, (touched, covered)) in touched.iter().zip(&covered).enumerate() {
            prop_assert_eq!(touched, covered, "byte {}", at);
        }
    }

    #[test]
    fn a_budget_of_the_peak_suffices_and_one_byte_less_does_not(numbers in numbers()) {
        let graph = build(&numbers, DType::F32);
        let plan = Plan::new(&graph, &CpuTarget::default(), &PlanOptions::default()).unwrap();
        let with = |budget| Plan::new(&graph, &CpuTarget::default(), &PlanOptions { budget: Some(budget), ..PlanOptions::default() });
        prop_assert!(with(plan.peak_bytes()).is_ok());
        // A graph without images and layers needs nothing at all.
        if let Some(less) = plan.peak_bytes().checked_sub(1) {
            prop_assert!(with(less).is_err());
        }
        prop_assert!(plan.lower_bound() <= plan.arena_bytes());
        let step_count = plan.steps(Phase::Clip).len() + plan.steps(Phase::Step).len() + plan.load_nodes().len();
        prop_assert_eq!(step_count, graph.nodes().len());
    }
}

/// A thousand graphs that do not change from run to run.
fn thousand_graphs(kinds: &mut Vec<&'static str>) -> Vec<Graph> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let mut graph = || {
        let numbers: Vec<u32> = (0..40).map(|_| next()).collect();
        random_graph(&numbers, DType::F32, kinds).unwrap()
    };
    (0..1000).map(|_| graph()).collect()
}

/// The generator itself: a thousand graphs between them hold everything it can make.
#[test]
fn random_graphs_hold_every_kind_of_layer() {
    let mut kinds = Vec::new();
    thousand_graphs(&mut kinds);
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 41, "{kinds:?}");
}

/// What the passes are compared on is what they look for: each finds something in more than one graph.
#[test]
fn random_graphs_give_every_pass_something_to_do() {
    let evaluator = reference::ReferenceEvaluator;
    let mut found: HashMap<&str, usize> = HashMap::new();
    for graph in thousand_graphs(&mut Vec::new()) {
        let (_, effects) = passes::optimise_traced(&graph, &FuseAll, Some(&evaluator)).unwrap();
        let passes: HashSet<&str> = effects.iter().map(|effect| effect.pass).collect();
        passes.into_iter().for_each(|pass| *found.entry(pass).or_default() += 1);
    }
    for pass in passes::all(None) {
        let graphs = found.get(pass.name()).copied().unwrap_or(0);
        println!("{}: {graphs} graphs", pass.name());
        assert!(graphs > 1, "{}: {found:?}", pass.name());
    }
}
