//! Fuses norms into the convolution or matrix product after them.

use super::{
    Pass,
    linear_parts::{LinearParts, View, may_replace, reshaped_rows},
};
use crate::{
    Editor, GraphError, NodeId, Op, Shape, Target,
    op::{Norm, NormKind},
};

/// Makes a norm, with the activation it applies, the prologue of the convolution or linear op that is its only reader.
/// A reshape between the two moves before the norm if that does not change the statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormPrologue;

impl Pass for NormPrologue {
    fn name(&self) -> &'static str {
        "norm_prologue"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        if editor.graph().calibration().is_some() {
            // A norm before products in 8 bits writes them.
            return Ok(());
        }
        for id in editor.node_ids() {
            if let Some((op, operands)) = with_prologue(editor, target, id) {
                let inputs = View::materialise(editor, &operands)?;
                let name = editor.node(id).name.clone();
                editor.replace_node(id, name, op, &inputs)?;
            }
        }
        Ok(())
    }
}

/// A convolution or linear op with the norm before it as its prologue.
fn with_prologue(editor: &Editor, target: &dyn Target, id: NodeId) -> Option<(Op, Vec<View>)> {
    let node = editor.node(id);
    let mut parts = LinearParts::of(node)?;
    // A norm that runs once per clip must not move into an op that runs at every step.
    if parts.norm().is_some() || editor.phase(parts.x) != editor.phase(node.outputs[0]) {
        return None;
    }
    let shape = editor.ty(parts.x).shape.clone();
    let (_, mut producer) = editor.sole_producer(parts.x)?;
    if let Some(rows) = reshaped_rows(editor, producer) {
        (_, producer) = editor.sole_producer(rows)?;
    }
    let (&Op::Norm(norm), [x, learned @ ..]) = (&producer.op, producer.inputs.as_slice()) else {
        return None;
    };
    if !same_statistics(&norm, &editor.ty(*x).shape, &shape) {
        return None;
    }
    parts.x = *x;
    parts.set_norm(norm, learned);
    let mut operands = View::of(editor, &parts.inputs());
    operands[0].shape = shape;
    may_replace(editor, target, &parts.op, &operands, editor.ty(node.outputs[0]))
        .then_some((parts.op, operands))
}

