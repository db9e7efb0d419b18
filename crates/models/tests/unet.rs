//! The UNet against diffusers, and its configuration.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Tensor, TensorType};
use kinora_models::networks::unet::{PerBlock, UnetConfig, UnetInputs, time_embedding, unet};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::Value;
use support::{
    fixtures::Fixture,
    networks::{Way, assert_close, inputs, run},
};

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Value,
    /// Clips, frames, height and width.
    sample: [usize; 4],
    timesteps: Vec<f32>,
    added_time_ids: Vec<Vec<f32>>,
    parameters: u64,
}

impl Case {
    fn config(&self) -> UnetConfig {
        UnetConfig::from_json(&self.config.to_string()).unwrap()
    }

    /// The network alone, with the prediction and the time embedding as results.
    fn graph(&self, dtype: DType) -> Graph {
        let mut g = GraphBuilder::new("unet");
        let config = &self.config();
        let [batch, frames, height, width] = self.sample;
        let f32_type = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let images = batch * frames;
        let sample = TensorType::new(dtype, [images, height, width, config.in_channels]);
        let sample = g.input("sample", sample, Phase::Step).unwrap();
        let context = TensorType::new(dtype, [batch, 1, config.context_channels().unwrap()]);
        let context = g.input("context", context, Phase::Clip).unwrap();
        let timesteps = g.input("timesteps", f32_type(&[batch]), Phase::Step).unwrap();
        let ids = f32_type(&[batch, config.added_time_ids().unwrap()]);
        let ids = g.input("added_time_ids", ids, Phase::Clip).unwrap();
        let time = time_embedding(&mut g, config, dtype, timesteps, ids).unwrap();
        g.output("time", time).unwrap();
        // A row an image, as diffusers repeats them.
        let rows: Vec<i32> = (0..images).map(|image| (image / frames) as i32).collect();
        let rows = g.constant("rows", Tensor::from_slice([images], &rows).unwrap()).unwrap();
        let time = g.embedding("time_rows", time, rows).unwrap();
        let prediction = unet(&mut g, config, dtype, &UnetInputs { sample, time, context, frames }).unwrap();
        g.output("prediction", prediction).unwrap();
        g.finish()
    }

    fn run(&self, graph: &Graph, way: Way) -> Tensors {
        let (batch, ids) = (self.sample[0], self.added_time_ids.concat());
        let known = Tensors::from([
            ("timesteps".to_owned(), Tensor::from_slice([batch], &self.timesteps).unwrap()),
            ("added_time_ids".to_owned(), Tensor::from_slice([batch, ids.len() / batch], &ids).unwrap()),
        ]);
        run(graph, &inputs(graph, &self.name, known), way)
    }
}

#[test]
fn networks_of_three_shapes_are_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("unet");
    assert_eq!(fixture.cases.len(), 3);
    for case in &fixture.cases {
        let name = &case.name;
        let graph = case.graph(DType::F32);
        assert_eq!(graph.parameter_count(), case.parameters, "{name}");
        // Seen: 4e-6, and by the reference, which rounds once an op, 4e-7.
        let mut ways = vec![(Way::Optimised, 1e-5), (Way::AsBuilt, 1e-5)];
        if name == "smallest" {
            ways.push((Way::Reference, 8e-7));
        }
        for (way, bar) in ways {
            let got = case.run(&graph, way);
            for (result, bar) in [("prediction", bar), ("time", 2e-6)] {
                let label = format!("{name} {result}, {way:?}");
                assert_close(&label, fixture.expected(name, result), &got[result], bar);
            }
        }
    }
}

/// f16 keeps 11 bits and bf16 8, so that one rounding is off by up to 5e-4 and 4e-3 of a number. Dozens of layers round
/// weights and activations one after the other, and their errors add up like the steps of a random walk: the worst of a
/// few thousand elements of order 1 was seen 8e-3 and 6e-2 off. The bars are twice that.
#[test]
fn narrow_types_stay_near() {
    let fixture: Fixture<Case> = Fixture::load("unet");
    for case in &fixture.cases {
        for (dtype, bar) in [(DType::F16, 1.6e-2), (DType::BF16, 1.2e-1)] {
            let got = case.run(&case.graph(dtype), Way::Optimised);
            let expected = fixture.expected(&case.name, "prediction");
            assert_close(&format!("{}, {dtype}", case.name), expected, &got["prediction"], bar);
        }
    }
}

#[test]
fn a_configuration_is_read_as_diffusers_writes_it() {
    let fixture: Fixture<Case> = Fixture::load("unet");
    let uneven = fixture.cases.iter().find(|case| case.name == "uneven").unwrap().config();
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
        (r#"{"layers_per_block": {}}"#, "a whole number, at least 0, or a list"),
        (r#"{"_class_name": "UNet2DConditionModel"}"#, "UNet2DConditionModel"),
        (r#"{"block_out_channels": []}"#, "block_out_channels is a list of 0"),
        (r#"{"block_out_channels": [320, 640]}"#, "down_block_types is a list of 4"),
        (r#"{"block_out_channels": [320, 640, 1280, 1290]}"#, "is 1290 for block 3"),
        (r#"{"block_out_channels": [320, 640, 1280, 0]}"#, "is 0 for block 3"),
        (r#"{"block_out_channels": [320, 640, 1280, 18446744073709551584]}"#, "to 65536"),
        (r#"{"up_block_types": ["UpBlockSpatioTemporal"]}"#, "up_block_types is a list of 1"),
        (r#"{"num_attention_heads": [5, 10, 20]}"#, "num_attention_heads is a list of 3"),
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
        (r#"{"num_frames": 0}"#, "num_frames is 0, but it must be from 1"),
        (r#"{"layers_per_block": 60, "transformer_layers_per_block": 60}"#, "at most 256"),
        ("[]", "must be a JSON object"),
    ] {
        let message = UnetConfig::from_json(json).unwrap_err().to_string();
        assert!(message.contains(part), "{json}: {message}");
    }
    let blocks = r#"{"down_block_types": ["DownBlock3D", "DownBlock3D", "DownBlock3D", "DownBlock3D"]}"#;
    assert!(
        UnetConfig::from_json(blocks)
            .unwrap_err()
            .to_string()
            .contains("down_block_types is DownBlock3D, but only")
    );
}
