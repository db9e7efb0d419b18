//! Merges the projections before attention into one matrix product.

use super::{
    MAX_VECTOR_BYTES, Pass,
    linear_parts::{LinearParts, reshaped, reshaped_rows},
};
use crate::{
    Editor, GraphError, NodeId, Op, Phase, Target, Tensor, TensorType, ValueId,
    op::{Attention, Concat, Linear},
};

/// Merges the projections of queries, keys and values that read the same tensor into one product with their stacked
/// weights. The attention reads the packed result at three offsets. In cross-attention, where only keys and values
/// share their input, those two are merged. If only some have a bias, the missing ones become zeros. Weights of the step phase
/// would be stacked for every step, and are left.
#[derive(Clone, Copy, Debug, Default)]
pub struct QkvMerge;

impl Pass for QkvMerge {
    fn name(&self) -> &'static str {
        "qkv_merge"
    }

    fn rewrite(&self, editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            let node = editor.node(id);
            if let (Op::Attention(attention), [q, k, v, ..]) = (&node.op, node.inputs.as_slice()) {
                let attention = attention.clone();
                let projections = [*q, *k, *v].map(|operand| Projection::of(editor, operand));
                if let Some(members) = mergeable(editor, &projections) {
                    merge(editor, id, attention, &members)?;
                }
            }
        }
        Ok(())
    }
}

/// A linear op that only the attention reads.
struct Projection {
    name: String,
    parts: LinearParts,
    /// The attention's operand, which may be a reshape of the linear op's result.
    operand: TensorType,
}

impl Projection {
    fn of(editor: &Editor, operand: ValueId) -> Option<Projection> {
        let (_, mut node) = editor.sole_producer(operand)?;
        if let Some(rows) = reshaped_rows(editor, node) {
            (_, node) = editor.sole_producer(rows)?;
        }
        let parts = LinearParts::of(node)?;
        let out = editor.ty(operand).shape.channels();
        let plain = matches!(parts.op, Op::Linear(_))
            && out.saturating_mul(size_of::<f32>()) <= MAX_VECTOR_BYTES
            && parts.ends_in_bias()
            && parts.norm().is_none()
            && parts.known(editor) < Phase::Step;
        plain.then(|| Projection { name: node.name.clone(), parts, operand: editor.ty(operand).clone() })
    }

    fn merges_with(&self, other: &Projection, editor: &Editor) -> bool {
        let rows = |p: &Projection| p.operand.shape.with_channels(1);
        let dtype = |v: ValueId| editor.ty(v).dtype;
        let biases = self.parts.bias.zip(other.parts.bias);
        self.parts.x == other.parts.x
            && rows(self) == rows(other)
            && dtype(self.parts.weight) == dtype(other.parts.weight)
            && biases.is_none_or(|(a, b)| dtype(a) == dtype(b))
    }
}

/// The operands of the attention (0 to 2) that can become one product, with their projections: two or three of them.
fn mergeable<'a>(
    editor: &Editor,
    projections: &'a [Option<Projection>; 3],
) -> Option<Vec<(usize, &'a Projection)>> {
    (0..2).find_map(|first| {
        let anchor = projections[first].as_ref()?;
        let mut members = vec![(first, anchor)];
        for (i, other) in projections.iter().enumerate().skip(first + 1) {
            // Compared with each member, not only the first: a missing bias fits any element type.
            if let Some(other) = other
                && members.iter().all(|(_, member)| member.merges_with(other, editor))
            {
                members.push((i, other));
            }
        }
        (members.len() > 1).then_some(members)
    })
}

fn merge(
    editor: &mut Editor,
    id: NodeId,
    mut attention: Attention,
    members: &[(usize, &Projection)],
) -> Result<(), GraphError> {
    let name = merged_name(members.iter().map(|(_, p)| p.name.as_str()));
    let stack = Op::Concat(Concat { axis: 0 });
    let weights: Vec<ValueId> = members.iter().map(|(_, p)| p.parts.weight).collect();
    let weight = editor.add(format!("{name}.weight"), stack.clone(), &weights)?[0];
    let mut inputs = vec![members[0].1.parts.x, weight];

    let bias_dtype = members.iter().find_map(|(_, p)| p.parts.bias).map(|bias| editor.ty(bias).dtype);
    if let Some(dtype) = bias_dtype {
        let biases: Vec<ValueId> = members
            .iter()
            .map(|(_, p)| match p.parts.bias {
                Some(bias) => bias,
                None => {
                    let zeros = Tensor::zeros(TensorType::new(dtype, [p.operand.shape.channels()]));
                    editor.constant(format!("{}.bias", p.name), zeros)
                }
            })
            .collect();
        inputs.push(editor.add(format!("{name}.bias"), stack, &biases)?[0]);
    }
    let linear = Linear { bias: bias_dtype.is_some(), ..Linear::default() };
    let packed = editor.add(name, Op::Linear(linear), &inputs)?[0];
    let channels = editor.ty(packed).shape.channels();
    let packed = reshaped(editor, packed, &members[0].1.operand.shape.with_channels(channels))?;

    let mut operands = editor.node(id).inputs.clone();
    let mut offset = 0;
    for &(i, projection) in members {
        operands[i] = packed;
        attention.offsets[i] += offset;
        offset += projection.operand.shape.channels();
    }
    let name = editor.node(id).name.clone();
    editor.replace_node(id, name, Op::Attention(attention), &operands)?;
    Ok(())
}

