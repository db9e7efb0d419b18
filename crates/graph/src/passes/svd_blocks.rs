//! All passes together on the two blocks that SVD's UNet is made of.

use super::{Evaluate, all, optimise, optimise_traced};
use crate::{
    DType, FuseAll, FuseNothing, Graph, GraphBuilder, Node, Op, Phase, Shape, Source, TensorType, ValueId,
    op::{Activation, Attention, Conv, NormKind},
};

const CLIPS: usize = 2;
const FRAMES: usize = 3;
const IMAGES: usize = CLIPS * FRAMES;
const CHANNELS: usize = 8;
const SIDE: usize = 4;

fn f16(shape: impl Into<Shape>) -> TensorType {
    TensorType::new(DType::F16, shape)
}

fn group_norm(g: &mut GraphBuilder, name: &str, x: ValueId, frames: usize) -> ValueId {
    norm(g, name, x, NormKind::Group { groups: 2, frames })
}

fn norm(g: &mut GraphBuilder, name: &str, x: ValueId, kind: NormKind) -> ValueId {
    let scale = g.parameter(&format!("{name}.weight"), f16([CHANNELS])).unwrap();
    let shift = g.parameter(&format!("{name}.bias"), f16([CHANNELS])).unwrap();
    g.norm(name, x, kind, 1e-5, Some(scale), Some(shift)).unwrap()
}

fn conv(g: &mut GraphBuilder, name: &str, x: ValueId, op: Conv) -> ValueId {
    let [t, h, w] = op.kernel;
    let weight = g.parameter(&format!("{name}.weight"), f16([CHANNELS, t, h, w, CHANNELS])).unwrap();
    let bias = g.parameter(&format!("{name}.bias"), f16([CHANNELS])).unwrap();
    g.conv(name, x, weight, Some(bias), op).unwrap()
}

fn linear(g: &mut GraphBuilder, name: &str, x: ValueId, out: usize, bias: bool) -> ValueId {
    let channels = g.shape(x).channels();
    let weight = g.parameter(&format!("{name}.weight"), f16([out, channels])).unwrap();
    let bias = bias.then(|| g.parameter(&format!("{name}.bias"), f16([out])).unwrap());
    g.linear(name, x, weight, bias).unwrap()
}

fn alpha(g: &mut GraphBuilder) -> ValueId {
    let mix = g.parameter("mix_factor", f16([1])).unwrap();
    g.activate("alpha", mix, Activation::Sigmoid).unwrap()
}

/// Norm, SiLU, convolution, time embedding, norm, SiLU, convolution, skip.
fn half_resnet(g: &mut GraphBuilder, x: ValueId, time: ValueId, op: &Conv, frames: usize) -> ValueId {
    let h = group_norm(g, "norm1", x, frames);
    let h = g.activate("act1", h, Activation::Silu).unwrap();
    let h = conv(g, "conv1", h, op.clone());
    let t = g.activate("time_act", time, Activation::Silu).unwrap();
    let t = linear(g, "time_emb_proj", t, CHANNELS, true);
    let t = g.reshape("time_rows", t, [IMAGES, 1, 1, CHANNELS]).unwrap();
    let h = g.add("time", h, t).unwrap();
    let h = group_norm(g, "norm2", h, frames);
    let h = g.activate("act2", h, Activation::Silu).unwrap();
    let h = conv(g, "conv2", h, op.clone());
    g.add("skip", x, h).unwrap()
}

fn resnet(g: &mut GraphBuilder, x: ValueId, time: ValueId) -> ValueId {
    let spatial = g.scope("spatial", |g| half_resnet(g, x, time, &Conv::spatial([3, 3], 1, 1), 1));
    let temporal = g.scope("temporal", |g| half_resnet(g, spatial, time, &Conv::temporal(3, FRAMES), FRAMES));
    let alpha = alpha(g);
    g.blend("blend", spatial, temporal, alpha).unwrap()
}

fn attention(g: &mut GraphBuilder, name: &str, x: ValueId, context: ValueId, op: Attention) -> ValueId {
    g.scope(name, |g| {
        let q = linear(g, "to_q", x, CHANNELS, false);
        let k = linear(g, "to_k", context, CHANNELS, false);
        let v = linear(g, "to_v", context, CHANNELS, false);
        let a = g.attention("attention", [q, k, v], &[], op).unwrap();
        linear(g, "to_out", a, CHANNELS, true)
    })
}

