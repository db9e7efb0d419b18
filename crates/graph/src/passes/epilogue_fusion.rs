//! Fuses what follows a convolution or matrix product into its epilogue.

use super::{
    Pass,
    linear_parts::{LinearParts, View, may_replace, reshaped_rows},
    norm_prologue::same_statistics,
};
use crate::{
    Editor, GraphError, Node, NodeId, Op, Phase, Shape, Target, TensorType, ValueId,
    op::{Stage, is_channel_operand},
};

/// Makes an activation, a scale, a sum, a product or a blend the last stage of the convolution or linear op that it alone
/// reads: residuals, time embeddings and α-blends then cost no pass over memory. A sum with one vector that is
/// known at load becomes the bias of an op that has none.
///
/// - If both operands of a sum could take it, the one with more arithmetic does: it hides its stores better.
/// - A reshape between a linear op and its reader moves before the linear op, which treats rows alike.
/// - An op that runs once per clip takes nothing that changes at every step.
#[derive(Clone, Copy, Debug, Default)]
pub struct EpilogueFusion;

impl Pass for EpilogueFusion {
    fn name(&self) -> &'static str {
        "epilogue_fusion"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            if let Some(fused) = fuse(editor, target, id) {
                let inputs = View::materialise(editor, &fused.operands)?;
                editor.replace_node(id, fused.name, fused.op, &inputs)?;
            }
        }
        Ok(())
    }
}

/// A convolution or linear op that is about to take a stage, under the shape in which the stage's node reads it.
struct Host {
    name: String,
    op: Op,
    operands: Vec<View>,
    flops: u64,
    node: NodeId,
}

/// The op that takes over the node's work, if there is one.
fn fuse(editor: &Editor, target: &dyn Target, id: NodeId) -> Option<Host> {
    let node = editor.node(id);
    let result = editor.ty(*node.outputs.first()?);
    let sides = match node.op {
        Op::Activate(_) | Op::Scale(_) => 1,
        Op::Add | Op::Mul | Op::Blend => 2,
        _ => return None,
    };
    let mut hosts: Vec<Host> = (0..sides.min(node.inputs.len()))
        .filter_map(|side| {
            let host = host(editor, node.inputs[side], result, editor.phase(node.outputs[0]))?;
            with_stage(editor, host, node, side, result)
        })
        .filter(|host| may_replace(editor, target, &host.op, &host.operands, result))
        .collect();
    hosts.sort_by_key(|host| (host.flops, host.node));
    hosts.pop()
}

/// The convolution or linear op behind an operand that must have the result's type and phase and no other reader.
fn host(editor: &Editor, operand: ValueId, result: &TensorType, phase: Phase) -> Option<Host> {
    if editor.ty(operand) != result || editor.phase(operand) != phase {
        return None;
    }
    let (mut id, mut node) = editor.sole_producer(operand)?;
    let mut moved = None;
    if let Some(rows) = reshaped_rows(editor, node) {
        (id, node) = editor.sole_producer(rows)?;
        moved = Some(&result.shape);
    }
    let parts = LinearParts::of(node)?;
    let operands = match moved {
        None => View::of(editor, &parts.inputs()),
        Some(shape) => under_shape(editor, &parts, &editor.ty(node.outputs[0]).shape, shape)?,
    };
    let flops = parts.op.flops(&editor.types(&node.inputs), &editor.types(&node.outputs));
    Some(Host { name: node.name.clone(), op: parts.op, operands, flops, node: id })
}

/// The operands with which a linear op produces its result, of shape `from`, directly in the shape `to`, which has the
/// same channels.
fn under_shape(editor: &Editor, parts: &LinearParts, from: &Shape, to: &Shape) -> Option<Vec<View>> {
    if !matches!(parts.op, Op::Linear(_)) || parts.norm().is_some_and(|norm| !same_statistics(norm, from, to))
    {
        return None;
    }
    let mut operands = View::of(editor, &parts.inputs());
    operands[0].shape = to.with_channels(operands[0].shape.channels());
    let first_of_epilogue = operands.len() - parts.epilogue.len();
    let mut epilogue = operands[first_of_epilogue..].iter_mut();
    for stage in parts.op.epilogue()? {
        match stage {
            Stage::Activate(_) | Stage::Scale(_) => {}
            Stage::AddChannels => {
                let operand = epilogue.next()?;
                operand.shape = channel_shape(&operand.shape, from, to)?;
            }
            Stage::Add | Stage::Mul => epilogue.next()?.shape = to.clone(),
            Stage::Blend { .. } => {
                epilogue.next()?.shape = to.clone();
                epilogue.next()?; // α is one number under any shape.
            }
        }
    }
    Some(operands)
}