/// Whether a norm sees the same groups of elements under both shapes, which have the same channels.
pub(super) fn same_statistics(norm: &Norm, from: &Shape, to: &Shape) -> bool {
    match norm.kind {
        NormKind::Group { .. } => from.first() == to.first(),
        NormKind::Layer | NormKind::Rms => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DType, FuseAll, FuseNothing, Graph, GraphBuilder, Phase, TensorType, ValueId,
        op::{Affine, Conv, Linear, Stage},
    };

    fn f32_type(shape: impl Into<Shape>) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    const GROUP: NormKind = NormKind::Group { groups: 2, frames: 1 };

    fn graph(kind: NormKind, after: impl FnOnce(&mut GraphBuilder, ValueId)) -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type([2, 2, 3, 8]), Phase::Step).unwrap();
        let scale = g.parameter("norm.weight", f32_type([8])).unwrap();
        let shift = g.parameter("norm.bias", f32_type([8])).unwrap();
        let h = g.norm("norm", x, kind, 1e-5, Some(scale), Some(shift)).unwrap();
        after(&mut g, h);
        g.finish()
    }

    fn projection(g: &mut GraphBuilder, h: ValueId, shape: &[usize]) {
        let h = g.reshape("rows", h, shape).unwrap();
        let w = g.parameter("proj.weight", f32_type([4, 8])).unwrap();
        let y = g.linear("proj", h, w, None).unwrap();
        g.output("y", y).unwrap();
    }

    #[test]
    fn a_norm_goes_into_the_convolution_after_it() {
        let conv = |g: &mut GraphBuilder, h| {
            let w = g.parameter("conv.weight", f32_type([4, 1, 3, 3, 8])).unwrap();
            let b = g.parameter("conv.bias", f32_type([4])).unwrap();
            let y = g.conv("conv", h, w, Some(b), Conv::spatial([3, 3], 1, 1)).unwrap();
            g.output("y", y).unwrap();
        };
        let before = graph(GROUP, conv);
        let after = NormPrologue.run(&before, &FuseAll).unwrap();
        assert_eq!(after.nodes().len(), 1);
        let node = &after.nodes()[0];
        let operands: Vec<&str> = node.inputs.iter().map(|&v| after.value(v).name.as_str()).collect();
        assert_eq!(operands, ["x", "conv.weight", "conv.bias", "norm.weight", "norm.bias"]);
        assert!(
            matches!(&node.op, Op::Conv(c) if c.prologue.is_some_and(|n| n.affine == Affine::ScaleShift))
        );
        assert_eq!(NormPrologue.run(&before, &FuseNothing).unwrap().nodes().len(), 2);
    }

    #[test]
    fn a_reshape_moves_before_the_norm_if_the_statistics_allow() {
        let names = |graph: &Graph| graph.nodes().iter().map(|n| n.name.clone()).collect::<Vec<_>>();
        let run = |kind, shape: &[usize]| {
            names(&NormPrologue.run(&graph(kind, |g, h| projection(g, h, shape)), &FuseAll).unwrap())
        };
        assert_eq!(run(GROUP, &[2, 6, 8]), ["x.view", "proj"]);
        assert_eq!(run(GROUP, &[12, 8]), ["norm", "rows", "proj"]);
        assert_eq!(run(NormKind::Layer, &[12, 8]), ["x.view", "proj"]);
        // Here the reshape changes what a channel is.
        let split = graph(NormKind::Layer, |g, h| {
            let h = g.reshape("rows", h, [24, 4]).unwrap();
            let w = g.parameter("proj.weight", f32_type([4, 4])).unwrap();
            let y = g.linear("proj", h, w, None).unwrap();
            g.output("y", y).unwrap();
        });
        assert_eq!(names(&NormPrologue.run(&split, &FuseAll).unwrap()), ["norm", "rows", "proj"]);
    }

    #[test]
    fn a_norm_that_something_else_reads_stays() {
        let shared = graph(GROUP, |g, h| {
            projection(g, h, &[2, 6, 8]);
            g.output("h", h).unwrap();
        });
        assert_eq!(NormPrologue.run(&shared, &FuseAll).unwrap().nodes().len(), 3);
        // Read twice by one op: as its input and as its residual.
        let twice = graph(GROUP, |g, h| {
            let w = g.parameter("proj.weight", f32_type([8, 8])).unwrap();
            let op = Linear { epilogue: vec![Stage::Add], ..Linear::default() };
            let y = g.node("proj", Op::Linear(op), &[h, w, h]).unwrap()[0];
            g.output("y", y).unwrap();
        });
        assert_eq!(NormPrologue.run(&twice, &FuseAll).unwrap().nodes().len(), 2);
    }

    #[test]
    fn a_norm_of_the_clip_stays_out_of_an_op_of_the_step() {
        let mut g = GraphBuilder::new("g");
        let context = g.input("context", f32_type([2, 8]), Phase::Clip).unwrap();
        let residual = g.input("residual", f32_type([2, 8]), Phase::Step).unwrap();
        let w = g.parameter("proj.weight", f32_type([8, 8])).unwrap();
        let h = g.norm("norm", context, NormKind::Layer, 1e-5, None, None).unwrap();
        let op = Linear { epilogue: vec![Stage::Add], ..Linear::default() };
        let y = g.node("proj", Op::Linear(op), &[h, w, residual]).unwrap()[0];
        g.output("y", y).unwrap();
        assert_eq!(NormPrologue.run(&g.finish(), &FuseAll).unwrap().nodes().len(), 2);
    }
}
