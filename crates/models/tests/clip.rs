//! The CLIP image encoder against transformers, and at full size.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_graph::{DType, Graph, Op};
use kinora_models::networks::clip_vision::{ClipVisionConfig, encoder};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::{Value, json};
use support::{
    fixtures::Fixture,
    networks::{Way, assert_close, inputs, optimised, run, step_nodes, with_output},
};

/// f32 sums in another order than PyTorch's f64, of results of order 1: seen 2e-6 off.
const BAR: f32 = 1e-5;

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Value,
    /// Whether the configuration is that of a whole CLIP model.
    nested: bool,
    images: usize,
    /// The modules whose results are compared by themselves.
    parts: Vec<String>,
}

impl Case {
    fn graph(&self, dtype: DType) -> Graph {
        let config = if self.nested { &json!({ "vision_config": self.config }) } else { &self.config };
        let config = ClipVisionConfig::from_json(&config.to_string()).unwrap();
        encoder(&config, self.images, dtype).unwrap()
    }

    fn run(&self, graph: &Graph, way: Way) -> Tensors {
        run(graph, &inputs(graph, &self.name, Tensors::new()), way)
    }
}

#[test]
fn the_embedding_is_that_of_transformers() {
    let fixture: Fixture<Case> = Fixture::load("clip");
    assert_eq!(fixture.cases.len(), 3);
    for case in &fixture.cases {
        let graph = case.graph(DType::F32);
        let expected = fixture.expected(&case.name, "embedding");
        for way in Way::ALL {
            let got = &case.run(&graph, way)["embedding"];
            assert_close(&format!("{}, {way:?}", case.name), expected, got, BAR);
        }
    }
}

#[test]
fn every_part_is_that_of_transformers() {
    let fixture: Fixture<Case> = Fixture::load("clip");
    for case in &fixture.cases {
        for part in &case.parts {
            let node = if part.contains("layers") { format!("{part}.mlp.residual") } else { part.clone() };
            let graph = with_output(&case.graph(DType::F32), &node);
            let expected = fixture.expected(&case.name, part);
            for way in Way::FAST {
                let got = &case.run(&graph, way)[&node];
                assert_close(&format!("{} {part}, {way:?}", case.name), expected, got, BAR);
            }
        }
    }
}

#[test]
fn narrow_types_stay_near() {
    let fixture: Fixture<Case> = Fixture::load("clip");
    // Weights and every activation are rounded, to 11 and to 8 bits (half an ulp is 5e-4 and 4e-3), in some ten layers whose
    // errors add up like random ones: seen 2.6e-3 and 1.5e-2 off.
    for (dtype, bar) in [(DType::F16, 5e-3), (DType::BF16, 3e-2)] {
        for case in &fixture.cases {
            let got = &case.run(&case.graph(dtype), Way::Optimised)["embedding"];
            let expected = fixture.expected(&case.name, "embedding");
            assert_close(&format!("{} {dtype}", case.name), expected, got, bar);
        }
    }
}

#[test]
fn only_products_attention_and_few_norms_run() {
    let fixture: Fixture<Case> = Fixture::load("clip");
    for case in &fixture.cases {
        let graph = optimised(&case.graph(DType::F32));
        let step = step_nodes(&graph);
        let count = |is: fn(&Op) -> bool| step.iter().filter(|n| is(&n.op)).count();
        let layers = case.config["num_hidden_layers"].as_u64().unwrap() as usize;
        assert_eq!(count(|op| matches!(op, Op::Activate(_))), 0, "every activation is in its product");
        assert_eq!(count(|op| matches!(op, Op::Attention(_))), layers);
        // Queries, keys and values of a layer are one product but in the last, where only the class token asks.
        let linears = 4 * layers + 2;
        assert_eq!(count(|op| matches!(op, Op::Linear(_))), linears);
        // Before the first layer, and the last layer's first, which two products read.
        assert_eq!(count(|op| matches!(op, Op::Norm(_))), 2);
        // The patches' places; with one image they join the convolution.
        assert_eq!(count(|op| matches!(op, Op::Add)), usize::from(case.images != 1));
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
