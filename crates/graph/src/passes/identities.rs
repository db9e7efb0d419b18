//! Ops that change nothing.

use super::Pass;
use crate::{Editor, GraphError, NodeId, Op, Target, ValueId, op::Scale};

/// Removes ops that return their operand unchanged: a scale by one, a cast to the same type, a reshape to the same
/// shape, a slice of everything, a concatenation of one operand. Of consecutive reshapes only the last remains.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identities;

impl Pass for Identities {
    fn name(&self) -> &'static str {
        "identities"
    }

    fn rewrite(&self, editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            let id = merge_reshapes(editor, id)?;
            if let Some(same) = unchanged_operand(editor, id) {
                editor.bypass(id, &[same])?;
            }
        }
        Ok(())
    }
}

/// The operand that a node returns unchanged.
fn unchanged_operand(editor: &Editor, id: NodeId) -> Option<ValueId> {
    let node = editor.node(id);
    let &[x] = node.inputs.as_slice() else { return None };
    let same = match &node.op {
        Op::Scale(Scale { factor, offset }) => *factor == 1.0 && *offset == 0.0,
        Op::Cast(_) | Op::Reshape(_) | Op::Slice(_) => editor.ty(x) == editor.ty(node.outputs[0]),
        Op::Concat(_) => true,
        _ => false,
    };
    same.then_some(x)
}

/// Makes a reshape of a reshape read what the first one reads. Returns the node that replaces it.
fn merge_reshapes(editor: &mut Editor, id: NodeId) -> Result<NodeId, GraphError> {
    let node = editor.node(id);
    if let (Op::Reshape(_), &[x]) = (&node.op, node.inputs.as_slice())
        && let Some((_, inner)) = editor.producer(x)
        && let (Op::Reshape(_), &[source]) = (&inner.op, inner.inputs.as_slice())
    {
        let (name, op) = (node.name.clone(), node.op.clone());
        let new = editor.replace_node(id, name, op, &[source])?;
        return Ok(editor.producer(new[0]).map_or(id, |(new, _)| new));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FuseNothing, Graph, GraphBuilder, Phase, TensorType, passes::names};

    fn run(build: impl FnOnce(&mut GraphBuilder, ValueId) -> ValueId) -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType::new(DType::F32, [2, 6]), Phase::Step).unwrap();
        let y = build(&mut g, x);
        // Something after it, so that a removed op has a reader to redirect.
        let z = g.scale("last", y, 2.0, 0.0).unwrap();
        g.output("z", z).unwrap();
        Identities.run(&g.finish(), &FuseNothing).unwrap()
    }

    #[test]
    fn ops_that_change_nothing_go() {
        let graph = run(|g, x| {
            let x = g.scale("scale", x, 1.0, 0.0).unwrap();
            let x = g.cast("cast", x, DType::F32).unwrap();
            let x = g.reshape("reshape", x, [2, 6]).unwrap();
            let x = g.slice("slice", x, 1, 0, 6).unwrap();
            g.concat("concat", &[x], 0).unwrap()
        });
        assert_eq!(names(&graph), ["last"]);
        assert_eq!(graph.nodes()[0].inputs, graph.inputs());
    }

    #[test]
    fn ops_that_change_something_stay() {
        let graph = run(|g, x| {
            let x = g.scale("factor", x, 1.5, 0.0).unwrap();
            let x = g.scale("offset", x, 1.0, 1.0).unwrap();
            let x = g.cast("cast", x, DType::F16).unwrap();
            let x = g.slice("slice", x, 1, 1, 5).unwrap();
            g.concat("concat", &[x, x], 0).unwrap()
        });
        assert_eq!(names(&graph), ["factor", "offset", "cast", "slice", "concat", "last"]);
    }

    #[test]
    fn of_reshapes_in_a_row_the_last_remains_or_none() {
        let graph = run(|g, x| {
            let x = g.reshape("a", x, [12]).unwrap();
            let x = g.reshape("b", x, [3, 4]).unwrap();
            g.reshape("c", x, [4, 3]).unwrap()
        });
        assert_eq!(names(&graph), ["c", "last"]);
        let there_and_back = run(|g, x| {
            let x = g.reshape("a", x, [12]).unwrap();
            let x = g.reshape("b", x, [3, 4]).unwrap();
            g.reshape("c", x, [2, 6]).unwrap()
        });
        assert_eq!(names(&there_and_back), ["last"]);
    }

    #[test]
    fn a_result_of_the_graph_can_be_redirected() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType::new(DType::F32, [2]), Phase::Step).unwrap();
        let y = g.scale("s", x, 1.0, 0.0).unwrap();
        g.output("y", y).unwrap();
        let graph = Identities.run(&g.finish(), &FuseNothing).unwrap();
        assert_eq!(graph.outputs()[0].value, graph.inputs()[0]);
        assert_eq!(graph.outputs()[0].name, "y");
    }
}
