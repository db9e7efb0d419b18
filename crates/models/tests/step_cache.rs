//! Step caching against diffusers' network, and what it leaves of a step.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::{collections::BTreeSet, ops::ControlFlow};

use kinora_cpu::{Options, Planned};
use kinora_graph::{DType, Graph, Tensor};
use kinora_models::{
    networks::{
        denoise::{DenoiseConfig, SamplerNeeds},
        step_cache::{DEEP, DEFAULT_BLOCKS, Extent},
        unet::UnetConfig,
    },
    synthetic::Synthetic,
};
use kinora_runtime::{CachedSteps, Network, SharedWeights, StepLoop, StepResults, Tensors};
use serde::Deserialize;
use support::{
    denoise::Case,
    fixtures::Fixture,
    networks::{largest_difference, optimised, program},
};

#[derive(Deserialize)]
struct Cached {
    #[serde(flatten)]
    case: Case,
    /// Every so many steps one is whole.
    interval: usize,
    /// The outer blocks.
    blocks: usize,
}

impl Cached {
    /// The latents after each step. With an interval of 1, nothing is taken from an earlier step.
    fn run(&self, dtype: DType, interval: usize, optimise: bool) -> Vec<Tensor> {
        let Cached { case, blocks, .. } = self;
        let config = DenoiseConfig { dtype, ..case.config(true) };
        let program = |extent| {
            let config = DenoiseConfig { extent, ..config.clone() };
            let mut program = program(&config.build().unwrap(), optimise);
            program.run_clip(&case.clip_inputs(&config, Some(&case.guidance))).unwrap();
            program
        };
        let mut whole = program(Extent::Keeping { blocks: *blocks });
        let mut shallow = program(Extent::Shallow { blocks: *blocks });
        let inputs = Tensors::from([
            ("latents".to_owned(), case.latents(&config)),
            ("step".to_owned(), Tensor::from_slice([1], &[0i32]).unwrap()),
        ]);
        let feedback = [("next", "latents")];
        let steps =
            StepLoop { count: config.steps, feedback: &feedback, counters: &["step"], ..StepLoop::default() };
        let cached = CachedSteps { steps, interval, kept: &[(DEEP, DEEP)] };
        let mut nexts = Vec::new();
        let mut keep = |_: usize, results: &dyn StepResults| {
            assert!(results.get(DEEP).is_none());
            nexts.extend(results.get("next"));
            ControlFlow::Continue(())
        };
        whole.run_cached_steps(&mut shallow, &cached, &inputs, Some(&mut keep)).unwrap();
        assert_eq!(nexts.len(), config.steps);
        nexts
    }
}

/// The largest difference, by the largest number that is expected: noise fades from a hundred to one.
fn furthest(expected: &Tensor, got: &Tensor) -> f32 {
    let largest = expected.to_f32().into_iter().map(f32::abs).fold(0.0, f32::max);
    largest_difference(expected, got) / largest
}

#[test]
fn cached_steps_are_diffusers() {
    let fixture: Fixture<Cached> = Fixture::load("step_cache");
    for cached in &fixture.cases {
        let name = &cached.case.name;
        let expected = |step: usize| fixture.expected(name, &format!("next{step}"));
        for optimise in [true, false] {
            // The bar of single steps.
            for (step, got) in cached.run(DType::F32, cached.interval, optimise).iter().enumerate() {
                let off = furthest(expected(step), got);
                println!("{name}, step {step}, optimise {optimise}: {off:.1e} off");
                assert!(off <= 2e-5, "{name}, step {step}: {off:e} off");
            }
        }
        let off = furthest(expected(4), cached.run(DType::F16, cached.interval, true).last().unwrap());
        println!("{name}, f16: {off:.1e} off");
        assert!(off <= 3e-2, "{name}, f16: {off:e} off");
        // The steps that read nothing of earlier ones are others.
        let uncached = cached.run(DType::F32, 1, true);
        assert!(furthest(expected(0), &uncached[0]) <= 5e-6, "{name}");
        assert!(furthest(expected(1), &uncached[1]) > 1e-4, "{name}");
    }
}

fn svd(extent: Extent) -> Graph {
    let config = DenoiseConfig {
        unet: UnetConfig::svd(),
        frames: 14,
        height: 72,
        width: 128,
        steps: 25,
        guided: true,
        sampler: SamplerNeeds::default(),
        dtype: DType::F16,
        extent,
    };
    config.build().unwrap()
}

fn parameters(graph: &Graph) -> BTreeSet<&str> {
    graph.parameters().map(|(_, value)| value.name.as_str()).collect()
}

