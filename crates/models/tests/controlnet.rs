//! ControlNet and the UNet that it steers against diffusers (`golden/make_controlnet.py`).
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Tensor, TensorType};
use kinora_models::networks::{
    controlnet::{ControlNetConfig, condition, controlnet},
    unet2d::{AddedConditions, TimeInputs, Unet2dConfig, Unet2dInputs, time_embedding, unet2d, unet2d_with},
};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::Value;
use support::{
    fixtures::Fixture,
    networks::{Way, assert_close, given, inputs, largest_difference, run, with_output},
};

#[derive(Deserialize)]
struct Case {
    name: String,
    unet: Value,
    control: Value,
    /// Images, height and width.
    sample: [usize; 3],
    scale: f32,
    tokens: usize,
    time_ids: Option<Vec<Vec<f32>>>,
    parameters: u64,
}

impl Case {
    fn unet(&self) -> Unet2dConfig {
        Unet2dConfig::from_json(&self.unet.to_string()).unwrap()
    }

    fn control(&self) -> ControlNetConfig {
        ControlNetConfig::from_json(&self.control.to_string()).unwrap()
    }

    fn graph(&self) -> Graph {
        let (unet, control, dtype) = (self.unet(), self.control(), DType::F32);
        let [images, height, width] = self.sample;
        let mut g = GraphBuilder::new("controlnet");
        let mut input =
            |name: &str, shape: &[usize]| g.input(name, TensorType::new(dtype, shape), Phase::Step).unwrap();
        let sample = input("sample", &[images, height, width, unet.in_channels]);
        let context = input("context", &[images, self.tokens, unet.context_channels().unwrap()]);
        let timesteps = input("timesteps", &[1]);
        let scale = input("scale", &[1]);
        let factor = control.pixels_per_latent();
        let picture = input("picture", &[1, factor * height, factor * width, control.conditioning_channels]);
        let added = unet.pooled_channels(6).unwrap().map(|channels| AddedConditions {
            text: input("text", &[images, channels]),
            time_ids: input("time_ids", &[images, 6]),
        });
        let time = TimeInputs { timesteps, guidance: None, added };
        let residuals = g.scope("controlnet", |g| {
            let time = time_embedding(g, &control.unet, dtype, &time).unwrap();
            let condition = condition(g, &control, dtype, picture).unwrap();
            controlnet(g, &control, dtype, &Unet2dInputs { sample, time, context }, (condition, scale))
                .unwrap()
        });
        let prediction = g.scope("unet", |g| {
            let time = time_embedding(g, &unet, dtype, &time).unwrap();
            unet2d_with(g, &unet, dtype, &Unet2dInputs { sample, time, context }, Some(&residuals), None)
                .unwrap()
        });
        g.output("prediction", prediction).unwrap();
        g.finish()
    }

    fn known(&self) -> Tensors {
        let one = |value: f32| Tensor::from_slice([1], &[value]).unwrap();
        let (control, [_, height, width]) = (self.control(), self.sample);
        let factor = control.pixels_per_latent();
        let shape = [1, factor * height, factor * width, control.conditioning_channels];
        let picture = given(&self.name, "picture", &TensorType::new(DType::F32, shape), 0.5).to_f32();
        let picture: Vec<f32> = picture.into_iter().map(|number| number + 0.5).collect();
        let mut known = Tensors::from([
            ("timesteps".to_owned(), one(499.0)),
            ("scale".to_owned(), one(self.scale)),
            ("picture".to_owned(), Tensor::from_slice(shape, &picture).unwrap()),
        ]);
        if let Some(rows) = &self.time_ids {
            known.insert("time_ids".to_owned(), Tensor::from_slice([rows.len(), 6], &rows.concat()).unwrap());
        }
        known
    }
}

#[test]
fn steered_networks_are_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("controlnet");
    assert_eq!(fixture.cases.len(), 4);
    for case in &fixture.cases {
        let name = &case.name;
        let mut graph = case.graph();
        assert_eq!(graph.parameter_count(), case.parameters, "{name}");
        let down =
            graph.nodes().iter().filter(|node| node.name.starts_with("controlnet.controlnet_down_blocks."));
        let last = down.filter(|node| node.name.ends_with(".scaled")).count() - 1;
        let nodes = [
            ("first", "controlnet_down_blocks.0".to_owned()),
            ("last", format!("controlnet_down_blocks.{last}")),
        ];
        let nodes = nodes.into_iter().chain([("mid", "controlnet_mid_block".to_owned())]);
        let nodes: Vec<_> =
            nodes.map(|(result, node)| (result, format!("controlnet.{node}.scaled"))).collect();
        for (_, node) in &nodes {
            graph = with_output(&graph, node);
        }
        for way in Way::FAST {
            let got = run(&graph, &inputs(&graph, name, case.known()), way);
            let all = nodes.iter().map(|(result, node)| (*result, node.as_str()));
            for (result, node) in all.chain([("prediction", "prediction")]) {
                let label = format!("{name} {result}, {way:?}");
                assert_close(&label, fixture.expected(name, result), &got[node], 2e-5);
            }
        }
    }
}