fn feed_forward(g: &mut GraphBuilder, name: &str, x: ValueId) -> ValueId {
    g.scope(name, |g| {
        let h = linear(g, "proj", x, 8 * CHANNELS, true);
        let h = g.geglu("geglu", h).unwrap();
        linear(g, "out", h, CHANNELS, true)
    })
}

/// Self-attention, cross-attention and feed-forward, each behind a layer norm and with a residual.
fn transformer_block(g: &mut GraphBuilder, x: ValueId, context: ValueId, attend: Attention) -> ValueId {
    let h = norm(g, "norm1", x, NormKind::Layer);
    let h = attention(g, "attn1", h, h, attend);
    let x = g.add("residual1", h, x).unwrap();
    let h = norm(g, "norm2", x, NormKind::Layer);
    let h = attention(g, "attn2", h, context, Attention::over_positions(2, 4));
    let x = g.add("residual2", h, x).unwrap();
    let h = norm(g, "norm3", x, NormKind::Layer);
    let h = feed_forward(g, "ff", h);
    g.add("residual3", h, x).unwrap()
}

fn transformer(g: &mut GraphBuilder, x: ValueId, context: ValueId, positions: ValueId) -> ValueId {
    let h = group_norm(g, "norm", x, 1);
    let h = g.reshape("rows", h, [IMAGES, SIDE * SIDE, CHANNELS]).unwrap();
    let h = linear(g, "proj_in", h, CHANNELS, true);
    let spatial = g.scope("spatial", |g| transformer_block(g, h, context, Attention::over_positions(2, 4)));
    let temporal = g.scope("temporal", |g| {
        let h = g.add("position", spatial, positions).unwrap();
        let n = norm(g, "norm_in", h, NormKind::Layer);
        let n = feed_forward(g, "ff_in", n);
        let h = g.add("residual_in", n, h).unwrap();
        transformer_block(g, h, context, Attention::over_frames(2, 4, FRAMES))
    });
    let alpha = alpha(g);
    let h = g.blend("blend", spatial, temporal, alpha).unwrap();
    let h = linear(g, "proj_out", h, CHANNELS, true);
    let h = g.reshape("image", h, [IMAGES, SIDE, SIDE, CHANNELS]).unwrap();
    g.add("residual", h, x).unwrap()
}

fn blocks() -> Graph {
    let mut g = GraphBuilder::new("svd blocks");
    let x = g.input("x", f16([IMAGES, SIDE, SIDE, CHANNELS]), Phase::Step).unwrap();
    let time = g.input("time", f16([IMAGES, 16]), Phase::Step).unwrap();
    let context = g.input("context", f16([CLIPS, 1, 5]), Phase::Clip).unwrap();
    let positions = g.input("positions", f16([IMAGES, 1, CHANNELS]), Phase::Clip).unwrap();
    let h = g.scope("resnet", |g| resnet(g, x, time));
    let y = g.scope("transformer", |g| transformer(g, h, context, positions));
    g.output("y", y).unwrap();
    g.finish()
}

/// The nodes of a phase without the reshapes, as text: name and op.
fn listing(graph: &Graph, phase: Phase) -> Vec<String> {
    let phases = graph.phases();
    let runs = |n: &&Node| phases[n.outputs[0].index()] == phase && !matches!(n.op, Op::Reshape(_));
    let mut lines: Vec<String> = graph.nodes().iter().filter(runs).map(|n| n.name.clone()).collect();
    lines.sort();
    lines
}

