//! A whole network of Stable Video Diffusion's shape: the passes take out what they promise, and the result stays.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

#[path = "../examples/small_unet/network.rs"]
mod network;

use kinora_cpu::{CpuTarget, Options, Program, reference};
use kinora_graph::{
    DType, Graph, Op, Phase, Tensor,
    op::{Prediction, StepCoefficients},
    passes,
    plan::{Plan, PlanOptions},
};
use kinora_runtime::Tensors;
use kinora_testing::{compare::assert_all_close, random_graph::random_tensors};
use network::{Config, build};

fn config(dtype: DType) -> Config {
    Config { widths: vec![8, 16], head_dim: 4, groups: 4, context: 6, frames: 3, size: 4, steps: 2, dtype }
}

/// Random inputs, but for those that mean something.
fn inputs(graph: &Graph, config: &Config, seed: u64) -> (Tensors, Tensors) {
    let (parameters, mut inputs) = random_tensors(graph, seed);
    let rows: Vec<f32> = [(9.0, 2.0), (2.0, 0.0)]
        .into_iter()
        .flat_map(|(sigma, next)| StepCoefficients::euler(Prediction::Velocity, sigma, next).row())
        .collect();
    inputs.insert("table".into(), Tensor::from_slice([config.steps, 8], &rows).unwrap());
    inputs.insert("step".into(), Tensor::from_slice([1], &[1i32]).unwrap());
    (parameters, inputs)
}

fn optimised(graph: &Graph) -> Graph {
    passes::optimise_traced(graph, &CpuTarget::default(), Some(&reference::ReferenceEvaluator)).unwrap().0
}

#[test]
fn the_network_gives_the_reference_result() {
    for (dtype, bar) in [(DType::F32, 1e-5), (DType::F16, 2e-2), (DType::BF16, 1.5e-1)] {
        let config = config(dtype);
        let graph = build(&config).unwrap();
        for seed in 1..4 {
            let (parameters, inputs) = inputs(&graph, &config, seed);
            let expected = reference::evaluate(&graph, &parameters, &inputs).unwrap();
            for optimise in [false, true] {
                let options = Options { optimise, poison: Some(0xFF), ..Options::default() };
                let results = Program::new(&graph, &parameters, options).unwrap().run(&inputs).unwrap();
                assert_all_close(&format!("{dtype} optimise {optimise}"), &expected, &results, bar);
            }
        }
    }
}

#[test]
fn cross_attention_to_one_token_leaves_the_step() {
    let graph = build(&config(DType::F32)).unwrap();
    let after = optimised(&graph);
    let attentions =
        |graph: &Graph| graph.nodes().iter().filter(|n| matches!(n.op, Op::Attention(_))).count();
    // Two transformers down, two up, each with a spatial and a temporal block of two attentions.
    assert_eq!((attentions(&graph), attentions(&after)), (16, 8));
    let has = |graph: &Graph, part: &str| graph.parameters().any(|(_, v)| v.name.contains(part));
    for part in ["attn2.to_q", "attn2.to_k", "attention.spatial.norm2", "attention.temporal.norm2"] {
        assert!(has(&graph, part), "{part}");
        assert!(!has(&after, part), "{part}");
    }
    let phases = after.phases();
    let outputs = after.nodes().iter().filter(|n| n.name.contains("attn2.to_out"));
    let clip = outputs.filter(|n| phases[n.outputs[0].index()] == Phase::Clip).count();
    assert_eq!(clip, 8, "what is left of each runs once a clip");
}

#[test]
fn a_step_keeps_only_what_must_run() {
    let after = optimised(&build(&config(DType::F32)).unwrap());
    let phases = after.phases();
    let runs: Vec<&Op> =
        after.nodes().iter().filter(|n| phases[n.outputs[0].index()] == Phase::Step).map(|n| &n.op).collect();
    let count = |is: fn(&Op) -> bool| runs.iter().filter(|op| is(op)).count();
    assert_eq!(count(|op| matches!(op, Op::Activate(_))), 0, "every activation is fused");
    assert_eq!(count(|op| matches!(op, Op::Gate(_))), 0, "every GEGLU is in its product");
    assert_eq!(count(|op| matches!(op, Op::Blend)), 0, "every blend is folded or fused");
    assert_eq!(
        count(|op| matches!(op, Op::Norm(norm) if norm.activation.is_none())),
        4,
        "before proj_in alone"
    );
}

#[test]
fn the_optimised_plan_needs_less_memory() {
    let graph = build(&Config { size: 16, frames: 8, ..config(DType::F16) }).unwrap();
    let arena = |graph: &Graph| {
        Plan::new(graph, &CpuTarget::default(), &PlanOptions::default()).unwrap().arena_bytes()
    };
    assert!(arena(&optimised(&graph)) < arena(&graph));
}
