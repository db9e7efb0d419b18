//! The autoencoder against diffusers, and at full size.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use kinora_cpu::CpuTarget;
use kinora_graph::{
    DType, Graph, Op, ValueId,
    plan::{Plan, PlanOptions},
};
use kinora_models::networks::vae::{Decode, Encode, Pixels, VaeConfig, decoder, encoder};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::Value;
use support::{
    fixtures::Fixture,
    networks::{
        Way, assert_close, inputs, largest_difference, norm_epsilons, optimised, run, step_nodes, with_output,
    },
};

/// f32 sums in another order than PyTorch's f64, of results of order 1: seen 6e-6 off.
const BAR: f32 = 2e-5;

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Value,
    /// Images, height and width.
    image: [usize; 3],
    /// Frames, height and width.
    latents: [usize; 3],
    /// The modules whose results are compared by themselves.
    parts: Vec<String>,
    /// Of every norm, where there are parts.
    #[serde(default)]
    epsilons: BTreeMap<String, f32>,
}

impl Case {
    fn config(&self) -> VaeConfig {
        VaeConfig::from_json(&self.config.to_string()).unwrap()
    }

    fn encoder(&self, dtype: DType) -> Graph {
        let [images, height, width] = self.image;
        encoder(&self.config(), &Encode { images, height, width, dtype }).unwrap()
    }

    fn decoder(&self, dtype: DType, scaled: bool, pixels: Pixels) -> Graph {
        let [frames, height, width] = self.latents;
        decoder(&self.config(), &Decode { frames, height, width, dtype, scaled, pixels }).unwrap()
    }

    /// Both halves, with the name of the result. The decoder's latents are not scaled, as in the script.
    fn halves(&self, dtype: DType) -> [(&'static str, Graph); 2] {
        [("latents", self.encoder(dtype)), ("frames", self.decoder(dtype, false, Pixels::Signed))]
    }

    fn run(&self, graph: &Graph, way: Way) -> Tensors {
        run(graph, &inputs(graph, &self.name, Tensors::new()), way)
    }
}

#[test]
fn latents_and_frames_are_those_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("vae");
    assert_eq!(fixture.cases.len(), 4);
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

/// The modules of the fixture that are compared by themselves, and the nodes that end them.
const PARTS: [(&str, &str); 6] = [
    ("encoder.down_blocks.0", "encoder.down_blocks.0.downsamplers.0.conv"),
    ("encoder.mid_block.attentions.0", "encoder.mid_block.attentions.0.residual"),
    ("encoder.mid_block", "encoder.mid_block.resnets.1.residual"),
    ("decoder.mid_block.resnets.0", "decoder.mid_block.resnets.0.time_mixer.blend"),
    ("decoder.mid_block.attentions.0", "decoder.mid_block.attentions.0.residual"),
    ("decoder.up_blocks.0", "decoder.up_blocks.0.upsamplers.0.conv"),
];

#[test]
fn every_part_is_that_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("vae");
    let case = fixture.cases.iter().find(|case| !case.parts.is_empty()).unwrap();
    assert_eq!(case.parts, PARTS.map(|(part, _)| part));
    for (_, graph) in case.halves(DType::F32) {
        for (part, node) in PARTS.iter().filter(|(_, node)| graph.nodes().iter().any(|n| n.name == *node)) {
            let graph = with_output(&graph, node);
            let expected = fixture.expected(&case.name, part);
            for way in Way::FAST {
                assert_close(&format!("{part}, {way:?}"), expected, &case.run(&graph, way)[*node], BAR);
            }
        }
    }
}

/// Too small a difference to show in the results.
#[test]
fn every_norm_has_the_epsilon_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("vae");
    let case = fixture.cases.iter().find(|case| !case.epsilons.is_empty()).unwrap();
    let halves = case.halves(DType::F32);
    let found: BTreeMap<_, _> = halves.iter().flat_map(|(_, graph)| norm_epsilons(graph)).collect();
    assert_eq!(found, case.epsilons);
}

#[test]
fn narrow_types_stay_near() {
    let fixture: Fixture<Case> = Fixture::load("vae");
    // Weights and every activation are rounded, to 11 and to 8 bits (half an ulp is 5e-4 and 4e-3), in some forty layers
    // whose errors add up like random ones: seen 9e-3 and 8e-2 off.
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
fn bytes_are_those_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("vae");
    for case in &fixture.cases {
        let name = &case.name;
        let graph = case.decoder(DType::F32, true, Pixels::Bytes);
        let expected = fixture.expected(name, "bytes");
        for way in Way::FAST {
            let got = &case.run(&graph, way)["frames"];
            assert_eq!(expected.ty(), got.ty());
            let unequal = expected.bytes().iter().zip(got.bytes()).filter(|(e, g)| e != g).count();
            println!("{name}: {unequal} of {} bytes differ", got.bytes().len());
            assert!(1000 * unequal <= got.bytes().len(), "{name}: {unequal} bytes differ");
            assert!(largest_difference(expected, got) <= 1.0, "{name}");
        }
        let distinct: BTreeSet<&u8> = expected.bytes().iter().collect();
        assert!(distinct.len() > 16, "{name}: a picture, not a blank one");
    }
}

