//! Random graphs: every executor and every pass gives the reference's result, and every plan keeps its promises.

mod support;

use kinora_cpu::{CpuTarget, Options, Program, Tensors, reference, simd::Isa};
use kinora_graph::{
    DType, FuseAll, Graph, Phase, Target, passes,
    plan::{Place, Plan, PlanOptions},
};
use proptest::prelude::*;

use support::{
    compare::assert_all_close,
    random_graph::{random_graph, random_tensors},
};

/// How far two evaluations of a whole random graph may lie apart: every op rounds once more than a golden case does.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-4,
        DType::F16 => 2e-2,
        _ => 1.5e-1,
    }
}

fn numbers() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 8..90)
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop_oneof![4 => Just(DType::F32), 1 => Just(DType::F16), 1 => Just(DType::BF16)]
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

    #[test]
    fn fast_and_reference_agree(numbers in numbers(), dtype in dtypes(), seed in any::<u64>()) {
        let graph = build(&numbers, dtype);
        let (parameters, inputs) = random_tensors(&graph, seed);
        let expected = reference::evaluate(&graph, &parameters, &inputs).unwrap();
        for isa in Isa::available() {
            for optimise in [false, true] {
                let options = Options { isa, optimise, poison: Some(0xFF), ..Options::default() };
                let (_, outputs) = run(&graph, &parameters, &inputs, options);
                assert_all_close(&format!("{isa:?} optimise {optimise}"), &expected, &outputs, tolerance(dtype));
            }
        }
    }

    #[test]
    fn every_pass_keeps_the_result(numbers in numbers(), seed in any::<u64>()) {
        let graph = build(&numbers, DType::F32);
        let (parameters, inputs) = random_tensors(&graph, seed);
        let expected = reference::evaluate(&graph, &parameters, &inputs).unwrap();
        let targets: [(&str, &dyn Target); 2] = [("fuse all", &FuseAll), ("cpu", &CpuTarget)];
        let evaluator = reference::ReferenceEvaluator;
        for (target_name, target) in targets {
            // Each alone, then all of them on one another's results.
            for pass in passes::all(Some(&evaluator)) {
                let after = pass.run(&graph, target).unwrap();
                let outputs = reference::evaluate(&after, &parameters, &inputs).unwrap();
                let label = format!("{} for {target_name}", pass.name());
                assert_all_close(&label, &expected, &outputs, tolerance(DType::F32));
            }
            let after = passes::optimise_traced(&graph, target, Some(&evaluator)).unwrap().0;
            let outputs = reference::evaluate(&after, &parameters, &inputs).unwrap();
            assert_all_close(&format!("all for {target_name}"), &expected, &outputs, tolerance(DType::F32));
        }
    }

    #[test]
    fn a_replay_gives_the_same_bytes(numbers in numbers(), dtype in dtypes(), seed in any::<u64>()) {
        let graph = build(&numbers, dtype);
        let (parameters, inputs) = random_tensors(&graph, seed);
        let (mut program, first) = run(&graph, &parameters, &inputs, Options { poison: Some(0xFF), ..Options::default() });
        program.run_clip(&inputs).unwrap();
        for _ in 0..2 {
            prop_assert_eq!(&first, &program.run_step(&inputs).unwrap());
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
        let plan = Plan::new(&graph, &CpuTarget, &PlanOptions::default()).unwrap();
        let with = |budget| Plan::new(&graph, &CpuTarget, &PlanOptions { budget: Some(budget), ..PlanOptions::default() });
        prop_assert!(with(plan.peak_bytes()).is_ok());
        prop_assert!(with(plan.peak_bytes() - 1).is_err());
        prop_assert!(plan.lower_bound() <= plan.arena_bytes());
        let step_count = plan.steps(Phase::Clip).len() + plan.steps(Phase::Step).len() + plan.load_nodes().len();
        prop_assert_eq!(step_count, graph.nodes().len());
    }
}

/// The generator itself: a thousand graphs between them hold everything it can make.
#[test]
fn random_graphs_hold_every_kind_of_layer() {
    let mut kinds = Vec::new();
    let mut state = 1u32;
    for _ in 0..1000 {
        let numbers: Vec<u32> = (0..40)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 8
            })
            .collect();
        random_graph(&numbers, DType::F32, &mut kinds).unwrap();
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 22, "{kinds:?}");
}
