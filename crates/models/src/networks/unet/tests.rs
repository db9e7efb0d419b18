//! The blocks of the network alone, against diffusers; the whole is in `tests/unet.rs`.

#[path = "../../../tests/support/mod.rs"]
mod support;

use kinora_graph::{DType, GraphBuilder, GraphError, Phase, Tensor, TensorType, ValueId, op::Activation};
use kinora_runtime::Tensors;

use super::{Conditions, Layers, PerBlock, UnetConfig, transformer::transformer};
use crate::networks::unet_blocks::{BlockLayers, down_block, mid_block, up_block};
use support::{
    fixtures,
    networks::{Way, assert_close, given, run},
};

/// As in the script that made the fixtures.
const BATCH: usize = 2;
const FRAMES: usize = 2;
const HEIGHT: usize = 3;
const WIDTH: usize = 4;
const CHANNELS: usize = 32;
const TIME: usize = 48;
const CONTEXT: usize = 24;

/// A graph of one block, and its inputs.
struct Part {
    name: &'static str,
    g: GraphBuilder,
    inputs: Tensors,
    conditions: Conditions,
}

fn f32_type(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

impl Part {
    fn new(name: &'static str) -> Part {
        let mut g = GraphBuilder::new("part");
        let mut inputs = Tensors::new();
        let time = given(name, "time", &f32_type(&[BATCH, TIME]), 1.0);
        let rows: Vec<f32> =
            time.to_f32().chunks(TIME).flat_map(|row| [row; FRAMES]).flatten().copied().collect();
        inputs.insert("time".into(), Tensor::from_slice([BATCH * FRAMES, TIME], &rows).unwrap());
        let time = g.input("time", f32_type(&[BATCH * FRAMES, TIME]), Phase::Step).unwrap();
        let time = g.activate("time_act", time, Activation::Silu).unwrap();
        let context = f32_type(&[BATCH, 1, CONTEXT]);
        inputs.insert("context".into(), given(name, "context", &context, 1.0));
        let context = g.input("context", context, Phase::Clip).unwrap();
        let numbers = Tensor::from_slice([FRAMES], &[0.0f32, 1.0]).unwrap();
        let frame_numbers = g.constant("frame_numbers", numbers).unwrap();
        Part { name, g, inputs, conditions: Conditions { time, context, frames: FRAMES, frame_numbers } }
    }

    /// Images, as small as the script makes them.
    fn images(&mut self, name: &str, channels: usize) -> ValueId {
        let ty = f32_type(&[BATCH * FRAMES, HEIGHT, WIDTH, channels]);
        self.inputs.insert(name.into(), given(self.name, name, &ty, 1.0 / 64.0));
        self.g.input(name, ty, Phase::Step).unwrap()
    }

    /// Builds the block, and compares its result and its skips.
    fn check(
        self,
        build: impl FnOnce(&mut Layers<'_>, &Conditions, &mut Vec<ValueId>) -> Result<ValueId, GraphError>,
    ) {
        let Part { name, mut g, inputs, conditions } = self;
        let l = &mut Layers { g: &mut g, dtype: DType::F32 };
        let mut skips = Vec::new();
        let y = l.scope(name, |l| build(l, &conditions, &mut skips)).unwrap();
        let skips = skips.into_iter().enumerate().map(|(i, skip)| (format!("skip{i}"), skip));
        let results: Vec<(String, ValueId)> = std::iter::once(("y".to_owned(), y)).chain(skips).collect();
        for (result, value) in &results {
            g.output(result, *value).unwrap();
        }
        let graph = g.finish();
        let expected = fixtures::results("unet");
        // Seen: 8e-6, and by the reference, which rounds once an op, 1.4e-6.
        for (way, bar) in [(Way::Optimised, 2e-5), (Way::AsBuilt, 2e-5), (Way::Reference, 4e-6)] {
            let got = run(&graph, &inputs, way);
            for (result, _) in &results {
                let result_name = format!("{name}/{result}");
                assert_close(&format!("{result_name}, {way:?}"), &expected[&result_name], &got[result], bar);
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

#[test]
fn the_residual_block_is_diffusers() {
    let mut part = Part::new("resnet");
    let x = part.images("x", CHANNELS);
    part.check(|l, c, _| c.resnet(l, x, 64, 1e-6));
}

#[test]
fn the_transformer_is_diffusers() {
    let mut part = Part::new("transformer");
    let x = part.images("x", CHANNELS);
    part.check(|l, c, _| transformer(l, x, 4, 2, c));
}

#[test]
fn the_down_blocks_are_diffusers() {
    let config = config(&["CrossAttnDownBlock", "DownBlock"], &[], &[64, CHANNELS], &[1, 2]);
    for (name, level, halves) in [("cross_down", 0, true), ("down", 1, false)] {
        let block = config.down_block(level).unwrap();
        let mut part = Part::new(name);
        let x = part.images("x", CHANNELS);
        part.check(|l, c, skips| down_block(l, x, &block, block.layers, c, halves, skips));
    }
}

#[test]
fn the_middle_block_is_diffusers() {
    let block = config(&[], &[], &[64, CHANNELS], &[2, 2]).mid_block().unwrap();
    let mut part = Part::new("mid");
    let x = part.images("x", CHANNELS);
    part.check(|l, c, _| mid_block(l, x, &block, c));
}

#[test]
fn the_up_blocks_are_diffusers() {
    for (name, kind) in [("cross_up", "CrossAttnUpBlock"), ("up", "UpBlock")] {
        let block = config(&[], &[kind], &[CHANNELS], &[1]).up_block(0).unwrap();
        let mut part = Part::new(name);
        let x = part.images("x", 64);
        let above = f32_type(&[BATCH * FRAMES, 2 * HEIGHT - 1, 2 * WIDTH, CHANNELS]);
        part.inputs.insert("above".into(), Tensor::zeros(above.clone()));
        let mut skips = vec![part.g.input("above", above, Phase::Step).unwrap()];
        skips.extend(["skip0", "skip1"].map(|name| part.images(name, CHANNELS)));
        part.check(|l, c, _| {
            let y = up_block(l, x, &block, 0..block.layers, c, true, &mut skips)?;
            assert_eq!(skips.len(), 1, "the skip above is left for the next block");
            Ok(y)
        });
    }
}