/// The shape under which a channel operand of `from` broadcasts over `to`.
fn channel_shape(operand: &Shape, from: &Shape, to: &Shape) -> Option<Shape> {
    if operand.elements() == operand.channels() {
        return Some(Shape::from([operand.channels()]));
    }
    // One vector per image: both must have the same number of images.
    if from.first() != to.first() {
        return None;
    }
    let mut shape = vec![1; to.len()];
    shape[0] = *to.first()?;
    *shape.last_mut()? = operand.channels();
    Some(Shape::from(shape))
}

/// The host with the work of `node`, whose operand `side` is the host's result.
fn with_stage(
    editor: &Editor,
    mut host: Host,
    node: &Node,
    side: usize,
    result: &TensorType,
) -> Option<Host> {
    let other = node.inputs.get(1 - side).copied();
    let stage = match node.op {
        Op::Activate(activation) => Stage::Activate(activation),
        Op::Scale(scale) if scale.offset == 0.0 => Stage::Scale(scale.factor),
        Op::Add if takes_bias(editor, &host, other?) => {
            let shape = Shape::from([result.shape.channels()]);
            host.operands.insert(2, View { value: other?, shape });
            match &mut host.op {
                Op::Conv(op) => op.bias = true,
                Op::Linear(op) => op.bias = true,
                _ => return None,
            }
            return Some(host);
        }
        Op::Add if editor.ty(other?).shape == result.shape => Stage::Add,
        Op::Add if is_channel_operand(editor.ty(other?), result) => Stage::AddChannels,
        Op::Mul if editor.ty(other?).shape == result.shape => Stage::Mul,
        Op::Blend if *editor.ty(*node.inputs.get(2)?).shape == [1] => {
            Stage::Blend { accumulator_first: side == 0 }
        }
        _ => return None,
    };
    host.op.epilogue_mut()?.push(stage);
    let operands: Vec<ValueId> = match stage.operands() {
        0 => Vec::new(),
        1 => vec![other?],
        _ => vec![other?, *node.inputs.get(2)?],
    };
    host.operands.extend(View::of(editor, &operands));
    Some(host)
}

