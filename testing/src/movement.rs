//! How far a result moves when its inputs move by a rounding error: no other arithmetic can be expected to come closer.

use std::collections::HashMap;

use half::{bf16, f16};
use kinora_cpu::reference;
use kinora_graph::{DType, Graph, Op, Tensor, op::Linear};
use kinora_runtime::Tensors;

use crate::compare::distance;

/// Moves numbers a little, at random but reproducibly.
struct Nudge {
    state: u32,
    /// How far an f32 moves, in units of rounding.
    units: f32,
}

impl Nudge {
    fn next(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.state >> 8
    }

    /// Moves every f32 by units of its own rounding and of the tensor's typical number's, and tips one 16-bit number in two
    /// hundred over to its neighbour, in a small tensor one or two: what another order of f32 sums does to a result.
    fn tensor(&mut self, tensor: &Tensor) -> Tensor {
        let mut values = tensor.to_f32();
        let squares: f32 = values.iter().map(|x| x * x).sum();
        let typical = (squares / values.len().max(1) as f32).sqrt();
        let some = (values.len() as u32 / 2).clamp(1, 200);
        let (unit, typical, one_in) = match tensor.dtype() {
            DType::F32 => (self.units * f32::EPSILON, typical, 1),
            DType::F16 => (f16::EPSILON.to_f32(), 0.0, some),
            DType::BF16 => (bf16::EPSILON.to_f32(), 0.0, some),
            // Their neighbours are too far off to count as rounding.
            DType::F8E4M3 | DType::U8 | DType::I32 => return tensor.clone(),
        };
        for x in &mut values {
            match self.next() {
                n if n % one_in != 0 => {}
                n if n & 0x1000 == 0 => *x += unit * (x.abs() + typical),
                _ => *x -= unit * (x.abs() + typical),
            }
        }
        Tensor::from_f32(tensor.dtype(), tensor.shape().clone(), &values).unwrap()
    }
}

/// The largest distance of an element of each tensor from the same element in any of the others.
fn furthest(tensors: &[Tensor], others: &[Vec<Tensor>]) -> Vec<f64> {
    let off = |a: &Tensor, b: &Tensor| {
        let by = a.to_f32().into_iter().zip(b.to_f32()).map(|(a, b)| f64::from((a - b).abs()));
        by.filter(|by| by.is_finite()).fold(0.0, f64::max)
    };
    let of = |(i, tensor)| others.iter().map(|other| off(tensor, &other[i])).fold(0.0, f64::max);
    tensors.iter().enumerate().map(of).collect()
}

/// How far the results of an op move when the numbers it reads do by a rounding error of f32: if everything cancels, no
/// f32 arithmetic can come closer than some of these.
pub fn movement_of_layer(op: &Op, operands: &[&Tensor]) -> Vec<f64> {
    let wide = |tensor: &&Tensor| {
        if tensor.dtype().is_float() { tensor.cast(DType::F32) } else { (*tensor).clone() }
    };
    let operands: Vec<Tensor> = operands.iter().map(wide).collect();
    let run =
        |operands: &[Tensor]| reference::run("nudged", op, &operands.iter().collect::<Vec<_>>()).unwrap();
    let mut nudge = Nudge { state: 1, units: 1.0 };
    let mut nudged = || run(&operands.iter().map(|tensor| nudge.tensor(tensor)).collect::<Vec<_>>());
    furthest(&run(&operands), &[nudged(), nudged(), nudged()])
}

/// The results of a bf16 product whose norm in front is rounded to bf16, as it is when it is a node of its own. Where the CPU multiplies
/// bf16 in pairs, the factors are bf16, and so is what the norm gives; elsewhere it is not rounded. Both are right, and nothing between.
pub fn with_stored_prologue(op: &Op, operands: &[&Tensor]) -> Option<Vec<Tensor>> {
    let Op::Linear(linear) = op else { return None };
    let norm = linear.prologue.filter(|_| operands[0].dtype() == DType::BF16)?;
    let args = linear.operands(operands);
    let normalised: Vec<&Tensor> = [args.x].into_iter().chain(args.prologue).copied().collect();
    let stored = reference::run("norm", &Op::Norm(norm), &normalised).unwrap();
    let product = Linear { prologue: None, ..linear.clone() };
    let factors = [&stored[0], *args.weight].into_iter();
    let others = args.scale.into_iter().chain(args.bias).chain(args.epilogue).copied();
    let operands: Vec<&Tensor> = factors.chain(others).collect();
    Some(reference::run("product", &Op::Linear(product), &operands).unwrap())
}