#[test]
fn a_shallow_step_has_the_parameters_of_the_outer_blocks() {
    let whole = svd(Extent::Whole);
    let all = parameters(&whole);
    let always = ["conv_in", "time_embedding", "add_embedding", "conv_norm_out", "conv_out"];
    let down = ["0.resnets.0", "0.attentions.0", "0.resnets.1", "0.attentions.1", "0.downsamplers.0"];
    let up =
        ["3.attentions.2", "3.resnets.2", "3.attentions.1", "3.resnets.1", "3.attentions.0", "3.resnets.0"];
    // How many of each list a number of outer blocks has.
    for (blocks, of_down, of_up) in [(1, 0, 2), (2, 2, 4), (3, 4, 6), (4, 5, 6)] {
        let down = down[..of_down].iter().map(|name| format!("down_blocks.{name}."));
        let up = up[..of_up].iter().map(|name| format!("up_blocks.{name}."));
        let mut prefixes: Vec<String> = down.chain(up).collect();
        prefixes.extend(always.map(|name| format!("{name}.")));
        if blocks == 4 {
            prefixes.extend(
                ["attentions.2", "resnets.2", "upsamplers.0"].map(|name| format!("up_blocks.2.{name}.")),
            );
        }
        let expected: BTreeSet<&str> = all
            .iter()
            .copied()
            .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
            .collect();
        let shallow = svd(Extent::Shallow { blocks });
        assert_eq!(parameters(&shallow), expected, "{blocks} blocks");
        assert_eq!(parameters(&svd(Extent::Keeping { blocks })), all, "{blocks} blocks");
    }
    // All but the middle.
    let shallow = svd(Extent::Shallow { blocks: 12 });
    let expected: BTreeSet<&str> =
        all.iter().copied().filter(|name| !name.starts_with("mid_block.")).collect();
    assert_eq!(parameters(&shallow), expected);
}

#[test]
fn a_step_that_keeps_something_computes_what_a_whole_one_does() {
    let whole = optimised(&svd(Extent::Whole));
    for blocks in [1, 2, 3, 12] {
        let keeping = optimised(&svd(Extent::Keeping { blocks }));
        assert_eq!(keeping.step_flops(), whole.step_flops());
        // What is kept has both halves of the guidance.
        let deep = keeping.outputs().iter().find(|output| output.name == DEEP).unwrap();
        let ty = keeping.ty(deep.value);
        let channels = [(1, 320), (2, 320), (3, 640), (12, 1280)].into_iter().find(|&(of, _)| of == blocks);
        let size = if blocks == 12 { [9, 16] } else { [72, 128] };
        assert_eq!(ty.shape.to_vec(), [28, size[0], size[1], channels.unwrap().1]);
        assert_eq!(ty.dtype, DType::F16);
    }
}

/// What [`DEFAULT_BLOCKS`] promises, and its table.
#[test]
fn every_third_step_whole_is_1_7_times_as_fast_by_default() {
    let flops = |extent| optimised(&svd(extent)).step_flops() as f64;
    let whole = flops(Extent::Whole);
    let faster = |blocks| {
        let share = flops(Extent::Shallow { blocks }) / whole;
        println!("{blocks} blocks: {:.2} TFLOP of {:.2}, {share:.3}", share * whole / 1e12, whole / 1e12);
        3.0 / (1.0 + 2.0 * share)
    };
    let faster: Vec<f64> = (1..=12).map(faster).collect();
    assert!(faster.is_sorted_by(|a, b| a > b), "{faster:?}");
    assert!(faster[DEFAULT_BLOCKS - 1] > 1.9 && faster[DEFAULT_BLOCKS] < 1.7, "{faster:?}");
}

#[test]
fn a_shallow_step_finds_all_its_weights_in_a_whole_one() {
    let fixture: Fixture<Cached> = Fixture::load("step_cache");
    for Cached { case, blocks, .. } in &fixture.cases {
        let shared = SharedWeights::default();
        let load = |extent| {
            let graph = DenoiseConfig { extent, ..case.config(true) }.build().unwrap();
            let planned = Planned::new(&graph, Options::default()).unwrap();
            planned.load_sharing(&Synthetic, Some(&shared)).unwrap()
        };
        let whole = load(Extent::Keeping { blocks: *blocks });
        let shallow = load(Extent::Shallow { blocks: *blocks });
        assert!(shallow.weight_bytes() > 0 && whole.borrowed_bytes() == 0, "{}", case.name);
        assert_eq!(shallow.borrowed_bytes(), shallow.weight_bytes(), "{}", case.name);
    }
}

#[test]
fn a_cut_where_there_is_no_block_is_refused() {
    let fixture: Fixture<Cached> = Fixture::load("step_cache");
    let config = fixture.cases[0].case.config(true);
    assert_eq!(config.unet.block_count().unwrap(), 4);
    for blocks in [0, 5, usize::MAX] {
        for extent in [Extent::Keeping { blocks }, Extent::Shallow { blocks }] {
            let message = DenoiseConfig { extent, ..config.clone() }.build().unwrap_err().to_string();
            assert!(message.contains(&format!("outer blocks is {blocks}, but")), "{message}");
        }
    }
}
