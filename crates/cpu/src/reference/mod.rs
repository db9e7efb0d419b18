//! The reference: every op as plain loops that a reader can verify.
//!
//! Elements are read as f32, all arithmetic is f64, and a result is rounded once, to the result's element type, by
//! [`Tensor::from_f32`]'s rule. Nothing here is fast: every other executor is compared with it.

mod activation;
mod arrange;
mod attention;
mod conv;
mod embedding;
mod epilogue;
mod linear;
mod norm;
mod pointwise;
mod quantise;
mod resample;
mod sampler;
#[cfg(test)]
mod testing;

use std::collections::HashMap;

use kinora_graph::{
    DType, Graph, GraphError, Node, Op, Output, Phase, Shape, Source, Tensor, TensorType, ValueId,
    passes::Evaluate,
};

use kinora_runtime::{RunError, Tensors, tensors};

/// Runs one op.
///
/// # Errors
/// If the op refuses its operands, a token or a sampler's step is outside its table, or the result is larger than
/// memory.
pub fn run(layer: &str, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, RunError> {
    let types: Vec<&TensorType> = inputs.iter().map(|tensor| tensor.ty()).collect();
    let results = op.infer(&types).map_err(|source| GraphError::Layer { layer: layer.to_owned(), source })?;
    // The two ops that check what their operands hold do so for an empty result as well.
    let checks_contents = matches!(op, Op::Embedding | Op::SamplerStep(_));
    if !checks_contents && results.iter().all(|ty| ty.elements() == 0) {
        // The extents beside a zero one may be too large to loop over.
        return Ok(results.into_iter().map(Tensor::zeros).collect());
    }
    for ty in &results {
        refuse_beyond_memory(ty)?;
    }
    let ty = &results[0];
    let result = match op {
        Op::Conv(op) => conv::conv(op, inputs, ty),
        Op::Linear(op) => linear::linear(op, inputs, ty),
        Op::MatMul(op) => linear::matmul(*op, inputs, ty),
        Op::Norm(op) => norm::norm(op, inputs, ty),
        Op::BatchNorm(op) => norm::batch_norm(*op, inputs, ty),
        Op::Activate(activation) => {
            let activated: Vec<f64> =
                elements(inputs[0]).into_iter().map(|x| activation::activate(*activation, x)).collect();
            rounded(ty, &activated)
        }
        Op::Softmax => activation::softmax(inputs[0], ty),
        Op::Gate(op) => linear::gate(*op, inputs[0], ty),
        Op::Attention(op) => return Ok(attention::attention(op, inputs, &results)),
        Op::AttentionBackward(op) => return Ok(attention::attention_backward(op, inputs, &results)),
        Op::Add => pointwise::broadcast(inputs, ty, |a, b| a + b),
        Op::Mul => pointwise::broadcast(inputs, ty, |a, b| a * b),
        Op::Scale(op) => pointwise::scale(*op, inputs[0], ty),
        Op::Blend => pointwise::blend(inputs, ty),
        Op::Concat(op) => arrange::concat(*op, inputs, ty),
        Op::Slice(op) => arrange::slice(*op, inputs[0], ty),
        Op::Upsample(op) => resample::upsample(*op, inputs[0], ty),
        Op::Resample(op) => resample::resample(*op, inputs, ty),
        Op::Pool(op) => resample::pool(*op, inputs[0], ty),
        Op::Mean(_) => resample::mean(inputs[0], ty),
        Op::TimestepEmbedding(op) => embedding::timestep_embedding(*op, inputs[0], ty),
        Op::Embedding => embedding::embedding(layer, inputs, ty)?,
        Op::Cast(dtype) => inputs[0].cast(*dtype),
        Op::Quantise(op) => return Ok(quantise::quantise(*op, inputs[0], &results)),
        Op::Reshape(_) => arrange::reshape(inputs[0], ty),
        Op::SamplerStep(op) => return sampler::sampler_step(layer, *op, inputs, ty),
        Op::TemporalBlend(op) => pointwise::temporal_blend(*op, inputs, ty),
    };
    let statistics = match op {
        Op::Conv(op) => op.statistics,
        Op::Linear(op) => op.statistics,
        _ => None,
    };
    // Of the elements as they are stored.
    let measured =
        statistics.zip(results.get(1)).map(|(statistics, ty)| norm::measure(statistics, &result, ty));
    Ok([result].into_iter().chain(measured).collect())
}

/// Runs a whole graph, one op after the other, each result in memory of its own.
///
/// Every declared input and parameter must be given, used or not; parameters that the graph does not declare are
/// left alone, as a weights file may hold more than one model.
///
/// # Errors
/// If an input or a parameter is missing, of another type than declared, unknown (inputs) or not finite (parameters),
/// or if an op fails.
pub fn evaluate(graph: &Graph, parameters: &Tensors, inputs: &Tensors) -> Result<Tensors, RunError> {
    let values = evaluate_all(graph, parameters, inputs)?;
    let mut results = Tensors::new();
    for Output { name, value } in graph.outputs() {
        if let Some(tensor) = values.get(value) {
            results.insert(name.clone(), tensor.clone());
        }
    }
    Ok(results)
}

/// Runs a whole graph as [`evaluate`] does and returns every value, for inspecting single layers.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_all(
    graph: &Graph,
    parameters: &Tensors,
    inputs: &Tensors,
) -> Result<HashMap<ValueId, Tensor>, RunError> {
    tensors::refuse_unknown(graph, &[Phase::Clip, Phase::Step], inputs)?;
    let mut values = HashMap::with_capacity(graph.values().len());
    for (id, value) in graph.value_ids() {
        let tensor = match &value.source {
            Source::Input(_) => tensors::input(value, inputs)?.clone(),
            Source::Parameter => tensors::parameter(value, parameters)?,
            Source::Constant(tensor) => tensor.clone(),
            Source::Node { .. } => continue,
        };
        values.insert(id, tensor);
    }
    for node in graph.nodes() {
        // A graph's nodes are in an order in which they can run, so every operand exists.
        let operands: Vec<&Tensor> = node.inputs.iter().filter_map(|value| values.get(value)).collect();
        let results = run(&node.name, &node.op, &operands)?;
        values.extend(node.outputs.iter().copied().zip(results));
    }
    Ok(values)
}

