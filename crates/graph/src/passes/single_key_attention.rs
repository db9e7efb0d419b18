//! Attention over a single key.

use std::collections::HashSet;

use super::{
    Pass,
    linear_parts::{reshaped, reshaped_rows},
};
use crate::{
    Editor, GraphError, NodeId, Op, Shape, Target, TensorType, ValueId,
    op::{Attention, Mask, Reshape, SequenceAxis, Slice, Stage},
};

/// Removes attention over one key.
///
/// A softmax over one score is always 1, so the result is the value row itself, for every query. The row is not copied
/// to every position: the ops on channel vectors that follow (the output projection) are applied to the row alone, and
/// it meets the full tensor in an `Add` or `Mul`, which broadcasts it:
///
/// ```text
/// add(x, linear(attention(q, k, v)))   →   add(x, linear(v))
/// ```
///
/// This removes the attention, and with it the projections of queries and keys and the norm before them. What remains
/// depends on the context alone; if that is known once per clip, so is the sum's operand.
///
/// The attention stays if a mask, a length or a boundary might hide the key, if its sums are a result, or if its result reaches something that does not
/// broadcast, or leaves the graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleKeyAttention;

impl Pass for SingleKeyAttention {
    fn name(&self) -> &'static str {
        "single_key_attention"
    }

    fn rewrite(&self, editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            collapse(editor, id)?;
        }
        Ok(())
    }
}

fn collapse(editor: &mut Editor, id: NodeId) -> Result<(), GraphError> {
    let node = editor.node(id);
    let (Op::Attention(attention), &[q, k, v, ..]) = (&node.op, node.inputs.as_slice()) else {
        return Ok(());
    };
    let result = node.outputs[0];
    let Some((small, full)) = broadcast_shapes(attention, editor.ty(q), editor.ty(k)) else { return Ok(()) };
    let nothing_to_broadcast = small == full;
    if !nothing_to_broadcast && !meets_full_tensors(editor, result) {
        return Ok(());
    }
    let (name, attention) = (node.name.clone(), attention.clone());
    let row = value_row(editor, &name, &attention, v, editor.ty(q).dtype)?;
    if nothing_to_broadcast {
        let row = reshaped(editor, row, &editor.ty(result).shape.clone())?;
        return editor.bypass(id, &[row]);
    }
    let row = reshaped(editor, row, &small)?;
    spread(editor, result, row, &full)
}

/// The channels that the heads read, as the result's element type.
fn value_row(
    editor: &mut Editor,
    name: &str,
    attention: &Attention,
    v: ValueId,
    dtype: crate::DType,
) -> Result<ValueId, GraphError> {
    let mut row = v;
    let width = attention.heads * attention.head_dim;
    if editor.ty(v).shape.channels() != width {
        let slice = Slice { axis: 2, start: attention.offsets[2], len: width };
        row = editor.add(format!("{name}.value"), Op::Slice(slice), &[row])?[0];
    }
    if editor.ty(row).dtype != dtype {
        row = editor.add(format!("{name}.value"), Op::Cast(dtype), &[row])?[0];
    }
    Ok(row)
}

/// For attention that always sees its one key: the value rows' shape, and a view of the result's memory that it
/// broadcasts to.
fn broadcast_shapes(attention: &Attention, q: &TensorType, k: &TensorType) -> Option<(Shape, Shape)> {
    let sees_the_key = match attention.mask {
        Mask::None => true,
        // Query i sees key 0 if 0 <= i + diagonal; only the first query might not.
        Mask::Causal { diagonal } => diagonal >= 0,
        // The last query might not, either.
        Mask::SlidingWindow { .. } | Mask::Boolean | Mask::Additive => false,
    };
    let e = attention.extents(q, k);
    let may_be_hidden = attention.key_lengths || attention.boundaries;
    if !sees_the_key || may_be_hidden || attention.log_sum_exp || e.keys != 1 || e.key_batch == 0 {
        return None;
    }
    let width = attention.heads * attention.head_dim;
    Some(match attention.axis {
        // One row serves all positions, and all consecutive images of its clip.
        SequenceAxis::Positions if e.key_batch == 1 => {
            (Shape::from([1, 1, width]), Shape::from([e.batch, e.queries, width]))
        }
        SequenceAxis::Positions => (
            Shape::from([e.key_batch, 1, width]),
            Shape::from([e.key_batch, e.batch / e.key_batch * e.queries, width]),
        ),
        // One row per position serves all frames.
        SequenceAxis::Frames { .. } if e.batch == 1 => {
            (Shape::from([1, e.positions, width]), Shape::from([e.queries, e.positions, width]))
        }
        SequenceAxis::Frames { .. } => (
            Shape::from([e.batch, 1, e.positions, width]),
            Shape::from([e.batch, e.queries, e.positions, width]),
        ),
    })
}

