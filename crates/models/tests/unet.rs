//! The UNet and its denoising step against diffusers, and what the passes leave of them.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use kinora_cpu::{CpuTarget, Options, Program, Tensors, reference::ReferenceEvaluator};
use kinora_graph::{
    DType, Graph, GraphBuilder, Op, Phase, Tensor, TensorType,
    op::{Prediction, StepCoefficients},
    passes,
    plan::{Plan, PlanOptions, format_bytes},
};
use kinora_models::{
    networks::{
        denoise::{DenoiseConfig, SamplerNeeds},
        unet::{PerBlock, UnetConfig, UnetInputs, time_embedding, unet},
    },
    synthetic::Synthetic,
};
use serde::Deserialize;
use support::networks::{Way, assert_close, given, largest_difference, run, tensors, text};

#[derive(Deserialize)]
struct Runs {
    networks: BTreeMap<String, Run>,
    denoise: DenoiseRun,
}

#[derive(Deserialize)]
struct Run {
    batch: usize,
    frames: usize,
    height: usize,
    width: usize,
    timesteps: Vec<f32>,
    added_time_ids: Vec<Vec<f32>>,
    parameters: u64,
}

#[derive(Deserialize)]
struct DenoiseRun {
    frames: usize,
    height: usize,
    width: usize,
    sigmas: Vec<f64>,
    timesteps: Vec<f32>,
    added_time_ids: Vec<f32>,
    guidance: Vec<f32>,
}

fn runs() -> Runs {
    serde_json::from_str(&text("unet", "runs.json")).unwrap()
}

fn config(name: &str) -> UnetConfig {
    UnetConfig::from_json(&text("unet", &format!("{name}.config.json"))).unwrap()
}

/// The network alone, with the prediction and the time embedding as results.
fn network(config: &UnetConfig, run: &Run, dtype: DType) -> Graph {
    let mut g = GraphBuilder::new("unet");
    let f32_type = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let images = run.batch * run.frames;
    let sample = TensorType::new(dtype, [images, run.height, run.width, config.in_channels]);
    let sample = g.input("sample", sample, Phase::Step).unwrap();
    let context = TensorType::new(dtype, [run.batch, 1, config.context_channels().unwrap()]);
    let context = g.input("context", context, Phase::Clip).unwrap();
    let timesteps = g.input("timesteps", f32_type(&[run.batch]), Phase::Step).unwrap();
    let ids = f32_type(&[run.batch, config.added_time_ids().unwrap()]);
    let ids = g.input("added_time_ids", ids, Phase::Clip).unwrap();
    let time = time_embedding(&mut g, config, dtype, timesteps, ids).unwrap();
    g.output("time", time).unwrap();
    // A row an image, as diffusers repeats them.
    let rows: Vec<i32> = (0..images).map(|image| (image / run.frames) as i32).collect();
    let rows = g.constant("rows", Tensor::from_slice([images], &rows).unwrap()).unwrap();
    let time = g.embedding("time_rows", time, rows).unwrap();
    let inputs = UnetInputs { sample, time, context, frames: run.frames };
    let prediction = unet(&mut g, config, dtype, &inputs).unwrap();
    g.output("prediction", prediction).unwrap();
    g.finish()
}

fn inputs(name: &str, graph: &Graph, run: &Run) -> Tensors {
    let ids = run.added_time_ids.concat();
    graph
        .inputs()
        .iter()
        .map(|&id| {
            let value = graph.value(id);
            let tensor = match value.name.as_str() {
                "timesteps" => Tensor::from_slice(value.ty.shape.clone(), &run.timesteps).unwrap(),
                "added_time_ids" => Tensor::from_slice(value.ty.shape.clone(), &ids).unwrap(),
                input => given(value.ty.dtype, &format!("{name}.{input}"), &value.ty.shape, 1.0),
            };
            (value.name.clone(), tensor)
        })
        .collect()
}

#[test]
fn networks_of_three_shapes_are_diffusers() {
    let expected = tensors("unet", "results.safetensors");
    for (name, run_of) in &runs().networks {
        let graph = network(&config(name), run_of, DType::F32);
        assert_eq!(graph.parameter_count(), run_of.parameters, "{name}");
        let inputs = inputs(name, &graph, run_of);
        // Seen: 3e-6, and by the reference, which rounds once an op, 4e-7.
        let mut ways = vec![(Way::Optimised, 1e-5), (Way::AsBuilt, 1e-5)];
        if name == "smallest" {
            ways.push((Way::Reference, 8e-7));
        }
        for (way, bar) in ways {
            let got = run(&graph, &inputs, way);
            assert_close(&format!("{name}, {way:?}"), &expected[name], &got["prediction"], bar);
            assert_close(
                &format!("{name}.time, {way:?}"),
                &expected[&format!("{name}.time")],
                &got["time"],
                2e-6,
            );
        }
    }
}

