//! Computing the same thing once.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::Pass;
use crate::{Editor, Graph, GraphError, Source, Target, TensorType, ValueId};

/// Lets nodes of the same op on the same operands share one result, and constants of the same content one tensor.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommonSubexpressions;

impl Pass for CommonSubexpressions {
    fn name(&self) -> &'static str {
        "common_subexpressions"
    }

    fn run(&self, graph: &Graph, _target: &dyn Target) -> Result<Graph, GraphError> {
        let mut editor = Editor::new(graph);
        merge_constants(&mut editor, graph)?;
        // The text of an op identifies it: floats are written so that they read back as the same number.
        let mut first: HashMap<(String, Vec<ValueId>), Vec<ValueId>> = HashMap::new();
        for id in editor.node_ids() {
            let node = editor.node(id);
            let key = (format!("{:?}", node.op), node.inputs.clone());
            match first.get(&key) {
                Some(results) => editor.bypass(id, results)?,
                None => {
                    first.insert(key, node.outputs.clone());
                }
            }
        }
        editor.finish()
    }
}

fn merge_constants(editor: &mut Editor, graph: &Graph) -> Result<(), GraphError> {
    let mut first: HashMap<(&TensorType, u64), Vec<ValueId>> = HashMap::new();
    for (id, value) in graph.value_ids() {
        let Source::Constant(tensor) = &value.source else { continue };
        let mut hasher = DefaultHasher::new();
        tensor.bytes().hash(&mut hasher);
        let alike = first.entry((&value.ty, hasher.finish())).or_default();
        match alike.iter().find(|&&other| graph.value(other).source == value.source) {
            Some(&other) => editor.replace_uses(id, other)?,
            None => alike.push(id),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FuseNothing, GraphBuilder, Phase, Tensor};

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