/// What a node does with an operand whose rows are copies of a few.
enum Reading {
    /// The same function of each row: its result has copies again.
    Rows,
    /// A sum or product with one vector for all rows: copies again.
    Channels,
    /// A sum or product with a tensor of the full shape, the operand of this index: here the copies end.
    Full(usize),
    /// Something that does not broadcast.
    Other,
}

fn reading(editor: &Editor, reader: NodeId, value: ValueId) -> Reading {
    let node = editor.node(reader);
    if node.inputs.iter().filter(|&&v| v == value).count() != 1 {
        return Reading::Other;
    }
    match &node.op {
        Op::Activate(_) | Op::Scale(_) | Op::Cast(_) | Op::Gate(_) => Reading::Rows,
        Op::Reshape(_) if reshaped_rows(editor, node).is_some() => Reading::Rows,
        Op::Linear(op)
            if node.inputs[0] == value
                && op.prologue.is_none()
                && Stage::operand_count(&op.epilogue) == 0 =>
        {
            Reading::Rows
        }
        Op::Add | Op::Mul => {
            let other = usize::from(node.inputs[0] == value);
            let [copies, operand, result] =
                [value, node.inputs[other], node.outputs[0]].map(|v| &editor.ty(v).shape);
            if copies != result {
                Reading::Other
            } else if operand == result {
                Reading::Full(other)
            } else if operand.elements() == operand.channels() {
                Reading::Channels
            } else {
                Reading::Other
            }
        }
        _ => Reading::Other,
    }
}

/// Whether copies of rows, followed through all their readers, end in sums and products with full tensors.
fn meets_full_tensors(editor: &Editor, copies: ValueId) -> bool {
    let mut seen = HashSet::new();
    let mut pending = vec![copies];
    while let Some(value) = pending.pop() {
        if editor.is_output(value) {
            return false;
        }
        for &reader in editor.readers(value) {
            // A node reached twice joins two branches of copies; neither operand is then a full tensor.
            if !seen.insert(reader) {
                return false;
            }
            match reading(editor, reader, value) {
                Reading::Rows | Reading::Channels => pending.push(editor.node(reader).outputs[0]),
                Reading::Full(_) => {}
                Reading::Other => return false,
            }
        }
    }
    true
}