/// The reference as an evaluator of single nodes, for folding constants.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceEvaluator;

impl Evaluate for ReferenceEvaluator {
    fn evaluate(&self, node: &Node, inputs: &[&Tensor]) -> Option<Vec<Tensor>> {
        run(&node.name, &node.op, inputs).ok()
    }
}

/// Refuses a result whose f64 elements do not fit in memory: allocating them would abort.
fn refuse_beyond_memory(ty: &TensorType) -> Result<(), RunError> {
    tensors::reserve(ty.elements().saturating_mul(size_of::<f64>()))
}

/// The elements of a tensor, whatever they are stored as.
fn elements(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f32().into_iter().map(f64::from).collect()
}

/// The elements of an i32 tensor. Its type has been checked.
fn integers(tensor: &Tensor) -> &[i32] {
    bytemuck::cast_slice(tensor.bytes())
}

/// A tensor of results, rounded to its element type.
fn rounded(ty: &TensorType, results: &[f64]) -> Tensor {
    assert_eq!(results.len(), ty.elements(), "an op must give every element of its result");
    let mut tensor = Tensor::zeros(TensorType::new(DType::F32, ty.shape.clone()));
    for (to, &from) in bytemuck::cast_slice_mut::<_, f32>(tensor.bytes_mut()).iter_mut().zip(results) {
        *to = from as f32;
    }
    tensor.cast(ty.dtype)
}