#[test]
fn the_blocks_shrink_to_their_matrix_work() {
    let before = blocks();
    let after = optimise(&before, &FuseAll).unwrap();
    let expected = [
        "resnet.spatial.conv1",
        "resnet.spatial.conv2",
        "resnet.spatial.time_act",
        "resnet.spatial.time_emb_proj",
        "resnet.temporal.conv1",
        "resnet.temporal.conv2",
        "resnet.temporal.time_emb_proj",
        "transformer.proj_in",
        "transformer.proj_out",
        "transformer.spatial.attn1.attention",
        "transformer.spatial.attn1.to_out",
        "transformer.spatial.attn1.to_qkv",
        "transformer.spatial.ff.out",
        "transformer.spatial.ff.proj",
        "transformer.temporal.attn1.attention",
        "transformer.temporal.attn1.to_out",
        "transformer.temporal.attn1.to_qkv",
        "transformer.temporal.ff.out",
        "transformer.temporal.ff.proj",
        "transformer.temporal.ff_in.out",
        "transformer.temporal.ff_in.proj",
        // The spatial result is blended in later, so that it has to exist without the position too.
        "transformer.temporal.position",
    ];
    assert_eq!(listing(&after, Phase::Step), expected, "{after}");
    let once_a_clip = ["spatial", "temporal"]
        .map(|half| [format!("transformer.{half}.attn2.to_out"), format!("transformer.{half}.attn2.to_v")])
        .concat();
    assert_eq!(listing(&after, Phase::Clip), once_a_clip);
    assert_eq!(after.ty(after.outputs()[0].value), before.ty(before.outputs()[0].value));

    let op = |name: &str| after.nodes().iter().find(|n| n.name == name).map(|n| n.op.to_string()).unwrap();
    let stages = |name: &str| {
        let node = after.nodes().iter().find(|n| n.name == name).unwrap();
        format!("{:?}", node.op.epilogue().unwrap())
    };
    assert_eq!(stages("resnet.spatial.conv1"), "[AddChannels]");
    assert_eq!(stages("resnet.temporal.conv2"), "[Add]");
    assert_eq!(stages("transformer.spatial.attn1.to_out"), "[Add, AddChannels]");
    assert_eq!(stages("transformer.temporal.attn1.to_out"), "[Add, AddChannels]");
    assert_eq!(stages("transformer.temporal.ff.out"), "[Add, Blend { accumulator_first: false }]");
    assert_eq!(stages("transformer.proj_out"), "[Add]");
    for name in ["resnet.temporal.conv1", "transformer.proj_in", "transformer.temporal.attn1.to_qkv"] {
        assert!(op(name).contains("norm"), "{}", op(name));
    }
}

#[test]
fn the_parameters_of_unread_queries_and_keys_are_not_loaded() {
    let (before, after) = (blocks(), optimise(&blocks(), &FuseAll).unwrap());
    let names = |graph: &Graph| graph.parameters().map(|(_, v)| v.name.clone()).collect::<Vec<_>>();
    let kept = names(&after);
    let gone: Vec<String> = names(&before).into_iter().filter(|n| !kept.contains(n)).collect();
    let expected: Vec<String> = ["spatial", "temporal"]
        .iter()
        .flat_map(|half| {
            ["norm2.weight", "norm2.bias", "attn2.to_q.weight", "attn2.to_k.weight"]
                .map(|name| format!("transformer.{half}.{name}"))
        })
        .collect();
    assert_eq!(gone, expected);
}

#[test]
fn optimising_again_changes_nothing() {
    for target in [&FuseAll as &dyn crate::Target, &FuseNothing] {
        let once = optimise(&blocks(), target).unwrap();
        assert_eq!(optimise(&once, target).unwrap(), once);
    }
}

#[test]
fn without_fusion_the_algebra_remains() {
    let after = optimise(&blocks(), &FuseNothing).unwrap();
    let is_fused = |n: &Node| n.op.epilogue().is_some_and(|e| !e.is_empty());
    assert!(!after.nodes().iter().any(is_fused));
    let count = |f: fn(&Op) -> bool| after.nodes().iter().filter(|n| f(&n.op)).count();
    assert_eq!(count(|op| matches!(op, Op::Attention(_))), 2);
    assert_eq!(count(|op| matches!(op, Op::Blend)), 1);
}

#[test]
fn the_trace_accounts_for_every_node() {
    struct Nothing;
    impl Evaluate for Nothing {
        fn evaluate(&self, _node: &Node, _inputs: &[&crate::Tensor]) -> Option<Vec<crate::Tensor>> {
            None
        }
    }
    let before = blocks();
    let (after, effects) = optimise_traced(&before, &FuseAll, Some(&Nothing)).unwrap();
    for pair in effects.windows(2) {
        assert_eq!(pair[0].nodes_after, pair[1].nodes_before);
    }
    let last = effects.last().unwrap();
    assert_eq!(last.nodes_after, listing(&after, Phase::Step).len() + listing(&after, Phase::Clip).len());
    assert!(effects[0].nodes_before > 2 * last.nodes_after);
    let known: Vec<&str> = all(None).iter().map(|p| p.name()).collect();
    assert!(effects.iter().all(|e| known.contains(&e.pass) && e.nodes_after <= e.nodes_before));
    assert!(last.round <= 2, "{effects:?}");
    assert!(after.values().iter().all(|v| !matches!(v.source, Source::Constant(_))));
}
