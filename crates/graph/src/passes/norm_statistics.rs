//! Lets products measure what a group norm then reads.

use super::Pass;
use crate::{
    DType, Editor, GraphError, NodeId, Op, Target, ValueId,
    op::{Norm, Statistics},
};

/// Lets a convolution or linear op find the statistics of its result while it has it, so that the group norm after it reads that
/// result once instead of twice. Others may read it as well.
///
/// It runs after all other passes: those know nothing of products with two results. A mean is kept as one number in f32, which has
/// more digits than a 16-bit result has itself; other results stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormStatistics;

impl Pass for NormStatistics {
    fn name(&self) -> &'static str {
        "norm_statistics"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        for id in editor.node_ids() {
            let Some(Match { product, norm, mut inputs }) = Match::of(editor, target, id) else { continue };
            let statistics = match product {
                Product::Measured(statistics) => statistics,
                Product::Plain(product, op) => {
                    let node = editor.node(product);
                    let (name, operands) = (node.name.clone(), node.inputs.clone());
                    let results = editor.replace_node(product, name, *op, &operands)?;
                    inputs[0] = results[0];
                    results[1]
                }
            };
            inputs.push(statistics);
            let name = editor.node(id).name.clone();
            editor.replace_node(id, name, Op::Norm(norm), &inputs)?;
        }
        Ok(())
    }
}

/// What makes the input of a norm.
enum Product {
    /// It measures its result already: another norm reads the same statistics.
    Measured(ValueId),
    /// The node, and the op that measures its result.
    Plain(NodeId, Box<Op>),
}

/// A norm that can be told the statistics of its input.
struct Match {
    product: Product,
    /// The norm that is told.
    norm: Norm,
    inputs: Vec<ValueId>,
}

impl Match {
    fn of(editor: &Editor, target: &dyn Target, id: NodeId) -> Option<Match> {
        let node = editor.node(id);
        let &Op::Norm(norm @ Norm { measured: false, .. }) = &node.op else { return None };
        let wanted = norm.statistics()?;
        let &x = node.inputs.first()?;
        let (producer, made_by) = editor.producer(x)?;
        let narrow = matches!(editor.ty(x).dtype, DType::F16 | DType::BF16);
        // A norm of the step must not bring into the step what is measured of a product of the clip; nor are weights measured.
        if !narrow || editor.phase(x) != editor.phase(node.outputs[0]) {
            return None;
        }
        let mut op = made_by.op.clone();
        let product = match measuring(&mut op)? {
            Some(found) => (*found == wanted).then(|| Product::Measured(made_by.outputs[1]))?,
            none => {
                *none = Some(wanted);
                let operands = editor.types(&made_by.inputs);
                let fits = op.infer(&operands).is_ok() && target.fuses(&op, &operands);
                fits.then_some(Product::Plain(producer, Box::new(op)))?
            }
        };
        Some(Match { product, norm: Norm { measured: true, ..norm }, inputs: node.inputs.clone() })
    }
}

