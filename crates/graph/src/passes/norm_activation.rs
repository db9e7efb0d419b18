//! Fuses activations into the norm before them.

use super::{
    Pass,
    linear_parts::{View, may_replace},
};
use crate::{Editor, GraphError, NodeId, Op, Target, ValueId, op::Norm};

/// Lets a norm apply the activation that is the only reader of its result, in the same pass over memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormActivation;

impl Pass for NormActivation {
    fn name(&self) -> &'static str {
        "norm_activation"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            if let Some((name, op, inputs)) = activated(editor, target, id) {
                editor.replace_node(id, name, op, &inputs)?;
            }
        }
        Ok(())
    }
}

/// The norm before an activation, with the activation in it.
fn activated(editor: &Editor, target: &dyn Target, id: NodeId) -> Option<(String, Op, Vec<ValueId>)> {
    let node = editor.node(id);
    let (&Op::Activate(activation), &[x]) = (&node.op, node.inputs.as_slice()) else { return None };
    let (_, producer) = editor.sole_producer(x)?;
    let &Op::Norm(norm @ Norm { activation: None, .. }) = &producer.op else { return None };
    let op = Op::Norm(Norm { activation: Some(activation), ..norm });
    let operands = View::of(editor, &producer.inputs);
    may_replace(editor, target, &op, &operands, editor.ty(node.outputs[0]))
        .then(|| (producer.name.clone(), op, producer.inputs.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DType, FuseAll, FuseNothing, Graph, GraphBuilder, Phase, TensorType,
        op::{Activation, NormKind},
    };

    fn graph(expose: bool) -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType::new(DType::F32, [2, 4, 4, 8]), Phase::Step).unwrap();
        let h = g.norm("norm", x, NormKind::Group { groups: 2, frames: 1 }, 1e-5, None, None).unwrap();
        let a = g.activate("silu", h, Activation::Silu).unwrap();
        // A norm applies one activation; the second stays.
        let b = g.activate("tanh", a, Activation::Tanh).unwrap();
        g.output("y", b).unwrap();
        if expose {
            g.output("h", h).unwrap();
        }
        g.finish()
    }

    #[test]
    fn a_norm_takes_one_activation() {
        let after = NormActivation.run(&graph(false), &FuseAll).unwrap();
        let names: Vec<&str> = after.nodes().iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["norm", "tanh"]);
        assert!(matches!(&after.nodes()[0].op, Op::Norm(n) if n.activation == Some(Activation::Silu)));
    }

    #[test]
    fn another_reader_or_the_backend_prevents_it() {
        assert_eq!(NormActivation.run(&graph(true), &FuseAll).unwrap().nodes().len(), 3);
        assert_eq!(NormActivation.run(&graph(false), &FuseNothing).unwrap().nodes().len(), 3);
    }
}
