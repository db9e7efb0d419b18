//! What was measured of a network's activations, so that products of them can be done in 8 bits.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use crate::{
    Editor, Graph, GraphError, Node, Op, Output, Phase, Shape, Source, Tensor, ValueId,
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

    /// How many products with a weight it does in 8 bits, after all passes.
    pub fn quantised_products(&self) -> usize {
        let quantised = |op: &Op| match op {
            Op::Linear(op) => op.quantised.is_some(),
            Op::Conv(op) => op.quantised.is_some(),
            _ => false,
        };
        self.nodes().iter().filter(|node| quantised(&node.op)).count()
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

/// A graph with two results for each product of the step phase with one of the chosen weights: the largest elements of its activation,
/// and of its opposite. Two products of the same activation share them.
///
/// # Errors
/// If an op refuses what was added: a bug here, not in the graph.
pub fn measured(
    graph: &Graph,
    chosen: impl Fn(&str) -> bool,
) -> Result<(Graph, Vec<Measurement>), GraphError> {
    let mut editor = Editor::new(graph);
    let (mut outputs, mut measurements) = (Vec::new(), Vec::new());
    let mut seen: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (x, weight) in products(&editor).filter(|(_, weight)| chosen(weight)).collect::<Vec<_>>() {
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

/// Takes up what a run of a [`measured`] graph has found: `result` reads one of its results.
pub fn record(
    largest: &mut Largest,
    measurements: &[Measurement],
    mut result: impl FnMut(&str) -> Option<Tensor>,
) {
    let mut read: BTreeMap<&str, f32> = BTreeMap::new();
    for Measurement { output, weight } in measurements {
        let size = *read.entry(output).or_insert_with(|| {
            let values = result(output).map(|tensor| tensor.to_f32()).unwrap_or_default();
            values.into_iter().fold(0.0, f32::max)
        });
        // A network whose numbers are not finite fails elsewhere; one of zeros has nothing to measure.
        if size.is_finite() && size > 0.0 {
            let known = largest.entry(weight.clone()).or_insert(size);
            *known = known.max(size);
        }
    }
}

/// What stands for the measurements of a graph that has not run: neither its plan nor its kernels depend on the numbers.
pub fn assumed(graph: &Graph, chosen: impl Fn(&str) -> bool) -> Largest {
    /// A normalised activation rarely has a larger number.
    const LARGEST: f32 = 16.0;
    let editor = Editor::new(graph);
    let weights = products(&editor).map(|(_, weight)| weight).filter(|weight| chosen(weight));
    weights.map(|weight| (weight, LARGEST)).collect()
}

/// What activations are multiplied by before the largest is found.
const SIDES: [(f32, &str); 2] = [(1.0, "largest"), (-1.0, "smallest")];

/// The activations of the step phase that are multiplied by a weight, each with the parameter.
fn products(editor: &Editor) -> impl Iterator<Item = (ValueId, String)> {
    let product = |node: &Node| {
        let (Op::Conv(_) | Op::Linear(_)) = node.op else { return None };
        let &[x, weight, ..] = node.inputs.as_slice() else { return None };
        let runs = editor.phase(x) == Phase::Step && editor.ty(x).elements() > 0;
        let weight = if runs { parameters_of(editor, weight).next() } else { None };
        Some((x, weight?.to_owned()))
    };
    editor.node_ids().filter_map(move |id| product(editor.node(id)))
}

/// The parameters that a weight was made of: those of a node's first operand first.
pub(crate) fn parameters_of(editor: &Editor, weight: ValueId) -> impl Iterator<Item = &str> {
    let (mut pending, mut seen) = (vec![weight], HashSet::new());
    std::iter::from_fn(move || {
        while let Some(id) = pending.pop() {
            let value = editor.value(id);
            match value.source {
                // A norm's scale or a bias may be part of it, but has one axis.
                Source::Parameter if value.ty.shape.len() > 1 => return Some(value.name.as_str()),
                Source::Node { .. } if seen.insert(id) => {
                    let inputs = editor.producer(id).map(|(_, node)| node.inputs.iter().rev());
                    pending.extend(inputs.into_iter().flatten());
                }
                _ => {}
            }
        }
        None
    })
}

/// The largest element of each channel of `factor · x`. A row of windows at a time, each of a few elements that lie far apart: a GPU
/// has a thread for some channels of a window, and few windows of many elements would take it a hundred times as long.
fn largest(editor: &mut Editor, name: &str, x: ValueId, factor: f32) -> Result<ValueId, GraphError> {
    let shape = editor.ty(x).shape.clone();
    let (channels, mut rows) = (shape.channels(), shape.rows());
    let mut value = x;
    if factor != 1.0 {
        let scale = Op::Scale(Scale { factor, offset: 0.0 });
        value = editor.add(format!("{name}.scaled"), scale, &[value])?[0];
    }
    loop {
        let window = (1..=WINDOW).rev().find(|window| rows % window == 0).filter(|&window| window > 1);
        // Of a large prime number.
        let window = window.unwrap_or(rows);
        rows /= window;
        let view = Op::Reshape(Reshape { shape: Shape::from([1, window, rows, channels]) });
        value = editor.add(format!("{name}.{rows}.rows"), view, &[value])?[0];
        let pool = Pool { kind: PoolKind::Max, kernel: [window, 1], stride: [window, 1], padding: [0; 2] };
        value = editor.add(format!("{name}.{rows}.max"), Op::Pool(pool), &[value])?[0];
        if rows == 1 {
            return Ok(value);
        }
    }
}

/// The most elements of a window whose largest is found at a time.
const WINDOW: usize = 32;

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
        let (graph, measurements) = measured(&g.finish(), |_| true).unwrap();
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
