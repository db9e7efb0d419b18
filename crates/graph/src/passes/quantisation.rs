use std::collections::{HashMap, HashSet};

use super::{Pass, linear_parts::LinearParts};
use crate::{
    DType, Editor, GraphError, NodeId, Op, Phase, Target, TensorType, ValueId,
    calibration::{Largest, parameter_of},
    e4m3::E4M3,
    op::{Quantise, Reshape},
};

/// Multiplies in 8 bits what was measured: `x · wᵀ` becomes `e4m3(x·f) · e4m3(w/s)ᵀ · (s/f)`, with a factor `f` for the activation, and a
/// scale `s` for each filter, which is found when weights are loaded. The largest number of a filter becomes 448, the largest that was
/// measured of an activation half of that: another photo may have larger ones, and a float loses nothing by being half as large. A norm
/// whose result is read by such products alone writes e4m3 itself.
///
/// It changes results by what 8 bits leave out, and so only graphs that ask for it, by [`Graph::calibrated`](crate::Graph::calibrated).
/// It runs once, after all other passes, which know nothing of e4m3. Products of few rows stay as they are: those of timesteps, to
/// which everything is sensitive, and which take no time. So do the first and the last convolution, of few channels.
#[derive(Clone, Copy, Debug)]
pub struct Quantisation;

/// The fewest rows, channels and columns of a product that is worth it.
const LEAST_ROWS: usize = 64;
const LEAST_CHANNELS: usize = 32;

impl Pass for Quantisation {
    fn name(&self) -> &'static str {
        "quantisation"
    }

    fn rewrite(&self, editor: &mut Editor, target: &dyn Target) -> Result<(), GraphError> {
        let Some(largest) = editor.graph().calibration().cloned() else { return Ok(()) };
        let chosen: Vec<Product> =
            editor.node_ids().filter_map(|id| Product::of(editor, target, id, &largest)).collect();
        let products: HashSet<NodeId> = chosen.iter().map(|product| product.node).collect();
        let mut quantised = Quantised { products, values: HashMap::new() };
        for product in chosen {
            product.rewrite(editor, &mut quantised)?;
        }
        Ok(())
    }
}

/// A product to quantise.
struct Product {
    node: NodeId,
    parts: LinearParts,
    factor: f32,
    blocks: usize,
}

impl Product {
    fn of(editor: &Editor, target: &dyn Target, id: NodeId, largest: &Largest) -> Option<Product> {
        let node = editor.node(id);
        let mut parts = LinearParts::of(node)?;
        let [x, weight, result] = [parts.x, parts.weight, *node.outputs.first()?].map(|v| editor.ty(v));
        let columns = result.shape.channels();
        let worth = x.shape.rows() >= LEAST_ROWS
            && x.shape.channels() >= LEAST_CHANNELS
            && columns >= LEAST_CHANNELS
            && parts.scale.is_none()
            && parts.norm().is_none();
        let phases = editor.phase(parts.x) == Phase::Step && editor.phase(parts.weight) == Phase::Load;
        if !worth || !phases || !x.dtype.is_float() {
            return None;
        }
        let largest = *largest.get(&parameter_of(editor, parts.weight)?)?;
        let factor = 0.5 * E4M3::MAX / largest;
        if !(factor.is_finite() && factor > 0.0) {
            return None;
        }
        let blocks = match &mut parts.op {
            Op::Conv(op) => {
                op.quantised = Some(x.dtype);
                op.pixels()
            }
            Op::Linear(op) => {
                op.quantised = Some(x.dtype);
                1
            }
            _ => return None,
        };
        // Its operands as they will be.
        let e4m3 = |ty: &TensorType| TensorType::new(DType::F8E4M3, ty.shape.clone());
        let (x, scale) = (e4m3(x), TensorType::new(DType::F32, [weight.shape[0] / blocks]));
        let weight = e4m3(weight);
        let mut operands = vec![&x, &weight, &scale];
        operands.extend(editor.types(&node.inputs[2..]));
        let fits = parts.op.infer(&operands).is_ok_and(|results| results == [result.clone()]);
        (fits && target.fuses(&parts.op, &operands)).then_some(Product { node: id, parts, factor, blocks })
    }

    fn rewrite(mut self, editor: &mut Editor, quantised: &mut Quantised) -> Result<(), GraphError> {
        let name = editor.node(self.node).name.clone();
        self.parts.x = quantised.value(editor, self.parts.x, self.factor)?;
        let filters = Quantise::Filters { blocks: self.blocks, activation: 1.0 / self.factor };
        let filters =
            editor.add(format!("{name}.weight.e4m3"), Op::Quantise(filters), &[self.parts.weight])?;
        (self.parts.weight, self.parts.scale) = (filters[0], Some(filters[1]));
        let inputs = self.parts.inputs();
        editor.replace_node(self.node, name, self.parts.op, &inputs)
    }
}

/// The values that are in e4m3 so far.
struct Quantised {
    /// The products that will read such values.
    products: HashSet<NodeId>,
    /// By the value and the bits of the factor.
    values: HashMap<(ValueId, u32), ValueId>,
}

impl Quantised {
    /// A value times a factor in e4m3.
    fn value(&mut self, editor: &mut Editor, x: ValueId, factor: f32) -> Result<ValueId, GraphError> {
        let key = (x, factor.to_bits());
        if let Some(&known) = self.values.get(&key) {
            return Ok(known);
        }
        let value = match self.source(editor, x) {
            Some(Source::Reshape(rows)) => {
                let rows = self.value(editor, rows, factor)?;
                let shape = editor.ty(x).shape.clone();
                editor.add(
                    format!("{}.view", editor.value(x).name),
                    Op::Reshape(Reshape { shape }),
                    &[rows],
                )?[0]
            }
            Some(Source::Norm(node)) => {
                let node = editor.node(node);
                let (name, inputs) = (node.name.clone(), node.inputs.clone());
                let op = match node.op {
                    Op::Norm(norm) => Op::Norm(crate::op::Norm { quantise: Some(factor), ..norm }),
                    ref op => op.clone(),
                };
                editor.add(name, op, &inputs)?[0]
            }
            None => {
                let name = format!("{}.e4m3", editor.value(x).name);
                editor.add(name, Op::Quantise(Quantise::Tensor { factor }), &[x])?[0]
            }
        };
        self.values.insert(key, value);
        Ok(value)
    }

    /// Where a value can come from in e4m3, if it has no other readers.
    fn source(&self, editor: &Editor, x: ValueId) -> Option<Source> {
        if editor.is_output(x) || !editor.readers(x).iter().all(|reader| self.reads_e4m3(editor, *reader)) {
            return None;
        }
        let (id, node) = editor.producer(x)?;
        match node.op {
            Op::Norm(norm) if norm.quantise.is_none() => Some(Source::Norm(id)),
            Op::Reshape(_) => self.source(editor, node.inputs[0]).map(|_| Source::Reshape(node.inputs[0])),
            _ => None,
        }
    }

    /// Whether a node will read its first operand in e4m3, or is a view for such nodes.
    fn reads_e4m3(&self, editor: &Editor, id: NodeId) -> bool {
        let node = editor.node(id);
        let is_view = matches!(node.op, Op::Reshape(_));
        let views = || node.outputs.iter().flat_map(|&v| editor.readers(v).iter().map(move |&r| (v, r)));
        self.products.contains(&id)
            || is_view && views().all(|(v, reader)| !editor.is_output(v) && self.reads_e4m3(editor, reader))
    }
}

/// What gives a value in e4m3.
enum Source {
    Norm(NodeId),
    Reshape(ValueId),
}