/// What a product measures of its result.
fn measuring(op: &mut Op) -> Option<&mut Option<Statistics>> {
    match op {
        Op::Conv(op) => Some(&mut op.statistics),
        Op::Linear(op) => Some(&mut op.statistics),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FuseAll, FuseNothing, Graph, GraphBuilder, Phase, TensorType,
        op::{Conv, NormKind},
    };

    const GROUPS: NormKind = NormKind::Group { groups: 2, frames: 1 };
    const CLIP: NormKind = NormKind::Group { groups: 2, frames: 2 };

    fn ty(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType::new(dtype, shape)
    }

    /// A convolution of two images, and what follows it.
    fn graph(dtype: DType, after: impl FnOnce(&mut GraphBuilder, ValueId)) -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(dtype, &[2, 3, 4, 8]), Phase::Step).unwrap();
        let w = g.parameter("conv.weight", ty(dtype, &[4, 1, 3, 3, 8])).unwrap();
        let h = g.conv("conv", x, w, None, Conv::spatial([3, 3], 1, 1)).unwrap();
        after(&mut g, h);
        g.finish()
    }

    fn norm(g: &mut GraphBuilder, name: &str, x: ValueId, kind: NormKind) {
        let scale = g.parameter(&format!("{name}.weight"), ty(DType::F16, &[4])).unwrap();
        let shift = g.parameter(&format!("{name}.bias"), ty(DType::F16, &[4])).unwrap();
        let y = g.norm(name, x, kind, 1e-5, Some(scale), Some(shift)).unwrap();
        g.output(name, y).unwrap();
    }

    fn run(graph: &Graph) -> Graph {
        NormStatistics.run(graph, &FuseAll).unwrap()
    }

    /// The names of the norms that are told statistics.
    fn told(graph: &Graph) -> Vec<&str> {
        let told = graph.nodes().iter().filter(|node| matches!(&node.op, Op::Norm(norm) if norm.measured));
        told.map(|node| node.name.as_str()).collect()
    }

    fn statistics_of_product(graph: &Graph) -> Option<Statistics> {
        let node = graph.nodes().iter().find(|node| node.name == "conv").unwrap();
        measuring(&mut node.op.clone()).unwrap().as_ref().copied()
    }

    #[test]
    fn a_convolution_measures_what_a_norm_reads() {
        let before = graph(DType::F16, |g, h| norm(g, "norm", h, CLIP));
        let after = run(&before);
        assert_eq!(told(&after), ["norm"]);
        assert_eq!(statistics_of_product(&after), Some(Statistics { groups: 2, frames: 2 }));
        let [conv, norm] = after.nodes() else { panic!("{:?}", after.nodes()) };
        assert_eq!(norm.inputs[0], conv.outputs[0]);
        assert_eq!(norm.inputs[3], conv.outputs[1]);
        assert_eq!(after.ty(conv.outputs[1]), &ty(DType::F32, &[1, 2, 2]));
        assert_eq!(after.ty(after.outputs()[0].value), before.ty(before.outputs()[0].value));
        // A second time there is nothing to do.
        assert_eq!(run(&after), after);
    }

    #[test]
    fn a_backend_may_refuse() {
        let graph = graph(DType::F16, |g, h| norm(g, "norm", h, GROUPS));
        assert!(told(&NormStatistics.run(&graph, &FuseNothing).unwrap()).is_empty());
    }

    #[test]
    fn others_may_read_the_result() {
        let after = run(&graph(DType::F16, |g, h| {
            g.output("h", h).unwrap();
            norm(g, "norm", h, GROUPS);
            let y = g.add("residual", h, h).unwrap();
            g.output("y", y).unwrap();
        }));
        assert_eq!(told(&after), ["norm"]);
        assert_eq!(after.nodes().len(), 3);
    }

    #[test]
    fn norms_of_the_same_groups_share_statistics_and_others_measure_for_themselves() {
        let after = run(&graph(DType::BF16, |g, h| {
            norm(g, "first", h, GROUPS);
            norm(g, "same", h, GROUPS);
            norm(g, "clip", h, CLIP);
            norm(g, "layer", h, NormKind::Layer);
        }));
        assert_eq!(told(&after), ["first", "same"]);
        assert_eq!(statistics_of_product(&after), Some(Statistics { groups: 2, frames: 1 }));
        assert_eq!(after.nodes().len(), 5);
    }

    #[test]
    fn what_is_not_the_result_of_a_product_in_16_bits_stays() {
        let wide = graph(DType::F32, |g, h| norm(g, "norm", h, GROUPS));
        assert_eq!(run(&wide), wide);
        let sum = graph(DType::F16, |g, h| {
            let h = g.add("sum", h, h).unwrap();
            norm(g, "norm", h, GROUPS);
        });
        assert_eq!(run(&sum), sum);
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(DType::F16, &[2, 3, 4, 4]), Phase::Step).unwrap();
        norm(&mut g, "norm", x, GROUPS);
        let input = g.finish();
        assert_eq!(run(&input), input);
    }
}
