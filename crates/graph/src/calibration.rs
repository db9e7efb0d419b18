//! What was measured of a network's activations, so that products of them can be done in 8 bits.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use crate::{
    Editor, Graph, GraphError, Node, Op, Output, Phase, Shape, Source, ValueId,
    op::{Pool, PoolKind, Reshape, Scale},
};

/// The largest size of the numbers that each product of a network multiplies by a weight, by the weight's name.
pub type Largest = BTreeMap<String, f32>;

impl Graph {
    /// The same graph, whose products are done in 8 bits where a backend can and their activations were measured:
    /// [`Quantisation`](crate::passes::Quantisation) does it, after all other passes.
    #[must_use]
    pub fn calibrated(mut self, largest: Arc<Largest>) -> Graph {
        self.calibration = Some(largest);
        self
    }

    /// What was measured, if its products are to be done in 8 bits.
    pub fn calibration(&self) -> Option<&Arc<Largest>> {
        self.calibration.as_ref()
    }
}

/// A result that tells how large activations are: its elements are the largest of some of them, whose sign it may have turned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The result's name.
    pub output: String,
    /// The weight by which those activations are multiplied.
    pub weight: String,
}

/// A graph with a result, or two, for each product of the step phase with a weight: the largest elements of its activation, and of
/// its opposite. Two products of the same activation share them.
///
/// # Errors
/// If an op refuses what was added: a bug here, not in the graph.
pub fn measured(graph: &Graph) -> Result<(Graph, Vec<Measurement>), GraphError> {
    let mut editor = Editor::new(graph);
    let (mut outputs, mut measurements) = (Vec::new(), Vec::new());
    let mut seen: BTreeMap<ValueId, usize> = BTreeMap::new();
    for id in editor.node_ids() {
        let node = editor.node(id).clone();
        let Some((x, weight)) = product(&editor, &node) else { continue };
        if editor.phase(x) != Phase::Step || editor.ty(x).elements() == 0 {
            continue;
        }
        let number = match seen.get(&x) {
            Some(&number) => number,
            None => {
                let number = seen.len();
                for (factor, side) in SIDES {
                    let name = format!("calibration.{number}.{side}");
                    let value = largest(&mut editor, &name, x, factor)?;
                    outputs.push(Output { name, value });
                }
                seen.insert(x, number);
                number
            }
        };
        let measurement = |(_, side): (f32, &str)| Measurement {
            output: format!("calibration.{number}.{side}"),
            weight: weight.clone(),
        };
        measurements.extend(SIDES.map(measurement));
    }
    Ok((editor.finish_with(outputs)?, measurements))
}

/// What activations are multiplied by before the largest is found.
const SIDES: [(f32, &str); 2] = [(1.0, "largest"), (-1.0, "smallest")];

/// The activation and the parameter of a product with a weight.
fn product(editor: &Editor, node: &Node) -> Option<(ValueId, String)> {
    let (Op::Conv(_) | Op::Linear(_)) = node.op else { return None };
    let &[x, weight, ..] = node.inputs.as_slice() else { return None };
    Some((x, parameter_of(editor, weight)?))
}

/// A parameter that a weight was made of.
pub(crate) fn parameter_of(editor: &Editor, weight: ValueId) -> Option<String> {
    let (mut pending, mut seen) = (vec![weight], HashSet::new());
    while let Some(value) = pending.pop() {
        match editor.value(value).source {
            // A norm's scale or a bias may be part of it, but has one axis.
            Source::Parameter if editor.ty(value).shape.len() > 1 => {
                return Some(editor.value(value).name.clone());
            }
            Source::Node { .. } if seen.insert(value) => {
                // The first operand is looked at first.
                pending.extend(
                    editor.producer(value).into_iter().flat_map(|(_, node)| node.inputs.iter().rev()),
                );
            }
            _ => {}
        }
    }
    None
}

/// The largest element of each channel of `factor · x`.
fn largest(editor: &mut Editor, name: &str, x: ValueId, factor: f32) -> Result<ValueId, GraphError> {
    let shape = editor.ty(x).shape.clone();
    let channels = shape.channels();
    let rows = shape.rows();
    let images = if shape.len() > 1 { shape[0] } else { 1 };
    let mut value = x;
    if factor != 1.0 {
        let scale = Op::Scale(Scale { factor, offset: 0.0 });
        value = editor.add(format!("{name}.scaled"), scale, &[value])?[0];
    }
    for [images, rows] in [[images, rows / images], [1, images]] {
        let view = Op::Reshape(Reshape { shape: Shape::from([images, rows, 1, channels]) });
        value = editor.add(format!("{name}.rows"), view, &[value])?[0];
        let pool = Pool { kind: PoolKind::Max, kernel: [rows, 1], stride: [rows, 1], padding: [0; 2] };
        value = editor.add(format!("{name}.max"), Op::Pool(pool), &[value])?[0];
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, GraphBuilder, TensorType, op::Conv};

    fn ty(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F16, shape)
    }

    #[test]
    fn every_product_of_a_step_is_measured_once_for_each_activation() {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(&[2, 3, 4, 8]), Phase::Step).unwrap();
        let known = g.input("known", ty(&[2, 8]), Phase::Clip).unwrap();
        let conv_weight = g.parameter("conv.weight", ty(&[16, 1, 3, 3, 8])).unwrap();
        let [first, second, early] = ["first.weight", "second.weight", "early.weight"]
            .map(|name| g.parameter(name, ty(&[4, 8])).unwrap());
        let a = g.conv("conv", x, conv_weight, None, Conv::spatial([3, 3], 1, 1)).unwrap();
        let b = g.linear("first", x, first, None).unwrap();
        let c = g.linear("second", x, second, None).unwrap();
        let d = g.linear("early", known, early, None).unwrap();
        for (name, value) in [("a", a), ("b", b), ("c", c), ("d", d)] {
            g.output(name, value).unwrap();
        }
        let (graph, measurements) = measured(&g.finish()).unwrap();
        let weights: HashSet<&str> = measurements.iter().map(|one| one.weight.as_str()).collect();
        assert_eq!(weights, ["conv.weight", "first.weight", "second.weight"].into());
        let outputs: HashSet<&str> = measurements.iter().map(|one| one.output.as_str()).collect();
        assert_eq!(outputs.len(), 2);
        assert_eq!(graph.outputs().len(), 6);
        for output in &graph.outputs()[4..] {
            assert_eq!(graph.ty(output.value), &ty(&[1, 1, 1, 8]));
        }
    }
}