/// Whether a summand can be the bias: one vector, known at load, for an op that has none and does nothing after it.
fn takes_bias(editor: &Editor, host: &Host, summand: ValueId) -> bool {
    let nothing_after = match &host.op {
        Op::Conv(op) => op.quantised.is_none() && !op.bias && op.epilogue.is_empty(),
        Op::Linear(op) => op.quantised.is_none() && !op.bias && op.gate.is_none() && op.epilogue.is_empty(),
        _ => false,
    };
    let shape = &editor.ty(summand).shape;
    let channels = host.operands.get(1).and_then(|weight| weight.shape.first().copied());
    nothing_after
        && editor.phase(summand) == Phase::Load
        && shape.elements() == shape.channels()
        && Some(shape.channels()) == channels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DType, FuseAll, FuseNothing, Graph, GraphBuilder,
        op::{Activation, Conv, Linear},
    };

    fn f16(shape: impl Into<Shape>) -> TensorType {
        TensorType::new(DType::F16, shape)
    }

    /// A 3×3 convolution of 2 images to 4 channels, and what follows it.
    fn conv(bias: bool, after: impl FnOnce(&mut GraphBuilder, ValueId) -> ValueId) -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f16([2, 3, 3, 8]), Phase::Step).unwrap();
        let w = g.parameter("conv.weight", f16([4, 1, 3, 3, 8])).unwrap();
        let b = bias.then(|| g.parameter("conv.bias", f16([4])).unwrap());
        let y = g.conv("conv", x, w, b, Conv::spatial([3, 3], 1, 1)).unwrap();
        let y = after(&mut g, y);
        g.output("y", y).unwrap();
        g.finish()
    }

    fn run(graph: &Graph) -> Graph {
        let after = EpilogueFusion.run(graph, &FuseAll).unwrap();
        assert_eq!(after.ty(after.outputs()[0].value), graph.ty(graph.outputs()[0].value));
        after
    }

    fn input(g: &mut GraphBuilder, name: &str, shape: &[usize]) -> ValueId {
        g.input(name, f16(shape), Phase::Step).unwrap()
    }

    fn operand_names<'a>(graph: &'a Graph, node: &Node) -> Vec<&'a str> {
        node.inputs.iter().map(|&v| graph.value(v).name.as_str()).collect()
    }

    #[test]
    fn stages_follow_in_order() {
        let graph = conv(true, |g, y| {
            let time = input(g, "time", &[2, 1, 1, 4]);
            let residual = input(g, "residual", &[2, 3, 3, 4]);
            let factor = input(g, "factor", &[2, 3, 3, 4]);
            let other = input(g, "other", &[2, 3, 3, 4]);
            let alpha = g.parameter("alpha", f16([1])).unwrap();
            let y = g.add("time", time, y).unwrap();
            let y = g.activate("act", y, Activation::Silu).unwrap();
            let y = g.scale("scale", y, 0.5, 0.0).unwrap();
            let y = g.add("residual", y, residual).unwrap();
            let y = g.mul("factor", factor, y).unwrap();
            g.blend("blend", other, y, alpha).unwrap()
        });
        let after = run(&graph);
        assert_eq!(after.nodes().len(), 1);
        let node = &after.nodes()[0];
        let expected = [
            Stage::AddChannels,
            Stage::Activate(Activation::Silu),
            Stage::Scale(0.5),
            Stage::Add,
            Stage::Mul,
            Stage::Blend { accumulator_first: false },
        ];
        assert_eq!(node.op.epilogue(), Some(&expected[..]));
        let operands = ["x", "conv.weight", "conv.bias", "time", "residual", "factor", "other", "alpha"];
        assert_eq!(operand_names(&after, node), operands);
        assert_eq!(EpilogueFusion.run(&graph, &FuseNothing).unwrap().nodes().len(), 7);
    }

    #[test]
    fn a_vector_known_at_load_becomes_the_missing_bias() {
        let add = |g: &mut GraphBuilder, y| {
            let b = g.parameter("b", f16([1, 1, 1, 4])).unwrap();
            g.add("bias", b, y).unwrap()
        };
        // A bias is not a fusion: the backend is not asked.
        let after = EpilogueFusion.run(&conv(false, add), &FuseNothing).unwrap();
        let node = after.nodes().last().unwrap();
        assert!(matches!(&node.op, Op::Conv(c) if c.bias && c.epilogue.is_empty()));
        assert_eq!(after.ty(node.inputs[2]), &f16([4]));
        // The second one is a stage.
        let after = run(&conv(true, add));
        assert_eq!(after.nodes()[0].op.epilogue(), Some(&[Stage::AddChannels][..]));
        // As is one that changes.
        let late = run(&conv(false, |g, y| {
            let b = input(g, "b", &[4]);
            g.add("bias", y, b).unwrap()
        }));
        assert_eq!(late.nodes()[0].op.epilogue(), Some(&[Stage::AddChannels][..]));
    }

    #[test]
    fn what_is_read_twice_stored_or_broadcast_stays() {
        let cases: [fn(&mut GraphBuilder, ValueId) -> ValueId; 6] = [
            |g, y| g.add("twice", y, y).unwrap(),
            |g, y| {
                g.output("stored", y).unwrap();
                g.scale("scale", y, 2.0, 0.0).unwrap()
            },
            |g, y| g.scale("offset", y, 2.0, 1.0).unwrap(),
            |g, y| {
                let rows = input(g, "rows", &[1, 3, 1, 4]);
                g.add("rows", y, rows).unwrap()
            },
            |g, y| {
                let clips = input(g, "clips", &[5, 2, 3, 3, 4]);
                g.add("clips", clips, y).unwrap()
            },
            |g, y| {
                // The sum is f32, which the convolution does not return.
                let wide = g.input("wide", TensorType::new(DType::F32, [2, 3, 3, 4]), Phase::Step).unwrap();
                g.add("wide", wide, y).unwrap()
            },
        ];
        for (i, case) in cases.into_iter().enumerate() {
            assert_eq!(run(&conv(true, case)).nodes().len(), 2, "case {i}");
        }
        // An α per image cannot be a stage.
        let per_image = conv(true, |g, y| {
            let other = input(g, "other", &[2, 3, 3, 4]);
            let alpha = input(g, "alpha", &[2]);
            g.blend("blend", y, other, alpha).unwrap()
        });
        assert_eq!(run(&per_image).nodes().len(), 2);
    }

    #[test]
    fn the_op_with_more_arithmetic_takes_the_sum() {
        for swapped in [false, true] {
            let graph = conv(true, |g, y| {
                let x = input(g, "skip", &[2, 3, 3, 8]);
                let w = g.parameter("shortcut.weight", f16([4, 1, 1, 1, 8])).unwrap();
                let s = g.conv("shortcut", x, w, None, Conv::spatial([1, 1], 1, 0)).unwrap();
                let [a, b] = if swapped { [s, y] } else { [y, s] };
                g.add("sum", a, b).unwrap()
            });
            let after = run(&graph);
            let names: Vec<&str> = after.nodes().iter().map(|n| n.name.as_str()).collect();
            assert_eq!(names, ["shortcut", "conv"]);
            assert_eq!(after.nodes()[1].op.epilogue(), Some(&[Stage::Add][..]));
        }
    }

    /// A linear op on 6 images of 4 positions with a residual, seen under another shape by what follows.
    fn projection(shape: &[usize], summand: &[usize], phase: Phase) -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f16([6, 4, 8]), phase).unwrap();
        let h = g.input("h", f16([6, 4, 8]), phase).unwrap();
        let w = g.parameter("w", f16([8, 8])).unwrap();
        let y = g.linear("linear", x, w, None).unwrap();
        let y = g.add("residual", h, y).unwrap();
        let y = g.reshape("reshape", y, shape).unwrap();
        let summand = input(&mut g, "summand", summand);
        let y = g.add("sum", y, summand).unwrap();
        g.output("y", y).unwrap();
        g.finish()
    }

    #[test]
    fn a_reshape_moves_before_the_linear_op() {
        let rows = |graph: &Graph| graph.nodes().iter().map(|n| n.name.clone()).collect::<Vec<_>>();
        let image = run(&projection(&[6, 2, 2, 8], &[6, 2, 2, 8], Phase::Step));
        assert_eq!(rows(&image), ["x.view", "h.view", "linear"]);
        assert_eq!(image.nodes()[2].op.epilogue(), Some(&[Stage::Add, Stage::Add][..]));
        let clips = run(&projection(&[2, 12, 8], &[2, 1, 8], Phase::Step));
        assert_eq!(rows(&clips), ["x.view", "h.view", "linear"]);
        assert_eq!(clips.nodes()[2].op.epilogue(), Some(&[Stage::Add, Stage::AddChannels][..]));
        // Here the reshape changes what a channel is.
        let split = run(&projection(&[12, 4, 4], &[12, 4, 4], Phase::Step));
        assert_eq!(rows(&split), ["linear", "reshape", "sum"]);
    }

    #[test]
    fn an_image_vector_moves_with_the_reshape_only_if_the_image_count_stays() {
        let [images, clips, all] = [[6, 1, 8], [6, 1, 8], [1, 1, 8]].map(Shape::from);
        let from = Shape::from([6, 4, 8]);
        assert_eq!(channel_shape(&images, &from, &Shape::from([6, 2, 2, 8])), Some([6, 1, 1, 8].into()));
        assert_eq!(channel_shape(&clips, &from, &Shape::from([2, 12, 8])), None);
        assert_eq!(channel_shape(&all, &from, &Shape::from([2, 12, 8])), Some([8].into()));
    }

    #[test]
    fn an_op_of_the_clip_takes_nothing_of_the_step() {
        let after = run(&projection(&[6, 4, 8], &[6, 4, 8], Phase::Clip));
        let linear = after.nodes().iter().find(|n| n.name == "linear").unwrap();
        assert_eq!(linear.op, Op::Linear(Linear { epilogue: vec![Stage::Add], ..Linear::default() }));
        assert_eq!(after.phases()[linear.outputs[0].index()], Phase::Clip);
        assert_eq!(after.nodes().last().unwrap().op, Op::Add);
    }
}