/// The index, in an operand that broadcasts to `result`, of the value for element `index` of the result.
fn broadcast_index(operand: &Shape, result: &Shape, mut index: usize) -> usize {
    let missing = result.len() - operand.len();
    let (mut found, mut stride) = (0, 1);
    for axis in (missing..result.len()).rev() {
        let coordinate = index % result[axis];
        index /= result[axis];
        let extent = operand[axis - missing];
        found += stride * if extent == 1 { 0 } else { coordinate };
        stride *= extent;
    }
    found
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        GraphBuilder, Phase,
        op::{Activation, Interpolation, Upsample},
    };

    use super::{testing::*, *};

    fn ty(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    /// `y = relu(x · wᵀ) + 1`, and `x` itself.
    fn graph() -> Graph {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(&[1, 2]), Phase::Step).unwrap();
        let w = g.parameter("w", ty(&[2, 2])).unwrap();
        let one = g.constant("one", floats(&[1], &[1.0])).unwrap();
        let h = g.linear("linear", x, w, None).unwrap();
        let h = g.activate("relu", h, Activation::Relu).unwrap();
        let y = g.add("add", h, one).unwrap();
        g.output("y", y).unwrap();
        g.output("x", x).unwrap();
        g.finish()
    }

    fn named(name: &str, tensor: Tensor) -> Tensors {
        [(name.to_owned(), tensor)].into()
    }

    #[test]
    fn a_graph_runs_in_order() {
        let weights = named("w", floats(&[2, 2], &[1.0, 2.0, -3.0, 1.0]));
        let results = evaluate(&graph(), &weights, &named("x", floats(&[1, 2], &[4.0, 5.0]))).unwrap();
        assert_eq!(results["y"], floats(&[1, 2], &[15.0, 1.0]));
        assert_eq!(results["x"], floats(&[1, 2], &[4.0, 5.0]));
        assert_eq!(results.len(), 2);
    }

    #[test]
    fn what_a_graph_is_fed_with_is_checked() {
        let w = || floats(&[2, 2], &[1.0; 4]);
        let x = || floats(&[1, 2], &[4.0, 5.0]);
        let run =
            |parameters: Tensors, inputs: Tensors| evaluate(&graph(), &parameters, &inputs).unwrap_err();

        let error = run(named("w", w()), Tensors::new());
        assert_eq!(error, RunError::MissingInput { name: "x".into(), ty: ty(&[1, 2]) });
        let error = run(Tensors::new(), named("x", x()));
        assert_eq!(error, RunError::MissingParameter { name: "w".into(), ty: ty(&[2, 2]) });
        let mut inputs = named("x", x());
        inputs.insert("z".into(), x());
        assert_eq!(run(named("w", w()), inputs), RunError::UnknownInput("z".into()));
        let error = run(named("w", w()), named("x", floats(&[2], &[1.0; 2])));
        assert!(matches!(error, RunError::WrongType { name, .. } if name == "x"));
        let error = run(named("w", w().cast(DType::F16)), named("x", x()));
        assert!(matches!(error, RunError::WrongType { name, .. } if name == "w"));
        let broken = floats(&[2, 2], &[0.0, 0.0, f32::INFINITY, 0.0]);
        let error = run(named("w", broken), named("x", x()));
        assert_eq!(error, RunError::NonFinite { name: "w".into(), index: 2 });
    }

    #[test]
    fn a_refusal_names_the_layer() {
        let x = floats(&[3], &[0.0; 3]);
        let error = run("up.1.sum", &Op::Add, &[&x, &floats(&[2], &[0.0; 2])]).unwrap_err();
        assert!(matches!(&error, RunError::Graph(GraphError::Layer { layer, .. }) if layer == "up.1.sum"));
    }

    #[test]
    fn an_empty_result_needs_no_loops() {
        // As much as a graph takes beside a zero, and more than anyone could loop over.
        let huge = 1 << 28;
        let x = Tensor::zeros(ty(&[0, huge, huge, 4]));
        let results = run("act", &Op::Activate(Activation::Silu), &[&x]).unwrap();
        assert_eq!(results[0].ty(), x.ty());
    }

    #[test]
    fn a_result_beyond_memory_is_an_error() {
        let op = Upsample { interpolation: Interpolation::Nearest, size: [1 << 31, 1 << 28] };
        let error = run("up", &Op::Upsample(op), &[&counting(&[1, 1, 1, 1])]).unwrap_err();
        assert_eq!(error, RunError::OutOfMemory { bytes: 1 << 62 });
    }

    #[test]
    fn results_round_to_nearest_even_in_their_own_type() {
        // From 2048 on an f16 counts in twos, from 256 on a bf16 does.
        let one = floats(&[1], &[1.0]);
        let x = floats(&[2], &[2048.0, 2050.0]).cast(DType::F16);
        let sum = run_one(Op::Add, &[&x, &one]);
        assert_eq!((sum.dtype(), sum.to_f32()), (DType::F16, vec![2048.0, 2052.0]));
        let x = floats(&[2], &[256.0, 258.0]).cast(DType::BF16);
        let sum = run_one(Op::Add, &[&x, &one]);
        assert_eq!((sum.dtype(), sum.to_f32()), (DType::BF16, vec![256.0, 260.0]));
    }
}
