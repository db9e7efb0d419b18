//! Statistics that a product finds for the group norm after it, and norms that take them. A CPU gains little by it, since a group norm's
//! second read comes from a cache: [`CpuTarget`](crate::CpuTarget) does not fuse the two. It is there to show what a GPU computes.

use kinora_graph::{
    DType, Tensor, TensorType,
    op::{Norm, Statistics},
};
use kinora_runtime::{RunError, tensors};

use super::{activation::activate, blocks::small_vector, cast::cast};
use crate::{
    simd::Isa,
    view::{View, ViewMut},
};

/// A tensor in f32.
fn widened(isa: Isa, x: View<'_>) -> Result<Tensor, RunError> {
    let mut result = tensors::zeros(TensorType::new(DType::F32, x.ty().shape.clone()))?;
    cast(isa, &[x], ViewMut::of(&mut result));
    Ok(result)
}

fn floats(tensor: &mut Tensor) -> &mut [f32] {
    bytemuck::cast_slice_mut(tensor.bytes_mut())
}

/// Calls a function with each element and the number of the slab and group that it belongs to, a mean and a variance each.
fn by_group(statistics: Statistics, x: &mut Tensor, mut f: impl FnMut(usize, usize, &mut f32)) {
    let channels = x.shape().channels();
    let slab: usize = x.shape()[1..].iter().product::<usize>() * statistics.frames;
    if slab == 0 {
        return;
    }
    let members = channels / statistics.groups;
    for (number, elements) in floats(x).chunks_exact_mut(slab).enumerate() {
        for (i, value) in elements.iter_mut().enumerate() {
            let channel = i % channels;
            f(number * statistics.groups + channel / members, channel, value);
        }
    }
}

/// The mean and the variance of each group.
///
/// # Errors
/// If there is no memory for a copy in f32.
pub(super) fn measure(
    isa: Isa,
    statistics: Statistics,
    x: View<'_>,
    output: ViewMut<'_>,
) -> Result<(), RunError> {
    let mut values = widened(isa, x)?;
    let groups = output.ty().elements() / 2;
    // The elements of a group, their sum, and then the squares of their differences from the mean.
    let mut sums = vec![(0.0f64, 0.0f64, 0.0f64); groups];
    by_group(statistics, &mut values, |group, _, value| {
        sums[group].0 += 1.0;
        sums[group].1 += f64::from(*value);
    });
    by_group(statistics, &mut values, |group, _, value| {
        let (count, sum, squares) = &mut sums[group];
        *squares += (f64::from(*value) - *sum / *count).powi(2);
    });
    // Nothing has neither.
    let found = sums.iter().flat_map(|&(count, sum, squares)| {
        let count = count.max(1.0);
        [(sum / count) as f32, (squares / count) as f32]
    });
    let found: Vec<f32> = found.collect();
    let found = Tensor::from_slice(output.ty().shape.clone(), &found)
        .map_err(|error| RunError::Internal(format!("the statistics of groups: {error}")))?;
    cast(isa, &[View::of(&found)], output);
    Ok(())
}

/// A group norm that is given its statistics.
///
/// # Errors
/// If there is no memory for a copy in f32.
pub(super) fn measured_norm(
    isa: Isa,
    op: &Norm,
    statistics: Statistics,
    inputs: &[View<'_>],
    output: ViewMut<'_>,
) -> Result<(), RunError> {
    let mut values = widened(isa, inputs[0])?;
    let (learned, given) = op.operands(inputs);
    let given = given.map(small_vector).unwrap_or_default();
    let [scale, shift] = [0, 1].map(|operand| learned.get(operand).map(small_vector));
    by_group(statistics, &mut values, |group, channel, value| {
        let [mean, variance] = [given[2 * group], given[2 * group + 1]];
        *value = (*value - mean) / (variance + op.epsilon).sqrt();
        *value *= scale.as_ref().map_or(1.0, |scale| scale[channel]);
        *value += shift.as_ref().map_or(0.0, |shift| shift[channel]);
    });
    if let Some(activation) = op.activation {
        let normalised = values.clone();
        activate(isa, activation, &[View::of(&normalised)], ViewMut::of(&mut values));
    }
    if let Some(factor) = op.quantise {
        floats(&mut values).iter_mut().for_each(|value| *value *= factor);
    }
    cast(isa, &[View::of(&values)], output);
    Ok(())
}
