//! The autoencoder of Stable Diffusion against diffusers, and at full size.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::collections::BTreeMap;

use kinora_graph::{DType, Graph, Op};
use kinora_models::networks::vae::{Decode, Encode, Pixels, VaeConfig, decoder, encoder};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::{Value, json};
use support::{
    fixtures::Fixture,
    networks::{Way, assert_close, inputs, norm_epsilons, optimised, run, step_nodes, with_output},
};

/// f32 sums in another order than PyTorch's f64, of results of order 1.
const BAR: f32 = 1e-5;

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Value,
    /// Images, height and width.
    image: [usize; 3],
    latents: [usize; 3],
    /// The modules whose results are compared by themselves.
    parts: Vec<String>,
    /// Of every norm, if there are parts.
    #[serde(default)]
    epsilons: BTreeMap<String, f32>,
}

impl Case {
    /// Both halves, with the names of their results.
    fn halves(&self, dtype: DType) -> [(&'static str, Graph); 2] {
        let config = VaeConfig::image_from_json(&self.config.to_string()).unwrap();
        let [images, height, width] = self.image;
        let encoder = encoder(&config, &Encode { images, height, width, dtype }).unwrap();
        let [frames, height, width] = self.latents;
        let request = Decode { frames, height, width, dtype, scaled: true, pixels: Pixels::Signed };
        [("latents", encoder), ("frames", decoder(&config, &request).unwrap())]
    }

    fn run(&self, graph: &Graph, way: Way) -> Tensors {
        run(graph, &inputs(graph, &self.name, Tensors::new()), way)
    }
}

#[test]
fn latents_and_frames_are_those_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("image_vae");
    assert_eq!(fixture.cases.len(), 3);
    for case in &fixture.cases {
        // The plain loops of the reference take long.
        let ways = if case.name == "one_level" { &Way::ALL[..] } else { &Way::FAST };
        for (result, graph) in case.halves(DType::F32) {
            let expected = fixture.expected(&case.name, result);
            for &way in ways {
                let got = &case.run(&graph, way)[result];
                assert_close(&format!("{} {result}, {way:?}", case.name), expected, got, BAR);
            }
        }
    }
}

#[test]
fn every_part_is_that_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("image_vae");
    let case = fixture.cases.iter().find(|case| !case.parts.is_empty()).unwrap();
    let [_, (_, whole)] = case.halves(DType::F32);
    for part in &case.parts {
        let end = match part.as_str() {
            "decoder.mid_block" => "resnets.1.residual",
            "decoder.up_blocks.0" => "upsamplers.0.conv",
            _ => "residual",
        };
        let node = format!("{part}.{end}");
        let graph = with_output(&whole, &node);
        for way in Way::FAST {
            let got = &case.run(&graph, way)[&node];
            assert_close(&format!("{part}, {way:?}"), fixture.expected(&case.name, part), got, BAR);
        }
    }
}

/// Too small a difference to show in the results.
#[test]
fn every_norm_has_the_epsilon_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("image_vae");
    let case = fixture.cases.iter().find(|case| !case.epsilons.is_empty()).unwrap();
    let halves = case.halves(DType::F32);
    let found: BTreeMap<_, _> = halves.iter().flat_map(|(_, graph)| norm_epsilons(graph)).collect();
    assert_eq!(found, case.epsilons);
}

#[test]
fn narrow_types_stay_near() {
    let fixture: Fixture<Case> = Fixture::load("image_vae");
    // See the temporal autoencoder's test of the same name.
    for (dtype, bar) in [(DType::F16, 2e-2), (DType::BF16, 1.6e-1)] {
        for case in &fixture.cases {
            for (result, graph) in case.halves(dtype) {
                let got = &case.run(&graph, Way::Optimised)[result];
                let expected = fixture.expected(&case.name, result);
                assert_close(&format!("{} {result} {dtype}", case.name), expected, got, bar);
            }
        }
    }
}

#[test]
fn the_passes_leave_only_what_must_run() {
    let fixture: Fixture<Case> = Fixture::load("image_vae");
    for case in &fixture.cases {
        for (result, graph) in case.halves(DType::F32) {
            let after = optimised(&graph);
            let step = step_nodes(&after);
            let count = |is: fn(&Op) -> bool| step.iter().filter(|n| is(&n.op)).count();
            let label = format!("{} {result}", case.name);
            assert_eq!(count(|op| matches!(op, Op::Attention(_))), 1, "{label}");
            assert_eq!(count(|op| matches!(op, Op::Linear(_))), 2, "{label}: QKV is one product");
            assert_eq!(
                count(|op| matches!(op, Op::Activate(_))),
                0,
                "{label}: every activation is in its norm"
            );
            assert_eq!(count(|op| matches!(op, Op::Add)), 0, "{label}: every residual is in its product");
        }
    }
}

#[test]
fn the_full_size_has_every_weight() {
    let config = json!({"block_out_channels": [128, 256, 512, 512], "layers_per_block": 2,
        "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
        "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]});
    let config = VaeConfig::image_from_json(&config.to_string()).unwrap();
    let dtype = DType::F16;
    let encoder = encoder(&config, &Encode { images: 1, height: 512, width: 512, dtype }).unwrap();
    let request = Decode { frames: 2, height: 64, width: 64, dtype, scaled: true, pixels: Pixels::Bytes };
    let decoder = decoder(&config, &request).unwrap();
    // The elements of the state dict, counted with diffusers: encoder and quant_conv, decoder and post_quant_conv.
    assert_eq!(encoder.parameter_count(), 34_163_592 + 72);
    assert_eq!(decoder.parameter_count(), 49_490_179 + 20);
    let shape = |graph: &Graph| graph.ty(graph.outputs()[0].value).shape.to_vec();
    assert_eq!(shape(&encoder), [1, 64, 64, 4]);
    assert_eq!(shape(&decoder), [2, 512, 512, 3]);
}
