//! The fast implementation: vectors and threads, one file per family of ops.

mod activation;
mod arrange;
mod attention;
mod blocks;
mod cast;
mod elementwise;
mod embedding;
mod group_norm;
pub(crate) mod in_place;
mod linear;
mod mean;
mod norm;
mod normalised_rows;
mod pointwise;
mod quantised;
mod resample;
mod resample_axis;
mod sampler;
mod softmax;
mod statistics;
mod sums;
mod temporal;
#[cfg(test)]
mod tests;
mod winograd;

use kinora_graph::{
    Op, Tensor, TensorType,
    op::{Conv, Linear},
};

use kinora_runtime::{RunError, tensors};
pub(crate) use linear::PackedWeight;

use crate::{
    simd::Isa,
    view::{View, ViewMut},
};

/// Registers the destructors of this thread's scratch memory: see [`crate::threads::register_scratch`].
pub(crate) fn register_scratch() {
    attention::register_scratch();
    winograd::register_scratch();
}

/// Runs one op on planned memory. `packed` is its weight, if it was packed at load time.
///
/// Operands and results are those that the graph has checked; a result overwrites an operand only if
/// [`CpuTarget`](crate::CpuTarget) said that it may.
///
/// # Errors
/// If a token or a sampler's step is outside its table, or there is no memory for a copy that the op needs.
pub(crate) fn run(
    isa: Isa,
    layer: &str,
    op: &Op,
    inputs: &[View<'_>],
    packed: Option<&PackedWeight>,
    outputs: Vec<ViewMut<'_>>,
) -> Result<(), RunError> {
    // The two ops that check their operands' contents do so for an empty result as well.
    let checks_contents = matches!(op, Op::Embedding | Op::SamplerStep(_));
    if !checks_contents && outputs.iter().all(|output| output.ty().elements() == 0) {
        // The other extents of an empty tensor may be too large to loop over.
        return Ok(());
    }
    if let Op::SamplerStep(op) = op {
        return sampler::sampler_step(isa, layer, op, inputs, &outputs);
    }
    if let Op::Quantise(op) = op {
        return quantised::quantise(isa, *op, inputs[0], outputs);
    }
    if let Op::Attention(op) = op {
        attention::attention(isa, op, inputs, &outputs);
        return Ok(());
    }
    if let Op::AttentionBackward(op) = op {
        attention::attention_backward(isa, op, inputs, &outputs);
        return Ok(());
    }
    // Every other op has one result, and what a product measures of it.
    let mut outputs = outputs.into_iter();
    let Some(output) = outputs.next() else { return Ok(()) };
    let measured = match op {
        Op::Conv(Conv { statistics, .. }) | Op::Linear(Linear { statistics, .. }) => {
            statistics.zip(outputs.next())
        }
        _ => None,
    };
    if let Some((wanted, result)) = measured {
        // SAFETY: one view writes the product, and when that has ended the other one reads it.
        let (to, made) = unsafe { (output.again(), View::new(output.ty(), output.bytes())) };
        run(isa, layer, &without_statistics(op), inputs, packed, vec![to])?;
        return statistics::measure(isa, wanted, made, result);
    }
    match op {
        Op::Conv(Conv { quantised: Some(_), .. }) | Op::Linear(Linear { quantised: Some(_), .. }) => {
            quantised::quantised_product(isa, op, inputs, output)?;
        }
        Op::Conv(_) | Op::Linear(_) => {
            let fresh;
            let packed = match packed {
                Some(packed) => packed,
                // A weight that is computed at run time.
                None => {
                    fresh = PackedWeight::for_one_run(isa, op, inputs[1]);
                    &fresh
                }
            };
            match op {
                Op::Conv(op) => linear::conv(isa, op, inputs, packed, output)?,
                Op::Linear(op) => linear::linear(isa, op, inputs, packed, output)?,
                _ => {}
            }
        }
        Op::MatMul(op) => linear::matmul(isa, op, inputs, output),
        Op::Norm(op) => match (op.quantise, op.statistics().filter(|_| op.measured)) {
            (_, Some(given)) => statistics::measured_norm(isa, op, given, inputs, output)?,
            (Some(factor), None) => quantised::quantised_norm(isa, op, factor, inputs, output)?,
            (None, None) => norm::norm(isa, op, inputs, output),
        },
        Op::BatchNorm(op) => norm::batch_norm(isa, op, inputs, output),
        Op::Activate(op) => activation::activate(isa, *op, inputs, output),
        Op::Softmax => softmax::softmax(isa, inputs, output),
        Op::Gate(op) => pointwise::gate(isa, op, inputs, output),
        Op::Add => pointwise::add(isa, inputs, output),
        Op::Mul => pointwise::mul(isa, inputs, output),
        Op::Scale(op) => pointwise::scale(isa, op, inputs, output),
        Op::Blend => pointwise::blend(isa, inputs, output),
        Op::Concat(op) => arrange::concat(op, inputs, output),
        Op::Slice(op) => arrange::slice(op, inputs, output),
        Op::Upsample(op) => resample::upsample(isa, op, inputs, output),
        Op::Resample(op) => resample_axis::resample(isa, op, inputs, output),
        Op::Pool(op) => resample::pool(isa, op, inputs, output),
        Op::Mean(op) => mean::mean(isa, op, inputs, output),
        Op::TimestepEmbedding(op) => embedding::timestep_embedding(op, inputs, output),
        Op::Embedding => return embedding::embedding(layer, inputs, output),
        Op::Cast(_) => cast::cast(isa, inputs, output),
        Op::Reshape(_) => arrange::copy(inputs, output),
        Op::TemporalBlend(op) => temporal::temporal_blend(isa, op, inputs, output),
        Op::Attention(_) | Op::AttentionBackward(_) | Op::SamplerStep(_) | Op::Quantise(_) => {}
    }
    Ok(())
}

/// A product that measures nothing.
fn without_statistics(op: &Op) -> Op {
    match op {
        Op::Conv(op) => Op::Conv(Conv { statistics: None, ..op.clone() }),
        Op::Linear(op) => Op::Linear(Linear { statistics: None, ..op.clone() }),
        op => op.clone(),
    }
}

/// Runs one op with the fast implementation, each result in memory of its own. A [`Program`](crate::Program) is the way
/// to run more than one.
///
/// # Errors
/// If the op refuses its operands, a token or a sampler's step is outside its table, or there is no memory for the
/// results.
pub fn run_on_tensors(isa: Isa, layer: &str, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, RunError> {
    let types: Vec<&TensorType> = inputs.iter().map(|tensor| tensor.ty()).collect();
    let results = op
        .infer(&types)
        .map_err(|source| kinora_graph::GraphError::Layer { layer: layer.to_owned(), source })?;
    let mut tensors = results.into_iter().map(tensors::zeros).collect::<Result<Vec<Tensor>, RunError>>()?;
    let views: Vec<View<'_>> = inputs.iter().map(|tensor| View::of(tensor)).collect();
    let outputs = tensors.iter_mut().map(ViewMut::of).collect();
    run(isa, layer, op, &views, None, outputs)?;
    Ok(tensors)
}
