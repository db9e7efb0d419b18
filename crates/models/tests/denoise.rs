//! Denoising steps against diffusers' pipeline, and what the passes leave of them at full size.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::collections::BTreeSet;

use kinora_cpu::CpuTarget;
use kinora_graph::{
    DType, Graph, Op, Phase, Tensor,
    plan::{Plan, PlanOptions, format_bytes},
};
use kinora_models::networks::{
    denoise::{DenoiseConfig, SamplerNeeds},
    step_cache::Extent,
    unet::UnetConfig,
};
use kinora_runtime::Tensors;
use support::{
    denoise::Case,
    fixtures::Fixture,
    networks::{assert_close, largest_difference, optimised, program, step_nodes},
};

fn fixture() -> (Case, Fixture<Case>) {
    let mut fixture: Fixture<Case> = Fixture::load("denoise");
    assert_eq!(fixture.cases.len(), 1);
    (fixture.cases.remove(0), fixture)
}

/// The results of every step, each on the latents of the one before.
fn run(case: &Case, config: &DenoiseConfig, guidance: Option<&[f32]>, optimise: bool) -> Vec<Tensors> {
    let mut program = program(&config.build().unwrap(), optimise);
    program.run_clip(&case.clip_inputs(config, guidance)).unwrap();
    let mut latents = case.latents(config);
    (0..config.steps)
        .map(|step| {
            let inputs = Tensors::from([
                ("latents".to_owned(), latents.clone()),
                ("step".to_owned(), Tensor::from_slice([1], &[step as i32]).unwrap()),
            ]);
            let results = program.run_step(&inputs).unwrap();
            latents = results["next"].clone();
            results
        })
        .collect()
}

#[test]
fn guided_steps_are_diffusers_pipeline() {
    let (case, fixture) = fixture();
    for optimise in [true, false] {
        let steps = run(&case, &case.config(true), Some(&case.guidance), optimise);
        for (step, results) in steps.iter().enumerate() {
            for result in ["next", "denoised"] {
                let expected = fixture.expected(&case.name, &format!("{result}{step}"));
                let label = format!("{result}{step}, optimise {optimise}");
                // Seen: 7e-6. The first step's latents are of order 10.
                assert_close(&label, expected, &results[result], 2e-5);
            }
        }
    }
}

/// Guidance adds 1.5 times the difference of two predictions to one of them: seen 1.5e-2 and 1.1e-1 off.
#[test]
fn latents_stay_f32_around_a_narrow_network() {
    let (case, fixture) = fixture();
    for (dtype, bar) in [(DType::F16, 3e-2), (DType::BF16, 2.4e-1)] {
        let config = DenoiseConfig { dtype, ..case.config(true) };
        let results = run(&case, &config, Some(&case.guidance), true);
        let last = &results[2]["next"];
        assert_eq!(last.dtype(), DType::F32);
        assert_close(&format!("{dtype}"), fixture.expected(&case.name, "next2"), last, bar);
    }
}

/// Guidance of 1 takes the conditional half alone, so that both graphs must agree.
#[test]
fn without_guidance_the_conditional_half_remains() {
    let (case, _) = fixture();
    let guided = run(&case, &case.config(true), Some(&[1.0, 1.0]), true);
    let plain = run(&case, &case.config(false), None, true);
    for (a, b) in guided.iter().zip(&plain) {
        assert!(largest_difference(&a["next"], &b["next"]) <= 1e-5);
    }
    let other = run(&case, &case.config(true), Some(&[3.0, 3.0]), true);
    assert!(largest_difference(&other[2]["next"], &plain[2]["next"]) > 1e-2);
}

#[test]
fn a_step_asks_for_what_its_sampler_needs() {
    let names = |config: &DenoiseConfig| -> Vec<String> {
        let graph = config.build().unwrap();
        graph.inputs().iter().map(|&id| graph.value(id).name.clone()).collect()
    };
    let base = fixture().0.config(false);
    let common = [
        "image_latents",
        "image_embedding",
        "added_time_ids",
        "timesteps",
        "input_scales",
        "table",
        "latents",
        "step",
    ];
    assert_eq!(names(&base), common);
    let sampler = SamplerNeeds { history: true, noise: true, clip: Some(1.0) };
    let all = DenoiseConfig { guided: true, sampler, ..base };
    assert_eq!(names(&all), [&common[..], &["guidance", "history", "noise"]].concat());
}

fn svd(unet: UnetConfig, frames: usize) -> DenoiseConfig {
    DenoiseConfig {
        unet,
        frames,
        height: 72,
        width: 128,
        steps: 25,
        guided: true,
        sampler: SamplerNeeds::default(),
        dtype: DType::F16,
        extent: Extent::Whole,
    }
}

fn parameter_names(graph: &Graph) -> BTreeSet<String> {
    graph.parameters().map(|(_, value)| value.name.clone()).collect()
}

