//! The autoencoder against diffusers, and at full size.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use kinora_cpu::{CpuTarget, reference::ReferenceEvaluator};
use kinora_graph::{
    DType, Graph, Op, Phase, passes,
    plan::{Plan, PlanOptions},
};
use kinora_models::networks::vae::{Decode, Encode, Pixels, VaeConfig, decoder, encoder};
use serde_json::Value;
use support::fixtures::{
    Fixture, distance, extents, input, largest_error, name, run, run_reference, with_outputs,
};

/// f32 sums in another order than PyTorch's f64; results are of order 1.
const BAR: f32 = 1e-4;

fn config(case: &Value) -> VaeConfig {
    VaeConfig::from_json(&case["config"].to_string()).unwrap()
}

fn encoder_of(case: &Value, dtype: DType) -> Graph {
    let [images, height, width] = extents(case, "image");
    encoder(&config(case), &Encode { images, height, width, dtype }).unwrap()
}

fn decoder_of(case: &Value, dtype: DType, pixels: Pixels) -> Graph {
    let [frames, height, width] = extents(case, "latents");
    // The fixture's numbers are of latents that were not scaled, its bytes of latents that were.
    let scaled = pixels == Pixels::Bytes;
    decoder(&config(case), &Decode { frames, height, width, dtype, scaled, pixels }).unwrap()
}

