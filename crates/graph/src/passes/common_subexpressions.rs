//! Computing the same thing once.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    mem::{Discriminant, discriminant},
};

use super::Pass;
use crate::{Editor, Graph, GraphError, NodeId, Op, Source, Target, Tensor, TensorType, ValueId};

/// Lets nodes of the same op on the same operands share one result, and constants of the same content one tensor.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommonSubexpressions;

impl Pass for CommonSubexpressions {
    fn name(&self) -> &'static str {
        "common_subexpressions"
    }

    fn rewrite(&self, editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        for (id, other) in equal_constants(editor.graph()) {
            editor.replace_uses(id, other)?;
        }
        let mut first: HashMap<(Discriminant<Op>, Vec<ValueId>), Vec<NodeId>> = HashMap::new();
        for id in editor.node_ids() {
            let node = editor.node(id);
            let alike = first.entry((discriminant(&node.op), node.inputs.clone())).or_default();
            match alike.iter().find(|&&other| same_text(&editor.node(other).op, &node.op)) {
                Some(&other) => editor.bypass(id, &editor.node(other).outputs.clone())?,
                None => alike.push(id),
            }
        }
        Ok(())
    }
}

/// Whether two ops are the same. Their text says so: floats are written so that they read back as the same number, and with
/// their sign. It takes long to write, but few nodes have the kind and the operands of another.
fn same_text(a: &Op, b: &Op) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

/// The constants that have the content of another, each with the first of its kind.
fn equal_constants(graph: &Graph) -> Vec<(ValueId, ValueId)> {
    let constants = || {
        graph.value_ids().filter_map(|(id, value)| match &value.source {
            Source::Constant(tensor) => Some((id, tensor)),
            _ => None,
        })
    };
    let mut of_type: HashMap<&TensorType, usize> = HashMap::new();
    constants().for_each(|(_, tensor)| *of_type.entry(tensor.ty()).or_default() += 1);
    let mut first: HashMap<(&TensorType, u64), Vec<(ValueId, &Tensor)>> = HashMap::new();
    let mut equal = Vec::new();
    // Most have a type of their own, and need not be read.
    for (id, tensor) in constants().filter(|(_, tensor)| of_type[tensor.ty()] > 1) {
        let mut hasher = DefaultHasher::new();
        tensor.bytes().hash(&mut hasher);
        let alike = first.entry((tensor.ty(), hasher.finish())).or_default();
        match alike.iter().find(|(_, other)| *other == tensor) {
            Some(&(other, _)) => equal.push((id, other)),
            None => alike.push((id, tensor)),
        }
    }
    equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FuseNothing, GraphBuilder, Phase};

    #[test]
    fn equal_chains_are_computed_once() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType::new(DType::F32, [2]), Phase::Step).unwrap();
        let mut ends = Vec::new();
        for branch in ["a", "b"] {
            let one = g.constant("one", Tensor::from_slice([1], &[1f32]).unwrap()).unwrap();
            let h = g.add(&format!("{branch}.add"), x, one).unwrap();
            ends.push(g.scale(&format!("{branch}.scale"), h, 2.0, 0.0).unwrap());
        }
        let y = g.mul("mul", ends[0], ends[1]).unwrap();
        g.output("y", y).unwrap();
        g.output("also", ends[1]).unwrap();
        let graph = CommonSubexpressions.run(&g.finish(), &FuseNothing).unwrap();
        let names: Vec<&str> = graph.nodes().iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["a.add", "a.scale", "mul"]);
        assert_eq!(graph.nodes()[2].inputs[0], graph.nodes()[2].inputs[1]);
        assert_eq!(graph.outputs()[1].value, graph.nodes()[1].outputs[0]);
        assert_eq!(graph.values().iter().filter(|v| v.name == "one").count(), 1);
    }

    #[test]
    fn other_attributes_operands_or_constants_are_other_values() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType::new(DType::F32, [2]), Phase::Step).unwrap();
        let one = g.constant("c", Tensor::from_slice([1], &[1f32]).unwrap()).unwrap();
        let flat_one = g.constant("c", Tensor::from_slice([1, 1], &[1f32]).unwrap()).unwrap();
        let two = g.constant("c", Tensor::from_slice([1], &[2f32]).unwrap()).unwrap();
        let nodes = [
            g.scale("s", x, 2.0, 0.0),
            g.scale("s", x, f32::from_bits(2f32.to_bits() + 1), 0.0),
            g.add("a", x, one),
            g.add("a", x, two),
            g.add("a", one, x),
            g.add("a", x, flat_one),
        ];
        for (i, node) in nodes.into_iter().enumerate() {
            g.output(&format!("y{i}"), node.unwrap()).unwrap();
        }
        let graph = CommonSubexpressions.run(&g.finish(), &FuseNothing).unwrap();
        assert_eq!(graph.nodes().len(), 6);
    }
}
