//! The CLIP text encoder against transformers, and at full size.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_graph::{DType, Graph, Op, Tensor};
use kinora_models::networks::clip_text::{ClipTextConfig, TextEncode, encoder};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::Value;
use support::{
    fixtures::Fixture,
    networks::{Way, assert_close, optimised, run, step_nodes, with_output},
};

/// f32 sums in another order than PyTorch's f64, of results of order 1: seen 1.5e-6 off.
const BAR: f32 = 1e-5;

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Value,
    /// The tokens of each prompt.
    tokens: Vec<Vec<i32>>,
    skip: usize,
    final_norm: bool,
    /// The modules whose results are compared by themselves.
    parts: Vec<String>,
}

impl Case {
    fn config(&self) -> ClipTextConfig {
        ClipTextConfig::from_json(&self.config.to_string()).unwrap()
    }

    fn request(&self, dtype: DType) -> TextEncode {
        TextEncode {
            prompts: self.tokens.len(),
            tokens: self.tokens[0].len(),
            dtype,
            skip: self.skip,
            final_norm: self.final_norm,
            pooled: true,
        }
    }

    fn graph(&self, dtype: DType) -> Graph {
        encoder(&self.config(), &self.request(dtype)).unwrap()
    }

    fn run(&self, graph: &Graph, way: Way) -> Tensors {
        let TextEncode { prompts, tokens: length, .. } = self.request(DType::F32);
        let tokens = self.tokens.concat();
        let ends = self.config().ends(&tokens, length);
        let mut inputs = Tensors::from([
            ("tokens".to_owned(), Tensor::from_slice([prompts, length], &tokens).unwrap()),
            ("ends".to_owned(), Tensor::from_slice([prompts], &ends).unwrap()),
        ]);
        inputs.retain(|name, _| graph.inputs().iter().any(|&id| graph.value(id).name == *name));
        run(graph, &inputs, way)
    }
}

#[test]
fn the_prompts_are_those_of_transformers() {
    let fixture: Fixture<Case> = Fixture::load("clip_text");
    assert_eq!(fixture.cases.len(), 3);
    for case in &fixture.cases {
        let graph = case.graph(DType::F32);
        for way in Way::ALL {
            let got = case.run(&graph, way);
            for result in ["hidden", "pooled"] {
                let label = format!("{} {result}, {way:?}", case.name);
                assert_close(&label, fixture.expected(&case.name, result), &got[result], BAR);
            }
        }
    }
}

#[test]
fn layers_that_nothing_reads_are_not_built() {
    let fixture: Fixture<Case> = Fixture::load("clip_text");
    for case in &fixture.cases {
        let (config, request) = (case.config(), TextEncode { pooled: false, ..case.request(DType::F32) });
        let graph = encoder(&config, &request).unwrap();
        let attentions = graph.nodes().iter().filter(|node| matches!(node.op, Op::Attention(_))).count();
        assert_eq!(attentions, config.num_hidden_layers - case.skip);
        let got = &case.run(&graph, Way::Optimised)["hidden"];
        assert_close(&case.name, fixture.expected(&case.name, "hidden"), got, BAR);
    }
}

#[test]
fn every_part_is_that_of_transformers() {
    let fixture: Fixture<Case> = Fixture::load("clip_text");
    for case in &fixture.cases {
        for part in &case.parts {
            let end = if part.contains("layers") { "mlp.residual" } else { "tokens" };
            let node = format!("{part}.{end}");
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
    let fixture: Fixture<Case> = Fixture::load("clip_text");
    // Weights and every activation are rounded, to 11 and to 8 bits (half an ulp is 5e-4 and 4e-3), in some twenty layers
    // whose errors add up like random ones: seen 5e-3 and 4e-2 off.
    for (dtype, bar) in [(DType::F16, 1e-2), (DType::BF16, 8e-2)] {
        for case in &fixture.cases {
            let got = case.run(&case.graph(dtype), Way::Optimised);
            for result in ["hidden", "pooled"] {
                let label = format!("{} {result} {dtype}", case.name);
                assert_close(&label, fixture.expected(&case.name, result), &got[result], bar);
            }
        }
    }
}

#[test]
fn queries_keys_and_values_of_a_layer_are_one_product() {
    let fixture: Fixture<Case> = Fixture::load("clip_text");
    for case in &fixture.cases {
        let graph = optimised(&case.graph(DType::F32));
        let step = step_nodes(&graph);
        let count = |is: fn(&Op) -> bool| step.iter().filter(|n| is(&n.op)).count();
        let config = case.config();
        let layers = config.num_hidden_layers;
        assert_eq!(count(|op| matches!(op, Op::Activate(_))), 0, "every activation is in its product");
        assert_eq!(count(|op| matches!(op, Op::Attention(_))), layers);
        assert_eq!(count(|op| matches!(op, Op::Linear(_))), 4 * layers + usize::from(config.with_projection));
    }
}

#[test]
fn the_published_sizes_have_every_weight() {
    let sd15 = ClipTextConfig {
        hidden_size: 768,
        intermediate_size: 3072,
        num_attention_heads: 12,
        ..ClipTextConfig::default()
    };
    let turbo = ClipTextConfig {
        hidden_size: 1024,
        intermediate_size: 4096,
        num_attention_heads: 16,
        num_hidden_layers: 23,
        ..ClipTextConfig::default()
    };
    let xl = ClipTextConfig {
        hidden_size: 1280,
        intermediate_size: 5120,
        num_attention_heads: 20,
        num_hidden_layers: 32,
        projection_dim: 1280,
        with_projection: true,
        ..ClipTextConfig::default()
    };
    // The elements of the state dict, counted with transformers.
    for (config, parameters) in [(sd15, 123_060_480), (turbo, 340_387_840), (xl, 694_659_840)] {
        let request =
            TextEncode { prompts: 2, tokens: 77, dtype: DType::F16, skip: 0, final_norm: true, pooled: true };
        let graph = encoder(&config, &request).unwrap();
        assert_eq!(graph.parameter_count(), parameters);
        let shapes: Vec<_> =
            graph.outputs().iter().map(|output| graph.ty(output.value).shape.to_vec()).collect();
        let pooled = vec![2, config.pooled_channels()];
        assert_eq!(shapes, [vec![2, 77, config.hidden_size], pooled]);
    }
}

#[test]
fn a_request_that_cannot_be_met_is_refused_by_name() {
    let request =
        TextEncode { prompts: 1, tokens: 77, dtype: DType::F32, skip: 0, final_norm: true, pooled: false };
    for (request, part) in [
        (TextEncode { prompts: 0, ..request }, "the number of prompts is 0"),
        (TextEncode { tokens: 78, ..request }, "the number of tokens is 78, but it must be from 1 to 77"),
        (
            TextEncode { skip: 13, ..request },
            "the number of layers left out is 13, but it must be from 0 to 12",
        ),
    ] {
        let message = encoder(&ClipTextConfig::default(), &request).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}