#[test]
fn the_collapse_removes_norms_queries_and_keys_of_cross_attention() {
    let before = svd(UnetConfig::svd_xt(), 25).build().unwrap();
    let after = optimised(&before);
    assert_eq!(before.parameter_count(), 1_524_623_082);

    let (had, has) = (parameter_names(&before), parameter_names(&after));
    let removed: BTreeSet<&String> = had.difference(&has).collect();
    let is_unread = |name: &&String| {
        let of_block = name.contains("transformer_blocks.");
        let parts = [".norm2.weight", ".norm2.bias", ".attn2.to_q.weight", ".attn2.to_k.weight"];
        of_block && parts.iter().any(|part| name.ends_with(part))
    };
    assert_eq!(removed, had.iter().filter(is_unread).collect());
    assert_eq!(removed.len(), 16 * 2 * 4);
    assert!(has.is_subset(&had));
    // For each of the ten, ten and twelve transformer blocks of a width: C² + 1024·C + 2·C.
    assert_eq!(before.parameter_count() - after.parameter_count(), 50_389_760);

    // What is left of cross-attention, as much again, is read once a clip.
    let phases = after.phases();
    let products: Vec<_> = after.nodes().iter().filter(|n| n.name.contains(".attn2.")).collect();
    let linear = products.iter().filter(|n| matches!(n.op, Op::Linear(_)));
    assert_eq!(linear.count(), 16 * 2 * 2);
    for node in &products {
        assert_eq!(phases[node.outputs[0].index()], Phase::Clip, "{}", node.name);
    }
    let of_clip: u64 = after
        .parameters()
        .filter(|(_, v)| v.name.contains(".attn2."))
        .map(|(_, v)| v.ty.elements() as u64)
        .sum();
    assert_eq!(of_clip, 50_364_800);
}

#[test]
fn a_step_keeps_only_what_must_run() {
    let before = svd(UnetConfig::svd_xt(), 25).build().unwrap();
    let after = optimised(&before);
    let step = step_nodes(&after);
    let count = |is: fn(&Op) -> bool| step.iter().filter(|n| is(&n.op)).count();

    // Of the four attentions of each transformer, self-attention over positions and over frames is left.
    assert_eq!(count(|op| matches!(op, Op::Attention(_))), 16 * 2);
    for node in step.iter().filter(|n| matches!(n.op, Op::Attention(_))) {
        assert!(node.inputs[..3].iter().all(|&v| v == node.inputs[0]), "{}: QKV is one product", node.name);
    }
    // Blends of residual blocks are in their weights, those of transformers in the product before them.
    assert!(after.nodes().iter().all(|n| !matches!(n.op, Op::Blend)));
    let blends = step.iter().filter(|n| n.op.epilogue().is_some_and(|e| format!("{e:?}").contains("Blend")));
    assert_eq!(blends.count(), 16);
    assert_eq!(count(|op| matches!(op, Op::Gate(_))), 0);
    assert_eq!(count(|op| matches!(op, Op::Linear(op) if op.gate.is_some())), 16 * 3);
    assert_eq!(count(|op| matches!(op, Op::Activate(_))), 0);
    // Layer norms are in the products that read them. Group norms take their activation, but for those before `proj_in`.
    assert_eq!(count(|op| matches!(op, Op::Norm(norm) if norm.activation.is_none())), 16);
    assert_eq!(count(|op| matches!(op, Op::Norm(norm) if norm.activation.is_some())), 22 * 4 + 1);
    // What the residual blocks make of the time embedding is made once a clip for all steps, and looked up.
    let is_projection = |name: &str| name.ends_with(".time_emb_proj");
    assert_eq!(after.nodes().iter().filter(|n| is_projection(&n.name)).count(), 22 * 2);
    assert!(!step.iter().any(|n| is_projection(&n.name)));
    // What is left of the sums is the frame number's embedding, which the blend must not see.
    let sums: Vec<&str> = step.iter().filter(|n| matches!(n.op, Op::Add)).map(|n| n.name.as_str()).collect();
    assert!(sums.iter().all(|name| name.ends_with(".frame")), "{sums:?}");
    assert_eq!(sums.len(), 16);
}

/// A full-size step, planned on any machine. At 14 frames a card of 16 GB must have room to spare; the arena's bound is that
/// of nine tensors of the outermost level, four of which are the inside of a feed-forward.
#[test]
fn the_full_size_step_fits() {
    for (unet, frames) in [(UnetConfig::svd(), 14), (UnetConfig::svd_xt(), 25)] {
        let graph = optimised(&svd(unet, frames).build().unwrap());
        let plan = Plan::new(&graph, &CpuTarget::default(), &PlanOptions::default()).unwrap();
        plan.verify(&graph).unwrap();
        println!(
            "{frames} frames: weights {}, arena {}, {:.1} TFLOP a step",
            format_bytes(plan.weight_bytes()),
            format_bytes(plan.arena_bytes()),
            graph.step_flops() as f64 / 1e12,
        );
        let outermost = 2 * frames * 72 * 128 * 320 * 2;
        assert!(plan.arena_bytes() < 10 * outermost, "{}", plan.display(&graph));
        assert!(plan.peak_bytes() < 6_000_000_000, "{}", plan.display(&graph));
    }
}

#[test]
fn a_step_that_cannot_be_built_is_refused_by_name() {
    let base = fixture().0.config(true);
    let narrow = UnetConfig { in_channels: 4, ..base.unet.clone() };
    for (config, part) in [
        (DenoiseConfig { frames: 0, ..base.clone() }, "the number of frames is 0"),
        (DenoiseConfig { frames: usize::MAX, ..base.clone() }, "the number of frames is"),
        (DenoiseConfig { height: 0, ..base.clone() }, "height is 0"),
        (DenoiseConfig { width: usize::MAX, ..base.clone() }, "width is"),
        (DenoiseConfig { steps: 0, ..base.clone() }, "the number of steps is 0"),
        (DenoiseConfig { unet: narrow, ..base.clone() }, "in_channels is 4"),
        (DenoiseConfig { dtype: DType::I32, ..base.clone() }, "time_embedding"),
    ] {
        let message = config.build().unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}
