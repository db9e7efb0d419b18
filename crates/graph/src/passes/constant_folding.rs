//! Computing what depends on constants alone.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::Pass;
use crate::{Editor, GraphError, Node, NodeId, Op, Source, Target, Tensor, TensorType};

/// Evaluates a node on the host. The caller provides it, because this crate runs nothing.
pub trait Evaluate {
    /// The node's results, or `None` to leave the node as it is.
    fn evaluate(&self, node: &Node, inputs: &[&Tensor]) -> Option<Vec<Tensor>>;
}

/// Replaces nodes whose operands are all constants by their results. A reshape or a cast needs no evaluator.
#[derive(Clone, Copy, Default)]
pub struct ConstantFolding<'a> {
    /// Computes the other ops.
    pub evaluator: Option<&'a dyn Evaluate>,
}

/// A constant is part of the graph and of its file: a larger result is better computed when the weights are loaded. A network has
/// hundreds of constants, so that a plan must not take much memory for each.
const MAX_BYTES: usize = 1 << 20;

impl Pass for ConstantFolding<'_> {
    fn name(&self) -> &'static str {
        "constant_folding"
    }

    fn rewrite(&self, editor: &mut Editor, _target: &dyn Target) -> Result<(), GraphError> {
        let mut folded = Folded::default();
        for id in editor.node_ids() {
            if let Some(results) = self.results(editor, id, &mut folded) {
                let name = editor.node(id).name.clone();
                let constants: Vec<_> = results.into_iter().map(|t| editor.constant(&name, t)).collect();
                editor.bypass(id, &constants)?;
            }
        }
        Ok(())
    }
}

impl ConstantFolding<'_> {
    /// The results of a node that depends on constants alone.
    fn results(&self, editor: &Editor, id: NodeId, folded: &mut Folded) -> Option<Vec<Tensor>> {
        let node = editor.node(id);
        let constant = |&v| match &editor.value(v).source {
            Source::Constant(tensor) => Some(tensor),
            _ => None,
        };
        let inputs = node.inputs.iter().map(constant).collect::<Option<Vec<&Tensor>>>()?;
        let first = inputs.first()?;
        let types: Vec<&TensorType> = editor.types(&node.outputs);
        if types.iter().map(|ty| ty.bytes()).fold(0, usize::saturating_add) > MAX_BYTES {
            return None;
        }
        let results = match &node.op {
            Op::Reshape(op) => vec![first.reshape(op.shape.clone()).ok()?],
            Op::Cast(dtype) => vec![first.cast(*dtype)],
            op => {
                let evaluator = self.evaluator?;
                folded.results(op, &inputs, || evaluator.evaluate(node, &inputs))?
            }
        };
        // An evaluator that returns other types has not evaluated this node.
        results.iter().map(Tensor::ty).eq(types).then_some(results)
    }
}

/// Ops that were evaluated, by their text and a hash of their operands. The blocks of a network ask for the same over and
/// over: the embedding of the frames' numbers, for one.
#[derive(Default)]
struct Folded(HashMap<(String, u64), Vec<Evaluated>>);

struct Evaluated {
    operands: Vec<Tensor>,
    results: Vec<Tensor>,
}