/// The common prefix of the names, then the rest of each: `attn1.to_q`, `attn1.to_k`, `attn1.to_v` become
/// `attn1.to_qkv`.
fn merged_name<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    let first = names.clone().next().unwrap_or_default();
    let shared = |prefix: &str| names.clone().all(|n| n.starts_with(prefix));
    let ends = first.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|&end| shared(&first[..end]));
    let prefix = ends.last().unwrap_or(0);
    let rests: Vec<&str> = names.clone().map(|n| &n[prefix..]).collect();
    let separator = if rests.iter().all(|rest| rest.len() <= 1) { "" } else { "+" };
    format!("{}{}", &first[..prefix], rests.join(separator))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FuseNothing, Graph, GraphBuilder, Shape, passes::names};

    fn f32_type(shape: impl Into<Shape>) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    /// Self-attention over 2 images of 2×3 positions and 8 channels; `biased` names the projections with a bias.
    fn graph(biased: &[&str], inspect: impl FnOnce(&mut GraphBuilder, [ValueId; 3])) -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type([2, 2, 3, 8]), Phase::Step).unwrap();
        let qkv = ["to_q", "to_k", "to_v"].map(|name| {
            g.scope("attn1", |g| {
                let w = g.parameter(&format!("{name}.weight"), f32_type([8, 8])).unwrap();
                let b = biased
                    .contains(&name)
                    .then(|| g.parameter(&format!("{name}.bias"), f32_type([8])).unwrap());
                let y = g.linear(name, x, w, b).unwrap();
                g.reshape(&format!("{name}.rows"), y, [2, 6, 8]).unwrap()
            })
        });
        let a = g.attention("attention", qkv, &[], Attention::over_positions(2, 4)).unwrap();
        g.output("y", a).unwrap();
        inspect(&mut g, qkv);
        g.finish()
    }

    fn attention(graph: &Graph) -> (&Attention, &[ValueId]) {
        let node = graph.nodes().iter().find(|n| matches!(n.op, Op::Attention(_))).unwrap();
        match &node.op {
            Op::Attention(op) => (op, &node.inputs),
            _ => unreachable!(),
        }
    }

    #[test]
    fn three_projections_become_one_product() {
        let before = graph(&[], |_, _| {});
        let after = QkvMerge.run(&before, &FuseNothing).unwrap();
        assert_eq!(names(&after), ["attn1.to_qkv.weight", "attn1.to_qkv", "attn1.to_qkv.view", "attention"]);
        let (op, operands) = attention(&after);
        assert_eq!(op.offsets, [0, 8, 16]);
        assert_eq!(operands, [operands[0]; 3]);
        assert_eq!(after.ty(operands[0]), &f32_type([2, 6, 24]));
        assert_eq!(after.step_flops(), before.step_flops());
        let weights: Vec<&str> =
            after.nodes()[0].inputs.iter().map(|&v| after.value(v).name.as_str()).collect();
        assert_eq!(weights, ["attn1.to_q.weight", "attn1.to_k.weight", "attn1.to_v.weight"]);
        // A second run finds nothing.
        assert_eq!(QkvMerge.run(&after, &FuseNothing).unwrap(), after);
    }

    #[test]
    fn weights_of_the_clip_phase_are_merged_and_those_of_the_step_phase_are_not() {
        for (phase, merged) in [(Phase::Clip, true), (Phase::Step, false)] {
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", f32_type([2, 6, 8]), Phase::Step).unwrap();
            let strength = g.input("strength", f32_type([1]), phase).unwrap();
            let qkv = ["q", "k", "v"].map(|name| {
                let mut weight = g.parameter(&format!("{name}.weight"), f32_type([8, 8])).unwrap();
                if name != "k" {
                    weight = g.mul(&format!("{name}.scaled"), weight, strength).unwrap();
                }
                g.linear(name, x, weight, None).unwrap()
            });
            let a = g.attention("attention", qkv, &[], Attention::over_positions(2, 4)).unwrap();
            g.output("y", a).unwrap();
            let after = QkvMerge.run(&g.finish(), &FuseNothing).unwrap();
            let stacked = after.nodes().iter().find(|n| n.name == "qkv.weight");
            assert_eq!(stacked.is_some(), merged);
            if let Some(stacked) = stacked {
                assert_eq!(after.phases()[stacked.outputs[0].index()], Phase::Clip);
            }
        }
    }

    #[test]
    fn a_missing_bias_is_zero() {
        let after = QkvMerge.run(&graph(&["to_v"], |_, _| {}), &FuseNothing).unwrap();
        let bias = after.nodes().iter().find(|n| n.name == "attn1.to_qkv.bias").unwrap();
        assert_eq!(after.ty(bias.outputs[0]), &f32_type([24]));
        assert_eq!(after.value(bias.inputs[2]).source, crate::Source::Parameter);
        let zeros = Tensor::zeros(f32_type([8]));
        assert_eq!(after.value(bias.inputs[0]).source, crate::Source::Constant(zeros));
    }

    #[test]
    fn a_projection_that_something_else_reads_stays_apart() {
        let after = QkvMerge.run(&graph(&[], |g, [q, ..]| g.output("q", q).unwrap()), &FuseNothing).unwrap();
        assert!(names(&after).contains(&"attn1.to_q"));
        assert_eq!(attention(&after).0.offsets, [0, 0, 8]);
        let both = graph(&[], |g, [q, k, _]| {
            g.output("q", q).unwrap();
            g.output("k", k).unwrap();
        });
        assert_eq!(QkvMerge.run(&both, &FuseNothing).unwrap(), both);
    }

    #[test]
    fn cross_attention_merges_keys_and_values_of_any_width() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type([2, 6, 8]), Phase::Step).unwrap();
        let context = g.input("context", f32_type([2, 3, 5]), Phase::Clip).unwrap();
        let wq = g.parameter("q.weight", f32_type([8, 8])).unwrap();
        let wk = g.parameter("k.weight", f32_type([9, 5])).unwrap();
        let wv = g.parameter("v.weight", f32_type([20, 5])).unwrap();
        let q = g.linear("q", x, wq, None).unwrap();
        let k = g.linear("k", context, wk, None).unwrap();
        let v = g.linear("v", context, wv, None).unwrap();
        let op = Attention { offsets: [0, 1, 12], ..Attention::over_positions(2, 4) };
        let a = g.attention("attention", [q, k, v], &[], op).unwrap();
        g.output("y", a).unwrap();
        let after = QkvMerge.run(&g.finish(), &FuseNothing).unwrap();
        assert_eq!(names(&after), ["q", "kv.weight", "kv", "attention"]);
        assert_eq!(attention(&after).0.offsets, [0, 1, 21]);
        assert_eq!(after.phases()[after.nodes()[2].outputs[0].index()], Phase::Clip);
    }

    #[test]
    fn projections_whose_bias_would_be_huge_stay_separate() {
        let most = MAX_VECTOR_BYTES / 4;
        for (channels, merged) in [(most, true), (most + 1, false), (1 << 50, false)] {
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", f32_type([1, 6, 8]), Phase::Step).unwrap();
            let [q, k, v] = ["q", "k", "v"].map(|name| {
                let w = g.parameter(&format!("{name}.weight"), f32_type([channels, 8])).unwrap();
                let b = (name == "q").then(|| g.parameter("q.bias", f32_type([channels])).unwrap());
                g.linear(name, x, w, b).unwrap()
            });
            let a = g.attention("attention", [q, k, v], &[], Attention::over_positions(1, channels)).unwrap();
            g.output("y", a).unwrap();
            let graph = g.finish();
            assert_eq!(QkvMerge.run(&graph, &FuseNothing).unwrap() != graph, merged, "{channels}");
        }
    }

    #[test]
    fn names_are_joined() {
        assert_eq!(merged_name(["a.to_q", "a.to_k"].into_iter()), "a.to_qk");
        assert_eq!(merged_name(["a.query", "a.key", "a.value"].into_iter()), "a.query+key+value");
        assert_eq!(merged_name(["é", "ê"].into_iter()), "é+ê");
    }
}