/// How far the results of a graph move, by name, when those of each layer do: by sixteen units, where a layer alone may be
/// off by the eighty-four that are the bar. Some graphs make thousands of one.
pub fn movement_of_graph(graph: &Graph, parameters: &Tensors, inputs: &Tensors) -> HashMap<String, f64> {
    let known = reference::evaluate_all(graph, parameters, inputs).unwrap();
    let mut nudge = Nudge { state: 2, units: 16.0 };
    let mut nudged = || {
        let mut values = known.clone();
        for node in graph.nodes() {
            let operands: Vec<&Tensor> = node.inputs.iter().map(|value| &values[value]).collect();
            let results = reference::run(&node.name, &node.op, &operands).unwrap();
            values
                .extend(node.outputs.iter().copied().zip(results.iter().map(|result| nudge.tensor(result))));
        }
        graph.outputs().iter().map(|output| values[&output.value].clone()).collect()
    };
    let others: [Vec<Tensor>; 3] = [nudged(), nudged(), nudged()];
    let results: Vec<Tensor> = graph.outputs().iter().map(|output| known[&output.value].clone()).collect();
    graph.outputs().iter().map(|output| output.name.clone()).zip(furthest(&results, &others)).collect()
}

/// How many such movements a result may be off, beyond its bar.
pub const MOVEMENTS: f64 = 4.0;

/// The coarsest element type of a graph: every value flows on into the results.
fn coarsest(graph: &Graph) -> DType {
    let has = |dtype: DType| graph.values().iter().any(|value| value.ty.dtype == dtype);
    [DType::BF16, DType::F16].into_iter().find(|&dtype| has(dtype)).unwrap_or(DType::F32)
}

/// The results of a graph whose every 16-bit value is held in f32: what they would be without the roundings to storage.
fn evaluate_wide(graph: &Graph, parameters: &Tensors, inputs: &Tensors) -> Tensors {
    let wide = |tensor: Tensor| if tensor.dtype().is_float() { tensor.cast(DType::F32) } else { tensor };
    let known = reference::evaluate_all(graph, parameters, inputs).unwrap();
    let mut values: HashMap<_, _> = known.into_iter().map(|(id, tensor)| (id, wide(tensor))).collect();
    for node in graph.nodes() {
        let operands: Vec<&Tensor> = node.inputs.iter().map(|value| &values[value]).collect();
        let op = match node.op {
            Op::Cast(dtype) if dtype.is_float() => Op::Cast(DType::F32),
            ref op => op.clone(),
        };
        let results = reference::run(&node.name, &op, &operands).unwrap();
        values.extend(node.outputs.iter().copied().zip(results));
    }
    graph.outputs().iter().map(|output| (output.name.clone(), values[&output.value].clone())).collect()
}

/// How far roundings may move a result that is compared.
const MOST_LOST: f64 = 0.1;

/// How far each result of a graph with 16-bit storage may lie, as a whole, from another evaluation of it, or from the
/// one after a pass. `None` if everything is f32.
///
/// A pass leaves out the roundings between the ops that it fuses, so that nearly every element differs by a few units in the
/// last place; two executors tip single values over to their neighbours. Some graphs make much of that, by no bound: what
/// all the roundings of the graph together do to its results says how much. Among 6,000 graphs a pass moved none by more than
/// twice that, and the others by at most 9e-3 (bf16) and 1e-3 (f16).
/// What mistakes a value or its type is off by about one, and `every_layer_alone_agrees` counts every element. A result that
/// the roundings alone move by more than a tenth, or beyond f16, has no bar: nothing could be told from it. Of those 6,000
/// graphs none had such a result.
pub fn bars_of_the_whole(
    graph: &Graph,
    parameters: &Tensors,
    inputs: &Tensors,
) -> Option<HashMap<String, f64>> {
    let bar = match coarsest(graph) {
        DType::BF16 => 2e-2,
        DType::F16 => 2.5e-3,
        _ => return None,
    };
    let stored = reference::evaluate(graph, parameters, inputs).unwrap();
    let wide = evaluate_wide(graph, parameters, inputs);
    let lost = |name: &String| distance(&wide[name].to_f32(), &stored[name].to_f32());
    let bars = stored.keys().map(|name| (name.clone(), lost(name))).filter(|&(_, lost)| lost <= MOST_LOST);
    Some(bars.map(|(name, lost)| (name, bar + MOVEMENTS * lost)).collect())
}
