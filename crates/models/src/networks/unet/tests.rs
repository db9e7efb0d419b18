//! The parts of the network alone, against diffusers; the whole is in `tests/unet.rs`.

#[path = "../../../tests/support/networks.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the integration tests; what fails there fails the test"
)]
mod networks;

use kinora_cpu::Tensors;
use kinora_graph::{DType, GraphBuilder, GraphError, Phase, Tensor, TensorType, ValueId, op::Activation};

use super::{
    Conditions, Layers, PerBlock, UnetConfig,
    blocks::{down_block, mid_block, up_block},
    transformer::transformer,
};
use crate::networks::resnet::{Resnet, Weighs, spatio_temporal_resnet};
use networks::{Way, assert_close, given, run, tensors};

/// As in the script that made the fixtures.
const BATCH: usize = 2;
const FRAMES: usize = 2;
const HEIGHT: usize = 3;
const WIDTH: usize = 4;
const CHANNELS: usize = 32;
const TIME: usize = 48;
const CONTEXT: usize = 24;

/// A graph of one part, and its inputs.
struct Part {
    g: GraphBuilder,
    inputs: Tensors,
    conditions: Conditions,
}

impl Part {
    fn new() -> Part {
        let mut g = GraphBuilder::new("part");
        let mut inputs = Tensors::new();
        let time = given(DType::F32, "part.time", &[BATCH, TIME], 1.0);
        let rows: Vec<f32> =
            time.to_f32().chunks(TIME).flat_map(|row| [row; FRAMES]).flatten().copied().collect();
        inputs.insert("time".into(), Tensor::from_slice([BATCH * FRAMES, TIME], &rows).unwrap());
        inputs.insert("context".into(), given(DType::F32, "part.context", &[BATCH, 1, CONTEXT], 1.0));
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let time = g.input("time", ty(&[BATCH * FRAMES, TIME]), Phase::Step).unwrap();
        let time = g.activate("time_act", time, Activation::Silu).unwrap();
        let context = g.input("context", ty(&[BATCH, 1, CONTEXT]), Phase::Clip).unwrap();
        let numbers = Tensor::from_slice([FRAMES], &[0.0f32, 1.0]).unwrap();
        let frame_numbers = g.constant("frame_numbers", numbers).unwrap();
        Part { g, inputs, conditions: Conditions { time, context, frames: FRAMES, frame_numbers } }
    }

    /// Images, as small as the script makes them.
    fn images(&mut self, name: &str, channels: usize) -> ValueId {
        let shape = [BATCH * FRAMES, HEIGHT, WIDTH, channels];
        self.inputs.insert(name.into(), given(DType::F32, name, &shape, 1.0 / 64.0));
        self.g.input(name, TensorType::new(DType::F32, shape), Phase::Step).unwrap()
    }

    /// Builds under a scope, names the results, and compares every one of them.
    fn check(
        self,
        name: &str,
        build: impl FnOnce(&mut Layers<'_>, &Conditions) -> Result<Vec<(String, ValueId)>, GraphError>,
    ) {
        let Part { mut g, inputs, conditions } = self;
        let l = &mut Layers { g: &mut g, dtype: DType::F32 };
        let results = l.scope(name, |l| build(l, &conditions)).unwrap();
        for (name, value) in &results {
            g.output(name, *value).unwrap();
        }
        let graph = g.finish();
        let expected = tensors("unet", "results.safetensors");
        // Seen: 6e-6, and by the reference, which rounds once an op, 2e-6.
        for (way, bar) in [(Way::Optimised, 2e-5), (Way::AsBuilt, 2e-5), (Way::Reference, 4e-6)] {
            let got = run(&graph, &inputs, way);
            for (name, _) in &results {
                assert_close(&format!("{name}, {way:?}"), &expected[name], &got[name], bar);
            }
        }
    }
}

/// A configuration of as many levels as there are widths.
fn config(down: &[&str], up: &[&str], channels: &[usize], layers: &[usize]) -> UnetConfig {
    let names = |kinds: &[&str]| kinds.iter().map(|kind| format!("{kind}SpatioTemporal")).collect();
    UnetConfig {
        down_block_types: names(down),
        up_block_types: names(up),
        block_out_channels: channels.to_vec(),
        layers_per_block: PerBlock::Each(layers.to_vec()),
        num_attention_heads: PerBlock::All(2),
        ..UnetConfig::default()
    }
}

fn with_skips(name: &str, x: ValueId, skips: &[ValueId]) -> Vec<(String, ValueId)> {
    let skips = skips.iter().enumerate().map(|(i, &skip)| (format!("{name}.skip{i}"), skip));
    std::iter::once((name.to_owned(), x)).chain(skips).collect()
}

#[test]
fn the_residual_block_is_diffusers() {
    let mut part = Part::new();
    let x = part.images("resnet.x", CHANNELS);
    part.check("resnet", |l, c| {
        let resnet = Resnet { out: 64, epsilon: 1e-6, time: Some(c.time) };
        let y = spatio_temporal_resnet(l, x, &resnet, 1e-6, c.frames, Weighs::Spatial)?;
        Ok(vec![("resnet".into(), y)])
    });
}

#[test]
fn the_transformer_is_diffusers() {
    let mut part = Part::new();
    let x = part.images("transformer.x", CHANNELS);
    part.check("transformer", |l, c| Ok(vec![("transformer".into(), transformer(l, x, 4, 2, c)?)]));
}

#[test]
fn the_down_blocks_are_diffusers() {
    let config = config(&["CrossAttnDownBlock", "DownBlock"], &[], &[64, CHANNELS], &[1, 2]);
    for (name, level, halves) in [("cross_down", 0, true), ("down", 1, false)] {
        let block = config.down_block(level).unwrap();
        let mut part = Part::new();
        let x = part.images(&format!("{name}.x"), CHANNELS);
        part.check(name, |l, c| {
            let mut skips = Vec::new();
            let y = down_block(l, x, &block, c, halves, &mut skips)?;
            Ok(with_skips(name, y, &skips))
        });
    }
}

#[test]
fn the_middle_block_is_diffusers() {
    let mut part = Part::new();
    let x = part.images("mid.x", CHANNELS);
    let block = config(&[], &[], &[64, CHANNELS], &[2, 2]).mid_block().unwrap();
    part.check("mid", |l, c| Ok(vec![("mid".into(), mid_block(l, x, &block, c)?)]));
}

#[test]
fn the_up_blocks_are_diffusers() {
    for (name, kind) in [("cross_up", "CrossAttnUpBlock"), ("up", "UpBlock")] {
        let block = config(&[], &[kind], &[CHANNELS], &[1]).up_block(0).unwrap();
        let mut part = Part::new();
        let x = part.images(&format!("{name}.x"), 64);
        let above = TensorType::new(DType::F32, [BATCH * FRAMES, 2 * HEIGHT - 1, 2 * WIDTH, CHANNELS]);
        part.inputs.insert("above".into(), Tensor::zeros(above.clone()));
        let mut skips = vec![part.g.input("above", above, Phase::Step).unwrap()];
        skips.extend([0, 1].map(|i| part.images(&format!("{name}.skip{i}"), CHANNELS)));
        part.check(name, |l, c| {
            let y = up_block(l, x, &block, c, true, &mut skips)?;
            assert_eq!(skips.len(), 1, "the skip above is left for the next block");
            Ok(vec![(name.into(), y)])
        });
    }
}
