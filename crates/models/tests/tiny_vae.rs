//! The tiny autoencoder against diffusers, and at full size.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_graph::{DType, Graph, Op, Tensor, TensorType};
use kinora_models::{
    networks::{
        Pixels,
        tiny_vae::{Batch, TinyVaeConfig, decoder, encoder},
    },
    synthetic::uniform,
};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::Value;
use support::{
    fixtures::Fixture,
    networks::{Way, assert_close, given, largest_difference, optimised, run, step_nodes, with_output},
};

/// f32 sums in another order than PyTorch's f64, of results of order 1: seen 3e-6 off.
const BAR: f32 = 5e-6;

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Value,
    /// Images, height and width.
    image: [usize; 3],
    latents: [usize; 3],
    /// The modules whose results are compared by themselves.
    parts: Vec<String>,
}

fn batch([images, height, width]: [usize; 3], dtype: DType, pixels: Pixels) -> Batch {
    Batch { images, height, width, dtype, pixels }
}

impl Case {
    fn config(&self) -> TinyVaeConfig {
        TinyVaeConfig::from_json(&self.config.to_string()).unwrap()
    }

    fn encoder(&self, dtype: DType, pixels: Pixels) -> Graph {
        encoder(&self.config(), &batch(self.image, dtype, pixels)).unwrap()
    }

    fn decoder(&self, dtype: DType, pixels: Pixels) -> Graph {
        decoder(&self.config(), &batch(self.latents, dtype, pixels)).unwrap()
    }

    /// Both halves, with the names of their results.
    fn halves(&self, dtype: DType) -> [(&'static str, Graph); 2] {
        [("latents", self.encoder(dtype, Pixels::Signed)), ("frames", self.decoder(dtype, Pixels::Signed))]
    }

    /// Runs on the images and on the latents that the script makes.
    fn run(&self, graph: &Graph, way: Way) -> Tensors {
        let input = graph.value(graph.inputs()[0]);
        let factor = if input.name == "latents" { 4.0 } else { 1.0 };
        run(graph, &[(input.name.clone(), given(&self.name, &input.name, &input.ty, factor))].into(), way)
    }
}

#[test]
fn latents_and_frames_are_those_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("tiny_vae");
    assert_eq!(fixture.cases.len(), 3);
    for case in &fixture.cases {
        for (result, graph) in case.halves(DType::F32) {
            let expected = fixture.expected(&case.name, result);
            for way in Way::ALL {
                let got = &case.run(&graph, way)[result];
                assert_close(&format!("{} {result}, {way:?}", case.name), expected, got, BAR);
            }
        }
    }
}

#[test]
fn every_part_is_that_of_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("tiny_vae");
    let case = fixture.cases.iter().find(|case| !case.parts.is_empty()).unwrap();
    for part in &case.parts {
        let half = usize::from(part.starts_with("decoder"));
        let graph = &case.halves(DType::F32)[half].1;
        let block = format!("{part}.fuse");
        let node = if graph.nodes().iter().any(|node| node.name == block) { &block } else { part };
        let graph = with_output(graph, node);
        let expected = fixture.expected(&case.name, part);
        for way in Way::FAST {
            assert_close(&format!("{part}, {way:?}"), expected, &case.run(&graph, way)[node], BAR);
        }
    }
}

#[test]
fn bytes_are_read_and_written_as_diffusers_does() {
    let fixture: Fixture<Case> = Fixture::load("tiny_vae");
    let cases: Vec<_> = fixture.cases.iter().filter(|case| case.config["in_channels"] == 3).collect();
    assert_eq!(cases.len(), 2);
    for case in cases {
        let [images, height, width] = case.image;
        let numbers = uniform(&format!("photo {width}×{height}")).map(|u| ((u + 1.0) * 128.0).floor() as u8);
        let photo: Vec<u8> = numbers.take(height * width * 3).collect();
        let ty = TensorType::new(DType::U8, [images, height, width, 3]);
        let image = Tensor::from_bytes(ty, &photo.repeat(images)).unwrap();
        for way in Way::FAST {
            let graph = case.encoder(DType::F32, Pixels::Bytes);
            let got = run(&graph, &[("image".to_owned(), image.clone())].into(), way);
            let expected = fixture.expected(&case.name, "latents_of_photo");
            assert_close(&format!("{} photo, {way:?}", case.name), expected, &got["latents"], BAR);

            let got = &case.run(&case.decoder(DType::F32, Pixels::Bytes), way)["frames"];
            let expected = fixture.expected(&case.name, "bytes");
            assert_eq!(expected.ty(), got.ty());
            let unequal = expected.bytes().iter().zip(got.bytes()).filter(|(e, g)| e != g).count();
            assert!(1000 * unequal <= got.bytes().len(), "{}: {unequal} bytes differ", case.name);
            assert!(largest_difference(expected, got) <= 1.0, "{}", case.name);
        }
    }
}

