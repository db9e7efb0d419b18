//! Memory of past frames against diffusers' UNet with self-attention in plain PyTorch (`golden/make_memory.py`).
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Tensor, TensorType};
use kinora_models::networks::{
    memory::{FRESH, Memory, rings},
    unet2d::{TimeInputs, Unet2dConfig, Unet2dInputs, time_embedding, unet2d_with},
};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::Value;
use support::{
    fixtures::Fixture,
    networks::{Way, assert_close, given, inputs, largest_difference, run},
};

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Value,
    /// How many frames are remembered.
    memory: usize,
    /// Images, height and width.
    sample: [usize; 3],
    tokens: usize,
    timestep: f32,
    frames: usize,
}

impl Case {
    fn graph(&self, memory: usize, dtype: DType) -> Graph {
        let config = Unet2dConfig::from_json(&self.config.to_string()).unwrap();
        let mut builder = GraphBuilder::new("memory");
        let g = &mut builder;
        let [images, height, width] = self.sample;
        let mut input = |name: &str, dtype, shape: &[usize], phase| {
            g.input(name, TensorType::new(dtype, shape), phase).unwrap()
        };
        let sample = input("sample", dtype, &[images, height, width, config.in_channels], Phase::Step);
        let channels = config.context_channels().unwrap();
        let context = input("context", dtype, &[images, self.tokens, channels], Phase::Clip);
        let timesteps = input("timesteps", DType::F32, &[images], Phase::Clip);
        let memory = (memory > 0).then(|| {
            let fresh = input(FRESH, DType::F32, &[1], Phase::Step);
            Memory { frames: memory, step: 0, fresh }
        });
        let times = TimeInputs { timesteps, guidance: None, added: None };
        let time = time_embedding(g, &config, dtype, &times).unwrap();
        let inputs = Unet2dInputs { sample, time, context };
        let prediction = unet2d_with(g, &config, dtype, &inputs, None, memory).unwrap();
        g.output("prediction", prediction).unwrap();
        builder.finish()
    }

    /// The predictions of all frames. Before the first the rings hold what must not be read: it is not 0.
    fn predictions(&self, memory: usize, dtype: DType, way: Way) -> Vec<Tensor> {
        let graph = self.graph(memory, dtype);
        let number = |value: f32| Tensor::from_slice([1], &[value]).unwrap();
        let timesteps = vec![self.timestep; self.sample[0]];
        let timesteps = Tensor::from_slice([timesteps.len()], &timesteps).unwrap();
        let sample = graph.inputs().iter().map(|&id| graph.value(id)).find(|value| value.name == "sample");
        let mut state = Tensors::new();
        let frames = (0..self.frames).map(|i| {
            let mut known = state.clone();
            known.insert("timesteps".to_owned(), timesteps.clone());
            known.insert(
                "sample".to_owned(),
                given(&self.name, &format!("sample {i}"), &sample.unwrap().ty, 1.0),
            );
            if memory > 0 {
                known.insert(FRESH.to_owned(), number(if i == 0 { 1.0 } else { 0.0 }));
            }
            let mut got = run(&graph, &inputs(&graph, &self.name, known), way);
            for ring in rings(&graph) {
                state.insert(ring.name.clone(), got.remove(&ring.name).unwrap());
            }
            got.remove("prediction").unwrap()
        });
        frames.collect()
    }
}

#[test]
fn frames_that_remember_are_those_of_pytorch() {
    let fixture: Fixture<Case> = Fixture::load("memory");
    assert_eq!(fixture.cases.iter().map(|case| case.memory).collect::<Vec<_>>(), [1, 2]);
    for case in &fixture.cases {
        // A down block, the middle and the two layers of an up block, with keys and values each.
        let blocks = if case.name == "two" { 7 } else { 4 };
        assert_eq!(rings(&case.graph(case.memory, DType::F32)).count(), 2 * blocks, "{}", case.name);
        for way in Way::ALL {
            for (i, got) in case.predictions(case.memory, DType::F32, way).iter().enumerate() {
                let expected = fixture.expected(&case.name, &format!("prediction {i}"));
                assert_close(&format!("{} {i}, {way:?}", case.name), expected, got, 1e-5);
            }
        }
    }
}

#[test]
fn the_first_frame_is_that_of_a_network_without_memory_and_no_other_is() {
    let fixture: Fixture<Case> = Fixture::load("memory");
    for case in &fixture.cases {
        let alone = case.predictions(0, DType::F32, Way::Optimised);
        let expected = fixture.expected(&case.name, "prediction 0");
        assert_close(&format!("{} without", case.name), expected, &alone[0], 1e-5);
        for (i, alone) in alone.iter().enumerate().skip(1) {
            let expected = fixture.expected(&case.name, &format!("prediction {i}"));
            let off = largest_difference(expected, alone);
            assert!(off > 1e-3, "{} {i}: {off}", case.name);
        }
    }
}

#[test]
fn narrow_types_remember_in_their_own_type() {
    let fixture: Fixture<Case> = Fixture::load("memory");
    for case in &fixture.cases {
        let graph = case.graph(case.memory, DType::F16);
        assert!(rings(&graph).all(|ring| ring.ty.dtype == DType::F16));
        let got = case.predictions(case.memory, DType::F16, Way::Optimised);
        for (i, got) in got.iter().enumerate() {
            let expected = fixture.expected(&case.name, &format!("prediction {i}"));
            assert_close(&format!("{} {i}, f16", case.name), expected, got, 1.8e-2);
        }
    }
}