/// Rewrites the readers of `copies` to work on `row`, which represents them, up to the sums where they meet a full
/// tensor. `full` is the view of the copies' memory that `row` broadcasts to.
fn spread(editor: &mut Editor, copies: ValueId, row: ValueId, full: &Shape) -> Result<(), GraphError> {
    let mut pending = vec![(copies, row)];
    while let Some((copies, row)) = pending.pop() {
        for reader in editor.readers(copies).to_vec() {
            let reading = reading(editor, reader, copies);
            let node = editor.node(reader);
            let (name, op, result) = (node.name.clone(), node.op.clone(), node.outputs[0]);
            let mut inputs = node.inputs.clone();
            for input in inputs.iter_mut().filter(|v| **v == copies) {
                *input = row;
            }
            match reading {
                Reading::Rows if matches!(op, Op::Reshape(_)) => pending.push((result, row)),
                Reading::Rows => pending.push((result, editor.add(name, op, &inputs)?[0])),
                Reading::Channels => {
                    for input in inputs.iter_mut().filter(|v| **v != row) {
                        let channels = editor.ty(*input).shape.channels();
                        *input = reshaped(editor, *input, &Shape::from([channels]))?;
                    }
                    pending.push((result, editor.add(name, op, &inputs)?[0]));
                }
                Reading::Full(other) => {
                    let shape = editor.ty(result).shape.clone();
                    let view = full.with_channels(shape.channels());
                    inputs[other] = reshaped(editor, inputs[other], &view)?;
                    if view == shape {
                        editor.replace_node(reader, name, op, &inputs)?;
                    } else {
                        let sum = editor.add(name.clone(), op, &inputs)?[0];
                        let back = Op::Reshape(Reshape { shape });
                        editor.replace_node(reader, format!("{name}.view"), back, &[sum])?;
                    }
                }
                // Ruled out before the rewriting began.
                Reading::Other => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FuseNothing, Graph, GraphBuilder, NodeId, Phase, op::NormKind, passes::names};

    fn f32_type(shape: impl Into<Shape>) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    struct Block {
        images: usize,
        clips: usize,
        keys: usize,
        attention: Attention,
    }

    /// The cross-attention of a transformer block of SVD: 6 positions, 8 channels, a context of 5.
    fn block(setting: &Block, expose: bool) -> Graph {
        let mut g = GraphBuilder::new("block");
        let x = g.input("x", f32_type([setting.images, 6, 8]), Phase::Step).unwrap();
        let context = g.input("context", f32_type([setting.clips, setting.keys, 5]), Phase::Clip).unwrap();
        let weight =
            |g: &mut GraphBuilder, name: &str, shape: &[usize]| g.parameter(name, f32_type(shape)).unwrap();
        let scale = weight(&mut g, "norm2.weight", &[8]);
        let shift = weight(&mut g, "norm2.bias", &[8]);
        let h = g.norm("norm2", x, NormKind::Layer, 1e-5, Some(scale), Some(shift)).unwrap();
        let wq = weight(&mut g, "to_q.weight", &[8, 8]);
        let wk = weight(&mut g, "to_k.weight", &[8, 5]);
        let wv = weight(&mut g, "to_v.weight", &[8, 5]);
        let wo = weight(&mut g, "to_out.weight", &[8, 8]);
        let bo = weight(&mut g, "to_out.bias", &[8]);
        let q = g.linear("to_q", h, wq, None).unwrap();
        let k = g.linear("to_k", context, wk, None).unwrap();
        let v = g.linear("to_v", context, wv, None).unwrap();
        let a = g.attention("attn2", [q, k, v], &[], setting.attention.clone()).unwrap();
        let o = g.linear("to_out", a, wo, Some(bo)).unwrap();
        let y = g.add("residual", x, o).unwrap();
        g.output("y", y).unwrap();
        if expose {
            g.output("projected", o).unwrap();
        }
        g.finish()
    }

    fn run(graph: &Graph) -> Graph {
        SingleKeyAttention.run(graph, &FuseNothing).unwrap()
    }

    fn over_positions(images: usize, clips: usize) -> Block {
        Block { images, clips, keys: 1, attention: Attention::over_positions(2, 4) }
    }

    /// The norm, queries and keys are gone; values and projection are computed once per clip.
    fn check(graph: &Graph, expected: &[&str]) {
        assert_eq!(names(graph), expected);
        let parameters: Vec<&str> = graph.parameters().map(|(_, v)| v.name.as_str()).collect();
        assert_eq!(parameters, ["to_v.weight", "to_out.weight", "to_out.bias"]);
        let phases = graph.phases();
        for node in graph.nodes() {
            let phase = phases[node.outputs[0].index()];
            let expected = if matches!(node.op, Op::Linear(_)) { Phase::Clip } else { Phase::Step };
            assert_eq!(phase, expected, "{}", node.name);
        }
        assert_eq!(graph.step_flops(), 0);
    }

    #[test]
    fn one_image_a_clip_leaves_a_sum() {
        let graph = run(&block(&over_positions(3, 3), false));
        check(&graph, &["to_v", "to_out", "residual"]);
        assert_eq!(graph.ty(graph.nodes()[1].outputs[0]), &f32_type([3, 1, 8]));
        assert_eq!(graph.ty(graph.outputs()[0].value), &f32_type([3, 6, 8]));
    }

    #[test]
    fn one_context_for_everything_needs_no_view() {
        let graph = run(&block(&over_positions(4, 1), false));
        check(&graph, &["to_v", "to_out", "residual"]);
    }

    #[test]
    fn several_frames_a_clip_meet_in_a_view() {
        let graph = run(&block(&over_positions(6, 2), false));
        check(&graph, &["to_v", "to_out", "x.view", "residual", "residual.view"]);
        assert_eq!(graph.ty(graph.nodes()[3].outputs[0]), &f32_type([2, 18, 8]));
        assert_eq!(graph.ty(graph.nodes()[3].inputs[1]), &f32_type([2, 1, 8]));
        assert_eq!(graph.ty(graph.outputs()[0].value), &f32_type([6, 6, 8]));
    }

    /// Attention over the frames, whose keys are one frame a clip with all positions.
    fn over_frames(clips: usize, frames: usize) -> Graph {
        let mut g = GraphBuilder::new("frames");
        let x = g.input("x", f32_type([clips * frames, 6, 8]), Phase::Step).unwrap();
        let v = g.input("v", f32_type([clips, 6, 8]), Phase::Clip).unwrap();
        let a = g.attention("attention", [x, v, v], &[], Attention::over_frames(2, 4, frames)).unwrap();
        let y = g.add("sum", a, x).unwrap();
        g.output("y", y).unwrap();
        g.finish()
    }

    #[test]
    fn one_key_frame_serves_all_frames_at_its_position() {
        let one_clip = run(&over_frames(1, 3));
        assert_eq!(names(&one_clip), ["sum"]);
        let two = run(&over_frames(2, 3));
        assert_eq!(names(&two), ["v.view", "x.view", "sum", "sum.view"]);
        let sum = &two.nodes()[2];
        assert_eq!(two.ty(sum.inputs[0]), &f32_type([2, 1, 6, 8]));
        assert_eq!(two.ty(sum.outputs[0]), &f32_type([2, 3, 6, 8]));
        // With one frame the value is the result.
        assert_eq!(names(&run(&over_frames(2, 1))), ["sum"]);
    }

    #[test]
    fn packed_values_are_cut_out_and_cast() {
        let mut g = GraphBuilder::new("packed");
        let x = g.input("x", f32_type([2, 6, 8]), Phase::Step).unwrap();
        let kv = g.input("kv", TensorType::new(DType::F16, [2, 1, 24]), Phase::Clip).unwrap();
        let attention = Attention { offsets: [0, 0, 12], ..Attention::over_positions(2, 4) };
        let a = g.attention("attention", [x, kv, kv], &[], attention).unwrap();
        let bias = g.parameter("bias", f32_type([1, 1, 8])).unwrap();
        let a = g.add("bias", a, bias).unwrap();
        let a = g.reshape("image", a, [2, 2, 3, 8]).unwrap();
        let image = g.reshape("x.image", x, [2, 2, 3, 8]).unwrap();
        let y = g.mul("product", image, a).unwrap();
        g.output("y", y).unwrap();
        let graph = run(&g.finish());
        let ops: Vec<&Op> =
            graph.nodes().iter().map(|n| &n.op).filter(|op| !matches!(op, Op::Reshape(_))).collect();
        let slice = Op::Slice(Slice { axis: 2, start: 12, len: 8 });
        assert_eq!(ops, [&slice, &Op::Cast(DType::F32), &Op::Add, &Op::Mul]);
        assert_eq!(graph.ty(graph.outputs()[0].value), &f32_type([2, 2, 3, 8]));
    }

    #[test]
    fn a_key_that_may_be_hidden_is_left() {
        let causal =
            |diagonal| Attention { mask: Mask::Causal { diagonal }, ..Attention::over_positions(2, 4) };
        let setting = |keys, attention| Block { images: 2, clips: 2, keys, attention };
        let window = Mask::SlidingWindow { diagonal: 0, window: 1 };
        let window = Attention { mask: window, ..Attention::over_positions(2, 4) };
        for stays in [setting(1, causal(-1)), setting(1, window), setting(2, Attention::over_positions(2, 4))]
        {
            let graph = block(&stays, false);
            assert_eq!(names(&run(&graph)), names(&graph));
        }
        assert_eq!(run(&block(&setting(1, causal(0)), false)).nodes().len(), 3);

        let mut g = GraphBuilder::new("lengths");
        let x = g.input("x", f32_type([2, 6, 8]), Phase::Step).unwrap();
        let v = g.input("v", f32_type([2, 1, 8]), Phase::Clip).unwrap();
        let lengths = g.input("lengths", TensorType::new(DType::I32, [2]), Phase::Clip).unwrap();
        let attention = Attention { key_lengths: true, ..Attention::over_positions(2, 4) };
        let a = g.attention("attention", [x, v, v], &[lengths], attention).unwrap();
        let y = g.add("sum", x, a).unwrap();
        g.output("y", y).unwrap();
        assert_eq!(names(&run(&g.finish())), ["attention", "sum"]);
    }

    #[test]
    fn copies_that_leave_or_do_not_broadcast_are_left() {
        let exposed = block(&over_positions(3, 3), true);
        assert_eq!(run(&exposed).nodes().len(), exposed.nodes().len());

        let mut g = GraphBuilder::new("joined");
        let x = g.input("x", f32_type([2, 6, 8]), Phase::Step).unwrap();
        let v = g.input("v", f32_type([2, 1, 8]), Phase::Clip).unwrap();
        let a = g.attention("attention", [x, v, v], &[], Attention::over_positions(2, 4)).unwrap();
        let y = g.concat("concat", &[x, a], 2).unwrap();
        g.output("y", y).unwrap();
        // Two branches of copies that meet each other.
        let b = g.scale("scale", a, 2.0, 0.0).unwrap();
        let z = g.add("both", a, b).unwrap();
        g.output("z", z).unwrap();
        let graph = g.finish();
        assert_eq!(run(&graph), graph);
        assert_eq!(graph.node(NodeId(0)).name, "attention");
    }
}