#[test]
fn narrow_types_stay_near() {
    let fixture: Fixture<Case> = Fixture::load("tiny_vae");
    // Weights and every activation are rounded, to 11 and to 8 bits (half an ulp is 5e-4 and 4e-3), in some thirty layers
    // whose errors add up like random ones: seen 4e-3 and 4e-2 off.
    for (dtype, bar) in [(DType::F16, 1e-2), (DType::BF16, 8e-2)] {
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
fn only_convolutions_run_between_the_edges() {
    let config = TinyVaeConfig::default();
    let count = |graph: &Graph, is: fn(&Op) -> bool| {
        step_nodes(&optimised(graph)).iter().filter(|node| is(&node.op)).count()
    };
    let encoder = encoder(&config, &batch([1, 64, 64], DType::F16, Pixels::Bytes)).unwrap();
    let decoder = decoder(&config, &batch([1, 8, 8], DType::F16, Pixels::Bytes)).unwrap();
    for (graph, convolutions) in [(&encoder, 35), (&decoder, 35)] {
        assert_eq!(count(graph, |op| matches!(op, Op::Conv(_))), convolutions);
        assert_eq!(count(graph, |op| matches!(op, Op::Add)), 0, "every residual is in its convolution");
    }
    assert_eq!(count(&encoder, |op| matches!(op, Op::Activate(_))), 0);
    assert_eq!(count(&decoder, |op| matches!(op, Op::Activate(_))), 1, "the limit of the latents");
}

#[test]
fn the_full_size_has_every_weight() {
    let config = TinyVaeConfig::default();
    let encoder = encoder(&config, &batch([1, 512, 512], DType::F16, Pixels::Bytes)).unwrap();
    let decoder = decoder(&config, &batch([1, 64, 64], DType::F16, Pixels::Bytes)).unwrap();
    // The elements of the state dict, counted with diffusers.
    assert_eq!(encoder.parameter_count() + decoder.parameter_count(), 2_445_063);
    let shape = |graph: &Graph| graph.ty(graph.outputs()[0].value).shape.to_vec();
    assert_eq!(shape(&encoder), [1, 64, 64, 4]);
    assert_eq!(shape(&decoder), [1, 512, 512, 3]);
    assert_eq!(config.pixels_per_latent(), 8);
}

#[test]
fn a_configuration_that_cannot_be_built_is_refused_by_name() {
    assert_eq!(TinyVaeConfig::from_json("{}").unwrap(), TinyVaeConfig::default());
    for (json, part) in [
        ("[]", "cannot be read"),
        (
            r#"{"_class_name": "AutoencoderKL"}"#,
            "names the class AutoencoderKL, but AutoencoderTiny is needed",
        ),
        (r#"{"act_fn": "mish"}"#, "tiny autoencoder: act_fn is mish, but only relu is known"),
        (r#"{"upsample_fn": "bilinear"}"#, "upsample_fn is bilinear, but only nearest is known"),
        (r#"{"upsampling_scaling_factor": 3}"#, "upsampling_scaling_factor is 3, but it must be 2"),
        (r#"{"num_encoder_blocks": []}"#, "num_encoder_blocks is a list of 0"),
        (r#"{"num_encoder_blocks": [1, 2]}"#, "encoder_block_out_channels is [64, 64, 64, 64], but it must"),
        (r#"{"num_encoder_blocks": [1, 2, 3, 65]}"#, "num_encoder_blocks is 65"),
        (r#"{"encoder_block_out_channels": [64, 64, 64, 32]}"#, "must have 4 equal entries"),
        (r#"{"decoder_block_out_channels": [0, 0, 0, 0]}"#, "decoder_block_out_channels is 0"),
        (
            r#"{"num_decoder_blocks": [1], "decoder_block_out_channels": [64]}"#,
            "num_decoder_blocks is a list of 1, but num_encoder_blocks has 4 entries",
        ),
        (r#"{"latent_channels": 0}"#, "latent_channels is 0"),
        (r#"{"scaling_factor": 0}"#, "scaling_factor is 0"),
    ] {
        let message = TinyVaeConfig::from_json(json).unwrap_err().to_string();
        assert!(message.contains(part), "{json}: {message}");
    }
}
