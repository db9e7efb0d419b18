//! The CLIP image encoder against transformers, and at full size.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_cpu::{CpuTarget, reference::ReferenceEvaluator};
use kinora_graph::{DType, Graph, Op, Phase, passes};
use kinora_models::networks::clip_vision::{ClipVisionConfig, encoder};
use serde_json::{Value, json};
use support::fixtures::{Fixture, distance, input, largest_error, name, run, run_reference, with_outputs};

/// f32 sums in another order than PyTorch's f64; results are of order 1.
const BAR: f32 = 1e-4;

fn build(case: &Value, dtype: DType) -> Graph {
    let config = case["config"].clone();
    let config = if case["nested"] == true { json!({ "vision_config": config }) } else { config };
    let config = ClipVisionConfig::from_json(&config.to_string()).unwrap();
    encoder(&config, case["images"].as_u64().unwrap() as usize, dtype).unwrap()
}

fn optimised(graph: &Graph) -> Graph {
    passes::optimise_traced(graph, &CpuTarget::default(), Some(&ReferenceEvaluator)).unwrap().0
}

#[test]
fn the_embedding_is_that_of_transformers() {
    let fixture = Fixture::load("clip");
    assert_eq!(fixture.cases.len(), 3);
    for case in &fixture.cases {
        let graph = build(case, DType::F32);
        let inputs = input(&graph, case);
        let expected = fixture.expected(&format!("{}/embedding", name(case)));
        let results =
            [run_reference(&graph, &inputs), run(&graph, &inputs, false), run(&graph, &inputs, true)];
        for (executor, got) in ["reference", "as built", "optimised"].into_iter().zip(results) {
            let error = largest_error(&expected, &got["embedding"]);
            println!("{} {executor}: {error:.1e}", name(case));
            assert!(error <= BAR, "{} {executor}: {error:.1e}", name(case));
        }
    }
}

#[test]
fn every_part_is_that_of_transformers() {
    let fixture = Fixture::load("clip");
    for case in &fixture.cases {
        for part in case["parts"].as_array().unwrap().iter().map(|part| part.as_str().unwrap()) {
            let node = if part.contains("layers") { format!("{part}.mlp.residual") } else { part.to_owned() };
            let graph = with_outputs(&build(case, DType::F32), &[&node]);
            let expected = fixture.expected(&format!("{}/{part}", name(case)));
            for optimise in [false, true] {
                let got = run(&graph, &input(&graph, case), optimise);
                let error = largest_error(&expected, &got[&node]);
                println!("{} {part}: {error:.1e}", name(case));
                assert!(error <= BAR, "{} {part}: {error:.1e}", name(case));
            }
        }
    }
}

#[test]
fn narrow_types_stay_near() {
    let fixture = Fixture::load("clip");
    // Weights and every activation are rounded, to 11 and to 8 bits (half an ulp is 5e-4 and 4e-3), in some ten layers whose
    // errors add up like random ones.
    for (dtype, bar) in [(DType::F16, 3e-3), (DType::BF16, 2.4e-2)] {
        for case in &fixture.cases {
            let graph = build(case, dtype);
            let got = run(&graph, &input(&graph, case), true);
            let error = distance(&fixture.expected(&format!("{}/embedding", name(case))), &got["embedding"]);
            println!("{} {dtype}: {error:.1e}", name(case));
            assert!(error <= bar, "{} {dtype}: {error:.1e} over {bar:.1e}", name(case));
        }
    }
}

#[test]
fn only_products_attention_and_few_norms_run() {
    let fixture = Fixture::load("clip");
    for case in &fixture.cases {
        let graph = optimised(&build(case, DType::F32));
        let phases = graph.phases();
        let runs = || graph.nodes().iter().filter(|n| phases[n.outputs[0].index()] == Phase::Step);
        let count = |is: fn(&Op) -> bool| runs().filter(|n| is(&n.op)).count();
        let layers = case["config"]["num_hidden_layers"].as_u64().unwrap() as usize;
        assert_eq!(count(|op| matches!(op, Op::Activate(_))), 0, "every activation is in its product");
        assert_eq!(count(|op| matches!(op, Op::Attention(_))), layers);
        // Queries, keys and values of a layer are one product but in the last, where only the class token asks.
        let linears = 4 * layers + 2;
        assert_eq!(count(|op| matches!(op, Op::Linear(_))), linears);
        // Before the first layer, and the last layer's first, which two products read.
        assert_eq!(count(|op| matches!(op, Op::Norm(_))), 2);
        // The patches' places; with one image they join the convolution.
        assert_eq!(count(|op| matches!(op, Op::Add)), usize::from(case["images"] != 1));
    }
}

#[test]
fn the_last_layer_is_computed_for_the_class_token_alone() {
    let graph = encoder(&ClipVisionConfig::svd(), 1, DType::F16).unwrap();
    let mlp = |layer: usize| {
        let name = format!("vision_model.encoder.layers.{layer}.mlp.residual");
        let node = graph.nodes().iter().find(|n| n.name == name).unwrap();
        graph.ty(node.outputs[0]).shape.to_vec()
    };
    assert_eq!(mlp(30), [1, 257, 1280]);
    assert_eq!(mlp(31), [1, 1, 1280]);
}

#[test]
fn the_full_size_has_every_weight() {
    let graph = encoder(&ClipVisionConfig::svd(), 1, DType::F16).unwrap();
    // The elements of the state dict, counted with transformers.
    assert_eq!(graph.parameter_count(), 632_076_800);
    assert_eq!(graph.ty(graph.outputs()[0].value).shape.to_vec(), [1, 1024]);
    assert!(
        graph.parameters().any(|(_, v)| v.name == "vision_model.encoder.layers.31.self_attn.k_proj.bias")
    );
}

#[test]
fn no_images_or_very_many_are_refused() {
    for images in [0, usize::MAX] {
        let error = encoder(&ClipVisionConfig::svd(), images, DType::F32).unwrap_err().to_string();
        assert!(error.starts_with("CLIP image encoder: the number of images is "), "{error}");
    }
}
