//! The checks that ops share.

use crate::{DType, Shape, TensorType};

use super::OpError;

pub(crate) fn count(inputs: &[&TensorType], expected: usize) -> Result<(), OpError> {
    if inputs.len() == expected {
        return Ok(());
    }
    Err(OpError::OperandCount { expected, got: inputs.len() })
}

pub(crate) fn float(operand: &'static str, ty: &TensorType) -> Result<(), OpError> {
    if ty.dtype.is_float() {
        return Ok(());
    }
    Err(OpError::DType { operand, expected: "a float type", got: ty.dtype })
}

pub(crate) fn dtype(
    operand: &'static str,
    ty: &TensorType,
    expected: DType,
    words: &'static str,
) -> Result<(), OpError> {
    if ty.dtype == expected {
        return Ok(());
    }
    Err(OpError::DType { operand, expected: words, got: ty.dtype })
}

pub(crate) fn rank(
    operand: &'static str,
    ty: &TensorType,
    expected: usize,
    words: &'static str,
) -> Result<(), OpError> {
    if ty.shape.len() == expected {
        return Ok(());
    }
    Err(OpError::Rank { operand, expected: words, got: ty.shape.clone() })
}

pub(crate) fn min_rank(
    operand: &'static str,
    ty: &TensorType,
    least: usize,
    words: &'static str,
) -> Result<(), OpError> {
    if ty.shape.len() >= least {
        return Ok(());
    }
    Err(OpError::Rank { operand, expected: words, got: ty.shape.clone() })
}

pub(crate) fn shape(operand: &'static str, ty: &TensorType, expected: &[usize]) -> Result<(), OpError> {
    if *ty.shape == *expected {
        return Ok(());
    }
    Err(OpError::Shape { operand, expected: Shape::from(expected), got: ty.shape.clone() })
}

pub(crate) fn multiple(what: &'static str, value: usize, by: usize) -> Result<(), OpError> {
    if by > 0 && value.is_multiple_of(by) {
        return Ok(());
    }
    Err(OpError::NotDivisible { what, value, by })
}

pub(crate) fn finite_positive(what: &str, value: f32) -> Result<(), OpError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(OpError::Attribute(format!("{what} must be a positive number, got {value}")))
}

pub(crate) fn finite(what: &str, value: f32) -> Result<(), OpError> {
    if value.is_finite() {
        return Ok(());
    }
    Err(OpError::Attribute(format!("{what} must be finite, got {value}")))
}

pub(crate) fn at_least_one(what: &str, value: usize) -> Result<(), OpError> {
    if value >= 1 {
        return Ok(());
    }
    Err(OpError::Attribute(format!("{what} must be at least 1")))
}

/// The output extent of a sliding window: convolution and pooling.
pub(crate) fn windows(
    axis: &'static str,
    extent: usize,
    kernel: usize,
    stride: usize,
    padding: [usize; 2],
    dilation: usize,
) -> Result<usize, OpError> {
    at_least_one("kernel", kernel)?;
    at_least_one("stride", stride)?;
    at_least_one("dilation", dilation)?;
    let window = (kernel - 1)
        .checked_mul(dilation)
        .and_then(|w| w.checked_add(1))
        .ok_or_else(|| OpError::Attribute(format!("the {axis} window is too large")))?;
    let padded = extent
        .checked_add(padding[0])
        .and_then(|p| p.checked_add(padding[1]))
        .ok_or_else(|| OpError::Attribute(format!("the {axis} padding is too large")))?;
    match padded.checked_sub(window) {
        Some(room) => Ok(room / stride + 1),
        None => Err(OpError::Window { axis, window, extent: padded }),
    }
}