#[test]
fn bytes_lose_nothing_to_a_narrow_type() {
    let fixture: Fixture<Case> = Fixture::load("vae");
    for dtype in [DType::F16, DType::BF16] {
        for case in &fixture.cases {
            let frames = |pixels| {
                case.run(&case.decoder(dtype, true, pixels), Way::Optimised).remove("frames").unwrap()
            };
            let exact = |x: f32| ((f64::from(x) / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8;
            let expected: Vec<u8> = frames(Pixels::Signed).to_f32().into_iter().map(exact).collect();
            assert_eq!(frames(Pixels::Bytes).bytes(), expected, "{} {dtype}", case.name);
        }
    }
}

#[test]
fn the_passes_leave_only_what_must_run() {
    let fixture: Fixture<Case> = Fixture::load("vae");
    for case in &fixture.cases {
        for (result, graph) in case.halves(DType::F32) {
            let after = optimised(&graph);
            let step = step_nodes(&after);
            let count = |is: fn(&Op) -> bool| step.iter().filter(|n| is(&n.op)).count();
            let label = format!("{} {result}", case.name);
            assert_eq!(count(|op| matches!(op, Op::Blend)), 0, "{label}: every blend is folded");
            assert_eq!(
                count(|op| matches!(op, Op::Activate(_))),
                0,
                "{label}: every activation is in its norm"
            );
            assert_eq!(count(|op| matches!(op, Op::Add)), 0, "{label}: every residual is in its product");
            let attentions = count(|op| matches!(op, Op::Attention(_)));
            let layers = case.config["layers_per_block"].as_u64().unwrap();
            assert_eq!(attentions, usize::from(result == "latents" || layers > 1), "{label}");
            let plain = count(|op| matches!(op, Op::Norm(norm) if norm.activation.is_none()));
            assert_eq!(plain, attentions, "{label}: the attention's norm alone has no activation");
            assert_eq!(
                count(|op| matches!(op, Op::Linear(_))),
                2 * attentions,
                "{label}: QKV is one product"
            );
            // Blends become weights, not stages of products.
            assert!(!step.iter().any(|n| n.op.to_string().contains("blend")), "{label}");
            assert_eq!(count(|op| matches!(op, Op::Upsample(_))), 0, "{label}: no image is doubled");
            let folded = 5 * upsamplers_flops(&graph) / 9;
            assert_eq!(after.step_flops() + folded, graph.step_flops(), "{label}: no arithmetic is added");
        }
    }
}

/// The operations of convolutions that follow an upsampler: four of nine are left once it is folded into them.
fn upsamplers_flops(graph: &Graph) -> u64 {
    let types = |values: &[ValueId]| values.iter().map(|&value| graph.ty(value)).collect::<Vec<_>>();
    let doubles = |value: ValueId| {
        graph.nodes().iter().any(|node| matches!(node.op, Op::Upsample(_)) && node.outputs.contains(&value))
    };
    let convolutions =
        graph.nodes().iter().filter(|node| matches!(node.op, Op::Conv(_)) && doubles(node.inputs[0]));
    convolutions.map(|node| node.op.flops(&types(&node.inputs), &types(&node.outputs))).sum()
}

#[test]
fn the_full_size_has_every_weight() {
    let config = VaeConfig::svd();
    let encode = Encode { images: 1, height: 576, width: 1024, dtype: DType::F32 };
    let encoder = encoder(&config, &encode).unwrap();
    let decoder = decoder(&config, &decode(14)).unwrap();
    // The elements of the state dict, counted with diffusers: encoder and quant_conv, and decoder.
    assert_eq!(encoder.parameter_count(), 34_163_592 + 72);
    assert_eq!(decoder.parameter_count(), 63_579_183);
    let shape = |graph: &Graph| graph.ty(graph.outputs()[0].value).shape.to_vec();
    assert_eq!(shape(&encoder), [1, 72, 128, 4]);
    assert_eq!(shape(&decoder), [14, 576, 1024, 3]);
}

/// A chunk of 576×1024 frames as Stable Video Diffusion is decoded.
fn decode(frames: usize) -> Decode {
    let (height, width, dtype) = (72, 128, DType::F16);
    Decode { frames, height, width, dtype, scaled: true, pixels: Pixels::Bytes }
}

#[test]
fn the_full_size_needs_little_more_than_its_largest_layer() {
    let plan = |graph: Graph| {
        let graph = optimised(&graph);
        let plan = Plan::new(&graph, &CpuTarget::default(), &PlanOptions::default()).unwrap();
        println!("{}: {plan}", graph.name());
        plan.arena_bytes()
    };
    // Two tensors of 256 channels at full resolution: an upsampled one and the convolution's result from it.
    let pair = |bytes: usize| 2 * 576 * 1024 * 256 * bytes;
    for frames in [1, 2, 7, 14] {
        let arena = plan(decoder(&VaeConfig::svd(), &decode(frames)).unwrap());
        assert!(arena <= frames * (pair(2) + (8 << 20)), "{frames} frames need {arena}");
    }
    let encode = Encode { images: 1, height: 576, width: 1024, dtype: DType::F32 };
    let arena = plan(encoder(&VaeConfig::svd(), &encode).unwrap());
    assert!(arena <= pair(4), "encoding needs {arena}");
}

#[test]
fn what_gives_no_network_is_said_in_words() {
    let error = |config: &VaeConfig, frames, height| {
        let request = Decode { frames, height, ..decode(1) };
        decoder(config, &request).unwrap_err().to_string()
    };
    let svd = VaeConfig::svd();
    assert!(error(&svd, 0, 72).contains("decoder."), "{}", error(&svd, 0, 72));
    assert!(error(&svd, 1, 0).contains("decoder."), "{}", error(&svd, 1, 0));
    assert!(error(&svd, usize::MAX, 72).contains("too large"), "{}", error(&svd, usize::MAX, 72));
    let uneven = VaeConfig {
        block_out_channels: vec![40],
        down_block_types: vec![svd.down_block_types[0].clone()],
        ..svd
    };
    let message = error(&uneven, 1, 72);
    assert!(
        message.contains("block_out_channels is 40 for block 0, but it must be a multiple of 32"),
        "{message}"
    );
}
