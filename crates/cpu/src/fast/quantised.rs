//! Numbers in 8 bits, and products of them. This CPU has no instructions for them: a product widens its operands first, which takes
//! longer than it would with wider ones. It is there to show what a GPU computes.

use kinora_graph::{
    DType, Op, Tensor, TensorType,
    e4m3::E4M3,
    op::{Norm, Quantise},
};
use kinora_runtime::{RunError, tensors};

use super::{PackedWeight, blocks::small_vector, cast::cast, linear, norm};
use crate::{
    simd::Isa,
    view::{View, ViewMut},
};

/// A tensor of the same shape in f32.
fn wide(ty: &TensorType) -> Result<Tensor, RunError> {
    tensors::zeros(TensorType::new(DType::F32, ty.shape.clone()))
}

fn widened(isa: Isa, x: View<'_>) -> Result<Tensor, RunError> {
    let mut result = wide(x.ty())?;
    cast(isa, &[x], ViewMut::of(&mut result));
    Ok(result)
}

fn floats(tensor: &mut Tensor) -> &mut [f32] {
    bytemuck::cast_slice_mut(tensor.bytes_mut())
}

/// Elements multiplied and rounded to e4m3; for filters the scales as well.
///
/// # Errors
/// If there is no memory for a copy in f32.
pub(super) fn quantise(
    isa: Isa,
    op: Quantise,
    x: View<'_>,
    mut outputs: Vec<ViewMut<'_>>,
) -> Result<(), RunError> {
    let mut values = widened(isa, x)?;
    match op {
        Quantise::Tensor { factor } => floats(&mut values).iter_mut().for_each(|value| *value *= factor),
        Quantise::Filters { activation, .. } => {
            let Some(scales) = outputs.pop() else { return Ok(()) };
            let number = scales.ty().elements();
            let length = x.ty().shape[1..].iter().product();
            let mut largest = vec![0.0f32; number];
            // Without elements there is nothing to find, and the scales are zeros.
            let filters = |values: &mut Tensor, f: &mut dyn FnMut(usize, &mut [f32])| {
                if length > 0 {
                    let filters = floats(values).chunks_exact_mut(length).enumerate();
                    filters.for_each(|(i, filter)| f(i % number, filter));
                }
            };
            filters(&mut values, &mut |i, filter| {
                largest[i] = filter.iter().fold(largest[i], |largest, x| largest.max(x.abs()));
            });
            filters(&mut values, &mut |i, filter| {
                let there = largest[i] >= Quantise::SMALLEST;
                let factor = if there { E4M3::MAX / largest[i] } else { 0.0 };
                filter.iter_mut().for_each(|x| *x *= factor);
            });
            let scale = |x: f32| if x >= Quantise::SMALLEST { x / E4M3::MAX * activation } else { 0.0 };
            let scales_of: Vec<f32> = largest.into_iter().map(scale).collect();
            let found = Tensor::from_slice([number], &scales_of)
                .map_err(|error| RunError::Internal(format!("the scales of filters: {error}")))?;
            cast(isa, &[View::of(&found)], scales);
        }
    }
    if let Some(output) = outputs.pop() {
        cast(isa, &[View::of(&values)], output);
    }
    Ok(())
}

/// A norm with a result in e4m3.
///
/// # Errors
/// If there is no memory for the result in f32.
pub(super) fn quantised_norm(
    isa: Isa,
    op: &Norm,
    factor: f32,
    inputs: &[View<'_>],
    output: ViewMut<'_>,
) -> Result<(), RunError> {
    let mut result = wide(output.ty())?;
    norm::norm(isa, op, inputs, ViewMut::of(&mut result));
    floats(&mut result).iter_mut().for_each(|value| *value *= factor);
    cast(isa, &[View::of(&result)], output);
    Ok(())
}

/// A linear layer or a convolution of operands in e4m3.
///
/// # Errors
/// If there is no memory for operands and result in f32.
pub(super) fn quantised_product(
    isa: Isa,
    op: &Op,
    inputs: &[View<'_>],
    output: ViewMut<'_>,
) -> Result<(), RunError> {
    let x = widened(isa, inputs[0])?;
    let mut weight = widened(isa, inputs[1])?;
    let scales = small_vector(&inputs[2]);
    let length = inputs[1].ty().shape[1..].iter().product();
    if length > 0 {
        for (filter, scale) in floats(&mut weight).chunks_exact_mut(length).zip(scales.iter().cycle()) {
            filter.iter_mut().for_each(|x| *x *= scale);
        }
    }
    let mut operands = vec![View::of(&x), View::of(&weight)];
    operands.extend(&inputs[3..]);
    let mut result = wide(output.ty())?;
    match op {
        Op::Conv(op) => {
            let plain = kinora_graph::op::Conv { quantised: None, ..op.clone() };
            let op = Op::Conv(plain.clone());
            let packed = PackedWeight::for_one_run(isa, &op, operands[1]);
            linear::conv(isa, &plain, &operands, &packed, ViewMut::of(&mut result))?;
        }
        Op::Linear(op) => {
            let plain = kinora_graph::op::Linear { quantised: None, ..op.clone() };
            let op = Op::Linear(plain.clone());
            let packed = PackedWeight::for_one_run(isa, &op, operands[1]);
            linear::linear(isa, &plain, &operands, &packed, ViewMut::of(&mut result))?;
        }
        _ => {}
    }
    cast(isa, &[View::of(&result)], output);
    Ok(())
}