#[test]
fn a_scale_of_zero_leaves_the_network_alone() {
    let fixture: Fixture<Case> = Fixture::load("controlnet");
    let case = &fixture.cases[2];
    let graph = case.graph();
    let mut known = case.known();
    known.insert("scale".to_owned(), Tensor::from_slice([1], &[0.0f32]).unwrap());
    let steered = run(&graph, &inputs(&graph, &case.name, known.clone()), Way::Optimised);
    let (unet, mut g) = (case.unet(), GraphBuilder::new("unet"));
    let [images, height, width] = case.sample;
    let mut input =
        |name: &str, shape: &[usize]| g.input(name, TensorType::new(DType::F32, shape), Phase::Step).unwrap();
    let sample = input("sample", &[images, height, width, 4]);
    let context = input("context", &[images, case.tokens, unet.context_channels().unwrap()]);
    let timesteps = input("timesteps", &[1]);
    let prediction = g.scope("unet", |g| {
        let time = TimeInputs { timesteps, guidance: None, added: None };
        let time = time_embedding(g, &unet, DType::F32, &time).unwrap();
        unet2d(g, &unet, DType::F32, &Unet2dInputs { sample, time, context }).unwrap()
    });
    g.output("prediction", prediction).unwrap();
    let graph = g.finish();
    known.retain(|name, _| name == "timesteps");
    let alone = run(&graph, &inputs(&graph, &case.name, known), Way::Optimised);
    assert!(largest_difference(&alone["prediction"], &steered["prediction"]) <= 1e-6);
    assert!(largest_difference(fixture.expected(&case.name, "prediction"), &alone["prediction"]) > 0.01);
}

#[test]
fn a_controlnet_of_another_width_is_refused() {
    let fixture: Fixture<Case> = Fixture::load("controlnet");
    let [small, large] = [&fixture.cases[2], &fixture.cases[0]];
    let mixed = |unet: &Case, control: &Case| {
        let (unet, control, dtype) = (unet.unet(), control.control(), DType::F32);
        let mut g = GraphBuilder::new("mixed");
        let mut input =
            |name: &str, shape: &[usize]| g.input(name, TensorType::new(dtype, shape), Phase::Step).unwrap();
        let sample = input("sample", &[1, 8, 8, 4]);
        let context = input("context", &[1, 4, 24]);
        let timesteps = input("timesteps", &[1]);
        let scale = input("scale", &[1]);
        let factor = control.pixels_per_latent();
        let picture = input("picture", &[1, factor * 8, factor * 8, control.conditioning_channels]);
        let time = TimeInputs { timesteps, guidance: None, added: None };
        let residuals = g.scope("controlnet", |g| {
            let time = time_embedding(g, &control.unet, dtype, &time)?;
            let condition = condition(g, &control, dtype, picture)?;
            controlnet(g, &control, dtype, &Unet2dInputs { sample, time, context }, (condition, scale))
        });
        let time = time_embedding(&mut g, &unet, dtype, &time).unwrap();
        let inputs = Unet2dInputs { sample, time, context };
        unet2d_with(&mut g, &unet, dtype, &inputs, Some(&residuals.unwrap()), None).unwrap_err().to_string()
    };
    let error = mixed(large, small);
    assert!(error.contains("the ControlNet adds to 4 skips, and they must agree"), "{error}");
    let mut wider = fixture.cases[2].unet.clone();
    wider["block_out_channels"] = serde_json::json!([64, 64]);
    let wider = Case {
        unet: wider,
        name: String::new(),
        control: Value::Null,
        sample: [1, 8, 8],
        scale: 1.0,
        tokens: 4,
        time_ids: None,
        parameters: 0,
    };
    let error = mixed(&wider, small);
    assert!(error.contains("down_residuals.0"), "{error}");
}
