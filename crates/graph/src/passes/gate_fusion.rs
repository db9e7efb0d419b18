//! Fuses gates into the matrix product before them.

use super::{
    Pass,
    linear_parts::{LinearParts, View, may_replace},
};
use crate::{Editor, GraphError, NodeId, Op, Target};

/// Puts a gate (GEGLU) into the linear op that it alone reads, so that the tensor of twice the width is never stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct GateFusion;

impl Pass for GateFusion {
    fn name(&self) -> &'static str {
        "gate_fusion"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            if let Some((name, parts)) = gated(editor, target, id) {
                editor.replace_node(id, name, parts.op.clone(), &parts.inputs())?;
            }
        }
        Ok(())
    }
}

/// The linear op before a gate, with the gate in it.
fn gated(editor: &Editor, target: &dyn Target, id: NodeId) -> Option<(String, LinearParts)> {
    let gate = editor.node(id);
    let (Op::Gate(op), &[x]) = (&gate.op, gate.inputs.as_slice()) else { return None };
    let (_, linear) = editor.sole_producer(x)?;
    let mut parts = LinearParts::of(linear).filter(LinearParts::ends_in_bias)?;
    match &mut parts.op {
        Op::Linear(linear) => linear.gate = Some(op.activation),
        _ => return None,
    }
    let operands = View::of(editor, &parts.inputs());
    may_replace(editor, target, &parts.op, &operands, editor.ty(gate.outputs[0]))
        .then(|| (linear.name.clone(), parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DType, FuseAll, FuseNothing, Graph, GraphBuilder, Phase, TensorType,
        op::{Activation, Linear, Stage},
    };

    fn graph(expose: bool, epilogue: bool) -> Graph {
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(&[2, 4]), Phase::Step).unwrap();
        let w = g.parameter("ff.weight", ty(&[16, 4])).unwrap();
        let b = g.parameter("ff.bias", ty(&[16])).unwrap();
        let h = if epilogue {
            let op = Linear { bias: true, epilogue: vec![Stage::Scale(2.0)], ..Linear::default() };
            g.node("ff", Op::Linear(op), &[x, w, b]).unwrap()[0]
        } else {
            g.linear("ff", x, w, Some(b)).unwrap()
        };
        if expose {
            g.output("h", h).unwrap();
        }
        let y = g.geglu("geglu", h).unwrap();
        g.output("y", y).unwrap();
        g.finish()
    }

    #[test]
    fn geglu_goes_into_its_product() {
        let after = GateFusion.run(&graph(false, false), &FuseAll).unwrap();
        assert_eq!(after.nodes().len(), 1);
        let expected = Linear { bias: true, gate: Some(Activation::Gelu), ..Linear::default() };
        assert_eq!(after.nodes()[0].op, Op::Linear(expected));
        assert_eq!(after.nodes()[0].name, "ff");
        assert_eq!(*after.ty(after.outputs()[0].value).shape, [2, 8]);
    }

    #[test]
    fn another_reader_an_epilogue_or_the_backend_prevents_it() {
        assert_eq!(GateFusion.run(&graph(true, false), &FuseAll).unwrap().nodes().len(), 2);
        assert_eq!(GateFusion.run(&graph(false, true), &FuseAll).unwrap().nodes().len(), 2);
        assert_eq!(GateFusion.run(&graph(false, false), &FuseNothing).unwrap().nodes().len(), 2);
    }
}