/// f16 keeps 11 bits and bf16 8, so that one rounding is off by up to 5e-4 and 4e-3 of a number. Dozens of layers round
/// weights and activations one after the other, and their errors add up like the steps of a random walk: the worst of a
/// few thousand elements of order 1 was seen 7e-3 and 6e-2 off. The bars are twice that.
#[test]
fn narrow_storage_stays_near() {
    let expected = tensors("unet", "results.safetensors");
    for (name, run_of) in &runs().networks {
        for (dtype, bar) in [(DType::F16, 1.5e-2), (DType::BF16, 1.2e-1)] {
            let graph = network(&config(name), run_of, dtype);
            let got = run(&graph, &inputs(name, &graph, run_of), Way::Optimised);
            assert_close(&format!("{name}, {dtype}"), &expected[name], &got["prediction"], bar);
        }
    }
}

fn denoise_config(guided: bool) -> DenoiseConfig {
    let DenoiseRun { frames, height, width, timesteps, .. } = runs().denoise;
    DenoiseConfig {
        unet: config("smallest"),
        frames,
        height,
        width,
        steps: timesteps.len(),
        guided,
        sampler: SamplerNeeds::default(),
        dtype: DType::F32,
    }
}

/// What a clip is given.
fn clip_inputs(config: &DenoiseConfig, guidance: Option<&[f32]>) -> Tensors {
    let run = runs().denoise;
    let steps = config.steps;
    let rows: Vec<f32> = run
        .sigmas
        .windows(2)
        .flat_map(|s| StepCoefficients::euler(Prediction::Velocity, s[0], s[1]).row())
        .collect();
    let scales: Vec<f32> = run.sigmas[..steps].iter().map(|s| (1.0 / (s * s + 1.0).sqrt()) as f32).collect();
    let image = [1, config.height, config.width, config.unet.in_channels - config.unet.out_channels];
    let embedding = [1, 1, config.unet.context_channels().unwrap()];
    let mut inputs = Tensors::from([
        ("image_latents".to_owned(), given(DType::F32, "denoise.image_latents", &image, 1.0)),
        ("image_embedding".to_owned(), given(DType::F32, "denoise.image_embedding", &embedding, 1.0)),
        ("added_time_ids".to_owned(), Tensor::from_slice([3], &run.added_time_ids).unwrap()),
        ("timesteps".to_owned(), Tensor::from_slice([steps], &run.timesteps).unwrap()),
        ("input_scales".to_owned(), Tensor::from_slice([steps], &scales).unwrap()),
        ("table".to_owned(), Tensor::from_slice([steps, 8], &rows).unwrap()),
    ]);
    if let Some(guidance) = guidance {
        inputs.insert("guidance".to_owned(), Tensor::from_slice([guidance.len()], guidance).unwrap());
    }
    inputs
}

/// The results of every step, each on the latents of the one before.
fn denoise(config: &DenoiseConfig, guidance: Option<&[f32]>, optimise: bool) -> Vec<Tensors> {
    let options = Options { optimise, poison: Some(0xFF), ..Options::default() };
    let mut program = Program::new(&config.build().unwrap(), &Synthetic, options).unwrap();
    program.run_clip(&clip_inputs(config, guidance)).unwrap();
    let shape = [config.frames, config.height, config.width, config.unet.out_channels];
    let mut latents = given(DType::F32, "denoise.latents", &shape, runs().denoise.sigmas[0] as f32);
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
    let expected = tensors("unet", "results.safetensors");
    let config = denoise_config(true);
    for optimise in [true, false] {
        for (step, results) in denoise(&config, Some(&runs().denoise.guidance), optimise).iter().enumerate() {
            for result in ["next", "denoised"] {
                let expected = &expected[&format!("denoise.{result}{step}")];
                let label = format!("{result}{step}, optimise {optimise}");
                // The first step's latents are of order 10.
                assert_close(&label, expected, &results[result], 1e-4);
            }
        }
    }
}

/// Guidance adds 1.5 times the difference of two predictions to one of them: seen 1.4e-2 and 1.5e-1 off.
#[test]
fn latents_stay_f32_around_a_narrow_network() {
    let expected = tensors("unet", "results.safetensors");
    for (dtype, bar) in [(DType::F16, 3e-2), (DType::BF16, 2.4e-1)] {
        let config = DenoiseConfig { dtype, ..denoise_config(true) };
        let results = denoise(&config, Some(&runs().denoise.guidance), true);
        let last = &results[2]["next"];
        assert_eq!(last.dtype(), DType::F32);
        assert_close(&format!("{dtype}"), &expected["denoise.next2"], last, bar);
    }
}

/// Guidance of 1 takes the conditional half alone, so that both graphs must agree.
#[test]
fn without_guidance_the_conditional_half_remains() {
    let guided = denoise(&denoise_config(true), Some(&[1.0, 1.0]), true);
    let plain = denoise(&denoise_config(false), None, true);
    for (a, b) in guided.iter().zip(&plain) {
        assert!(largest_difference(&a["next"], &b["next"]) <= 1e-5);
    }
    let other = denoise(&denoise_config(true), Some(&[3.0, 3.0]), true);
    assert!(largest_difference(&other[2]["next"], &plain[2]["next"]) > 1e-2);
}