/// Both halves, with the name of the result.
fn halves(case: &Value, dtype: DType) -> [(&'static str, Graph); 2] {
    [("latents", encoder_of(case, dtype)), ("frames", decoder_of(case, dtype, Pixels::Signed))]
}

fn optimised(graph: &Graph) -> Graph {
    passes::optimise_traced(graph, &CpuTarget::default(), Some(&ReferenceEvaluator)).unwrap().0
}

#[test]
fn latents_and_frames_are_those_of_diffusers() {
    let fixture = Fixture::load("vae");
    assert_eq!(fixture.cases.len(), 4);
    for case in &fixture.cases {
        for (result, graph) in halves(case, DType::F32) {
            let expected = fixture.expected(&format!("{}/{result}", name(case)));
            for optimise in [false, true] {
                let error = largest_error(&expected, &run(&graph, &input(&graph, case), optimise)[result]);
                println!("{} {result}, optimised {optimise}: {error:.1e}", name(case));
                assert!(error <= BAR, "{} {result}, optimised {optimise}: {error:.1e}", name(case));
            }
        }
    }
}

#[test]
fn the_reference_agrees() {
    let fixture = Fixture::load("vae");
    let case = fixture.cases.iter().find(|case| name(case) == "one_level").unwrap();
    for (result, graph) in halves(case, DType::F32) {
        let expected = fixture.expected(&format!("{}/{result}", name(case)));
        let error = largest_error(&expected, &run_reference(&graph, &input(&graph, case))[result]);
        println!("{result}: {error:.1e}");
        assert!(error <= BAR, "{result}: {error:.1e}");
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
    let fixture = Fixture::load("vae");
    let case = fixture.cases.iter().find(|case| name(case) == "two_levels").unwrap();
    assert_eq!(case["parts"], serde_json::json!(PARTS.map(|(part, _)| part)));
    for (_, graph) in halves(case, DType::F32) {
        for (part, node) in PARTS.iter().filter(|(_, node)| graph.nodes().iter().any(|n| n.name == *node)) {
            let graph = with_outputs(&graph, &[node]);
            let expected = fixture.expected(&format!("{}/{part}", name(case)));
            for optimise in [false, true] {
                let error = largest_error(&expected, &run(&graph, &input(&graph, case), optimise)[*node]);
                println!("{part}, optimised {optimise}: {error:.1e}");
                assert!(error <= BAR, "{part}, optimised {optimise}: {error:.1e}");
            }
        }
    }
}

/// Too small a difference to show in the results.
#[test]
fn every_norm_has_the_epsilon_of_diffusers() {
    let fixture = Fixture::load("vae");
    let case = fixture.cases.iter().find(|case| name(case) == "two_levels").unwrap();
    let mut found = BTreeMap::new();
    for (_, graph) in halves(case, DType::F32) {
        for node in graph.nodes() {
            if let Op::Norm(norm) = &node.op {
                found.insert(node.name.clone(), norm.epsilon);
            }
        }
    }
    let expected: BTreeMap<String, f32> = serde_json::from_value(case["epsilons"].clone()).unwrap();
    assert_eq!(found, expected);
}

#[test]
fn narrow_types_stay_near() {
    let fixture = Fixture::load("vae");
    // Weights and every activation are rounded, to 11 and to 8 bits (half an ulp is 5e-4 and 4e-3), in some forty layers
    // whose errors add up like random ones.
    for (dtype, bar) in [(DType::F16, 6e-3), (DType::BF16, 5e-2)] {
        for case in &fixture.cases {
            for (result, graph) in halves(case, dtype) {
                let expected = fixture.expected(&format!("{}/{result}", name(case)));
                let error = distance(&expected, &run(&graph, &input(&graph, case), true)[result]);
                println!("{} {result} {dtype}: {error:.1e}", name(case));
                assert!(error <= bar, "{} {result} {dtype}: {error:.1e} over {bar:.1e}", name(case));
            }
        }
    }
}

#[test]
fn bytes_are_those_of_diffusers() {
    let fixture = Fixture::load("vae");
    for case in &fixture.cases {
        let graph = decoder_of(case, DType::F32, Pixels::Bytes);
        let expected = fixture.expected(&format!("{}/bytes", name(case)));
        for optimise in [false, true] {
            let got = run(&graph, &input(&graph, case), optimise).remove("frames").unwrap();
            assert_eq!(expected.ty(), got.ty());
            let unequal = expected.bytes().iter().zip(got.bytes()).filter(|(e, g)| e != g).count();
            println!("{}: {unequal} of {} bytes differ", name(case), got.bytes().len());
            assert!(1000 * unequal <= got.bytes().len(), "{}: {unequal} bytes differ", name(case));
            assert!(largest_error(&expected, &got) <= 1.0, "{}", name(case));
        }
        let distinct: BTreeSet<&u8> = expected.bytes().iter().collect();
        assert!(distinct.len() > 16, "{}: a picture, not a blank one", name(case));
    }
}

#[test]
fn bytes_lose_nothing_to_a_narrow_type() {
    let fixture = Fixture::load("vae");
    for dtype in [DType::F16, DType::BF16] {
        for case in &fixture.cases {
            let [frames, height, width] = extents(case, "latents");
            let request = Decode { frames, height, width, dtype, scaled: true, pixels: Pixels::Signed };
            let run = |pixels| {
                let graph = decoder(&config(case), &Decode { pixels, ..request }).unwrap();
                run(&graph, &input(&graph, case), true).remove("frames").unwrap()
            };
            let exact = |x: f32| ((f64::from(x) / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8;
            let expected: Vec<u8> = run(Pixels::Signed).to_f32().into_iter().map(exact).collect();
            assert_eq!(run(Pixels::Bytes).bytes(), expected, "{} {dtype}", name(case));
        }
    }
}

#[test]
fn the_passes_leave_only_what_must_run() {
    let fixture = Fixture::load("vae");
    for case in &fixture.cases {
        for (result, graph) in halves(case, DType::F32) {
            let after = optimised(&graph);
            let phases = after.phases();
            let runs = || after.nodes().iter().filter(|n| phases[n.outputs[0].index()] == Phase::Step);
            let count = |is: fn(&Op) -> bool| runs().filter(|n| is(&n.op)).count();
            let label = format!("{} {result}", name(case));
            assert_eq!(count(|op| matches!(op, Op::Blend)), 0, "{label}: every blend is folded");
            assert_eq!(
                count(|op| matches!(op, Op::Activate(_))),
                0,
                "{label}: every activation is in its norm"
            );
            assert_eq!(count(|op| matches!(op, Op::Add)), 0, "{label}: every residual is in its product");
            let attentions = count(|op| matches!(op, Op::Attention(_)));
            let layers = case["config"]["layers_per_block"].as_u64().unwrap();
            assert_eq!(attentions, usize::from(result == "latents" || layers > 1), "{label}");
            let plain = count(|op| matches!(op, Op::Norm(norm) if norm.activation.is_none()));
            assert_eq!(plain, attentions, "{label}: the attention's norm alone has no activation");
            assert_eq!(
                count(|op| matches!(op, Op::Linear(_))),
                2 * attentions,
                "{label}: QKV is one product"
            );
            // Blends become weights, not stages of products.
            assert!(!runs().any(|n| n.op.to_string().contains("blend")), "{label}");
            assert_eq!(after.step_flops(), graph.step_flops(), "{label}: no arithmetic is added");
        }
    }
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
    assert!(message.starts_with("decoder.mid_block.resnets.0.spatial_res_block.norm1: "), "{message}");
}
