//! The checks that ops share.

use crate::{DType, Shape, TensorType};

use super::{Norm, OpError};

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

/// The first operands of a convolution or a linear op: both of e4m3, or of other floats. A quantised product gives a float or
/// e4m3.
pub(crate) fn operands_of_product(
    x: &TensorType,
    weight: &TensorType,
    quantised: Option<DType>,
    prologue: Option<&Norm>,
) -> Result<(), OpError> {
    let Some(result) = quantised else {
        float("x", x)?;
        return float("weight", weight);
    };
    dtype("x", x, DType::F8E4M3, "e4m3")?;
    dtype("weight", weight, DType::F8E4M3, "e4m3")?;
    if !result.is_float() && result != DType::F8E4M3 {
        return Err(OpError::Attribute(format!("a product cannot have a result of {result}")));
    }
    match prologue {
        Some(_) => Err(OpError::Attribute("a quantised product has no prologue".to_owned())),
        None => Ok(()),
    }
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

/// Checks that the channels divide into groups of at least one channel. Only a single group may be empty.
pub(crate) fn groups(channels: usize, groups: usize) -> Result<(), OpError> {
    at_least_one("groups", groups)?;
    if groups > 1 && groups > channels {
        return Err(OpError::Attribute(format!("{groups} groups are more than the {channels} channels")));
    }
    multiple("channels", channels, groups)
}

/// Checks that the images are clips of this many frames. Even without images, a clip must be possible: executors
/// multiply the frames by the other extents.
pub(crate) fn clips(images: &TensorType, frames: usize) -> Result<(), OpError> {
    at_least_one("frames", frames)?;
    multiple("images", images.shape[0], frames)?;
    let mut shape = images.shape.to_vec();
    shape[0] = shape[0].max(frames);
    if TensorType::new(images.dtype, shape).checked_bytes().is_none() {
        return Err(OpError::Attribute(format!("a clip of {frames} frames is too large to address")));
    }
    Ok(())
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

/// A window that slides along one axis: convolution and pooling.
pub(crate) struct Window {
    pub(crate) axis: &'static str,
    pub(crate) extent: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: [usize; 2],
    pub(crate) dilation: usize,
}

impl Window {
    /// The padded input extent and the output extent.
    pub(crate) fn extents(&self) -> Result<[usize; 2], OpError> {
        at_least_one("kernel", self.kernel)?;
        at_least_one("stride", self.stride)?;
        at_least_one("dilation", self.dilation)?;
        let axis = self.axis;
        let window = (self.kernel - 1)
            .checked_mul(self.dilation)
            .and_then(|w| w.checked_add(1))
            .ok_or_else(|| OpError::Attribute(format!("the {axis} window is too large")))?;
        let padded = self
            .extent
            .checked_add(self.padding[0])
            .and_then(|p| p.checked_add(self.padding[1]))
            .ok_or_else(|| OpError::Attribute(format!("the {axis} padding is too large")))?;
        match padded.checked_sub(window) {
            Some(room) => Ok([padded, room / self.stride + 1]),
            None => Err(OpError::Window { axis, window, extent: padded }),
        }
    }
}

/// The operand with its padding, which an executor may lay out in memory.
pub(crate) fn padded(ty: &TensorType, shape: [usize; 4]) -> Result<(), OpError> {
    let padded = TensorType::new(ty.dtype, shape);
    if padded.checked_bytes().is_none() {
        return Err(OpError::Attribute(format!(
            "the padded operand {} is too large to address",
            padded.shape
        )));
    }
    Ok(())
}