#[test]
fn a_step_asks_for_what_its_sampler_needs() {
    let names = |config: &DenoiseConfig| -> Vec<String> {
        let graph = config.build().unwrap();
        graph.inputs().iter().map(|&id| graph.value(id).name.clone()).collect()
    };
    let base = denoise_config(false);
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

fn optimised(graph: &Graph) -> Graph {
    passes::optimise_traced(graph, &CpuTarget::default(), Some(&ReferenceEvaluator)).unwrap().0
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
    let phases = after.phases();
    let step: Vec<_> = after.nodes().iter().filter(|n| phases[n.outputs[0].index()] == Phase::Step).collect();
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
fn a_configuration_is_read_as_diffusers_writes_it() {
    let uneven = config("uneven");
    assert_eq!(uneven.layers_per_block, PerBlock::Each(vec![2, 1, 1]));
    assert_eq!(
        uneven.transformer_layers_per_block,
        PerBlock::Each(vec![PerBlock::All(1), PerBlock::All(2), PerBlock::Each(vec![1, 2])])
    );
    assert_eq!(uneven.context_channels().unwrap(), 40);
    assert_eq!(UnetConfig::from_json("{}").unwrap(), UnetConfig::svd_xt());
    let more = r#"{"_class_name": "UNetSpatioTemporalConditionModel", "sample_size": 96, "num_frames": 14}"#;
    assert_eq!(UnetConfig::from_json(more).unwrap(), UnetConfig::svd());
}

#[test]
fn a_configuration_that_cannot_be_built_is_refused_by_name() {
    for (json, part) in [
        ("[", "cannot be read"),
        (r#"{"in_channels": "many"}"#, "cannot be read"),
        (r#"{"layers_per_block": {}}"#, "a number or a list of numbers"),
        (r#"{"_class_name": "UNet2DConditionModel"}"#, "UNet2DConditionModel"),
        (r#"{"block_out_channels": []}"#, "block_out_channels is empty"),
        (r#"{"block_out_channels": [320, 640]}"#, "down_block_types has 4 entries"),
        (r#"{"block_out_channels": [320, 640, 1280, 1290]}"#, "is 1290 for block 3"),
        (r#"{"block_out_channels": [320, 640, 1280, 0]}"#, "is 0 for block 3"),
        (r#"{"block_out_channels": [320, 640, 1280, 18446744073709551584]}"#, "at most 65536"),
        (r#"{"up_block_types": ["UpBlockSpatioTemporal"]}"#, "up_block_types has 1 entries"),
        (r#"{"num_attention_heads": [5, 10, 20]}"#, "num_attention_heads has 3 entries"),
        (r#"{"num_attention_heads": 7}"#, "num_attention_heads is 7 for block 0"),
        (r#"{"num_attention_heads": 0}"#, "num_attention_heads is 0"),
        (r#"{"cross_attention_dim": [1, 2, 1, 1]}"#, "they must be equal"),
        (r#"{"cross_attention_dim": 0}"#, "cross_attention_dim is 0"),
        (r#"{"layers_per_block": 0}"#, "layers_per_block is 0 for block 0"),
        (r#"{"layers_per_block": 1000000000000}"#, "layers_per_block is 1000000000000"),
        (r#"{"transformer_layers_per_block": [1, 1, [1, 1], 1]}"#, "is missing for layer 2 of block 2"),
        (r#"{"transformer_layers_per_block": 0}"#, "transformer_layers_per_block is 0"),
        (r#"{"projection_class_embeddings_input_dim": 700}"#, "multiple of addition_time_embed_dim, 256"),
        (r#"{"addition_time_embed_dim": 0}"#, "addition_time_embed_dim"),
        (r#"{"in_channels": 0}"#, "in_channels is 0"),
        ("[]", "not a JSON object"),
    ] {
        let message = UnetConfig::from_json(json).unwrap_err().to_string();
        assert!(message.contains(part), "{json}: {message}");
    }
    let blocks = r#"{"down_block_types": ["DownBlock3D", "DownBlock3D", "DownBlock3D", "DownBlock3D"]}"#;
    assert!(UnetConfig::from_json(blocks).unwrap_err().to_string().contains("\"DownBlock3D\""));
}

#[test]
fn a_step_that_cannot_be_built_is_refused_by_name() {
    let base = denoise_config(true);
    let narrow = UnetConfig { in_channels: 4, ..base.unet.clone() };
    for (config, part) in [
        (DenoiseConfig { frames: 0, ..base.clone() }, "frames is 0"),
        (DenoiseConfig { frames: usize::MAX, ..base.clone() }, "frames is"),
        (DenoiseConfig { height: 0, ..base.clone() }, "height is 0"),
        (DenoiseConfig { width: usize::MAX, ..base.clone() }, "width is"),
        (DenoiseConfig { steps: 0, ..base.clone() }, "steps is 0"),
        (DenoiseConfig { unet: narrow, ..base.clone() }, "in_channels is 4"),
        (DenoiseConfig { dtype: DType::I32, ..base.clone() }, "time_embedding"),
    ] {
        let message = config.build().unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}