impl Folded {
    /// The results of an op: those that it had before on the same operands, or else what is evaluated now.
    fn results(
        &mut self,
        op: &Op,
        operands: &[&Tensor],
        evaluate: impl FnOnce() -> Option<Vec<Tensor>>,
    ) -> Option<Vec<Tensor>> {
        let mut hasher = DefaultHasher::new();
        operands.iter().for_each(|operand| operand.bytes().hash(&mut hasher));
        let alike = self.0.entry((format!("{op:?}"), hasher.finish())).or_default();
        if let Some(same) = alike.iter().find(|other| other.operands.iter().eq(operands.iter().copied())) {
            return Some(same.results.clone());
        }
        let results = evaluate()?;
        let operands = operands.iter().copied().cloned().collect();
        alike.push(Evaluated { operands, results: results.clone() });
        Some(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FuseNothing, Graph, GraphBuilder, Phase, ValueId};

    /// Knows sums of equal shapes.
    struct Adder;

    impl Evaluate for Adder {
        fn evaluate(&self, node: &Node, inputs: &[&Tensor]) -> Option<Vec<Tensor>> {
            if node.op != Op::Add {
                return None;
            }
            let sum: Vec<f32> =
                inputs[0].to_f32().iter().zip(inputs[1].to_f32()).map(|(a, b)| a + b).collect();
            Some(vec![Tensor::from_slice(inputs[0].shape().clone(), &sum).unwrap()])
        }
    }

    fn constant(g: &mut GraphBuilder, name: &str, elements: &[f32]) -> ValueId {
        g.constant(name, Tensor::from_slice([elements.len()], elements).unwrap()).unwrap()
    }

    fn result(graph: &Graph) -> Option<&Tensor> {
        match &graph.value(graph.outputs()[0].value).source {
            Source::Constant(tensor) => Some(tensor),
            _ => None,
        }
    }

    #[test]
    fn a_chain_of_constants_becomes_one() {
        let mut g = GraphBuilder::new("g");
        let a = constant(&mut g, "a", &[1.0, 2.0]);
        let b = constant(&mut g, "b", &[10.0, 20.0]);
        let sum = g.add("sum", a, b).unwrap();
        let wide = g.reshape("wide", sum, [1, 2]).unwrap();
        let bytes = g.cast("bytes", wide, DType::U8).unwrap();
        g.output("y", bytes).unwrap();
        let graph = g.finish();
        let folded = ConstantFolding { evaluator: Some(&Adder) }.run(&graph, &FuseNothing).unwrap();
        assert!(folded.nodes().is_empty());
        let expected = Tensor::from_slice([1, 2], &[11u8, 22]).unwrap();
        assert_eq!(result(&folded), Some(&expected));

        let without = ConstantFolding::default().run(&graph, &FuseNothing).unwrap();
        assert_eq!(without.nodes().len(), 3);
    }

    /// Knows sums, and counts how many it was asked for.
    #[derive(Default)]
    struct Counting(std::cell::Cell<usize>);

    impl Evaluate for Counting {
        fn evaluate(&self, node: &Node, inputs: &[&Tensor]) -> Option<Vec<Tensor>> {
            self.0.set(self.0.get() + 1);
            Adder.evaluate(node, inputs)
        }
    }

    #[test]
    fn the_same_op_on_the_same_numbers_is_evaluated_once() {
        let mut g = GraphBuilder::new("g");
        for (i, [a, b]) in [[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [1.0, -0.0], [1.0, 0.0]].iter().enumerate() {
            let a = constant(&mut g, &format!("a{i}"), &[*a]);
            let b = constant(&mut g, &format!("b{i}"), &[*b]);
            let sum = g.add(&format!("sum{i}"), a, b).unwrap();
            g.output(&format!("y{i}"), sum).unwrap();
        }
        let evaluator = Counting::default();
        let folded = ConstantFolding { evaluator: Some(&evaluator) }.run(&g.finish(), &FuseNothing).unwrap();
        let sums: Vec<f32> = folded
            .outputs()
            .iter()
            .filter_map(|output| match &folded.value(output.value).source {
                Source::Constant(tensor) => Some(tensor.to_f32()[0]),
                _ => None,
            })
            .collect();
        assert_eq!(sums, [3.0, 3.0, 3.0, 1.0, 1.0]);
        // The second is the first again; a negative zero is another number.
        assert_eq!(evaluator.0.get(), 4);
    }

    #[test]
    fn parameters_inputs_and_unknown_ops_are_left() {
        let mut g = GraphBuilder::new("g");
        let a = constant(&mut g, "a", &[1.0, 2.0]);
        let w = g.parameter("w", TensorType::new(DType::F32, [2])).unwrap();
        let x = g.input("x", TensorType::new(DType::F32, [2]), Phase::Clip).unwrap();
        for (i, node) in [g.add("p", a, w), g.add("i", x, a), g.mul("m", a, a)].into_iter().enumerate() {
            g.output(&format!("y{i}"), node.unwrap()).unwrap();
        }
        let graph = g.finish();
        assert_eq!(
            ConstantFolding { evaluator: Some(&Adder) }.run(&graph, &FuseNothing).unwrap().nodes().len(),
            3
        );
    }

    #[test]
    fn a_result_too_large_for_a_file_is_left() {
        let mut g = GraphBuilder::new("g");
        let a = g.constant("a", Tensor::zeros(TensorType::new(DType::U8, [MAX_BYTES / 4 + 1]))).unwrap();
        let y = g.cast("y", a, DType::F32).unwrap();
        g.output("y", y).unwrap();
        let graph = g.finish();
        assert_eq!(ConstantFolding::default().run(&graph, &FuseNothing).unwrap(), graph);
    }
}
