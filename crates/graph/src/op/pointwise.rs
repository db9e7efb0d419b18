//! Ops on single elements.

use serde::{Deserialize, Serialize};

use super::{Activation, OpError, TensorType, check};
use crate::DType;

/// `factor · x + offset`. Operand: `x`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Multiplies.
    pub factor: f32,
    /// Added.
    #[serde(default)]
    pub offset: f32,
}

impl Scale {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::finite("factor", self.factor)?;
        check::finite("offset", self.offset)?;
        infer_unary(inputs)
    }
}

/// The gated product of a doubled tensor: the first half of the channels times an activation of the second.
/// Operand: `x [.., 2C]`. Result: `[.., C]`. GEGLU is the gate [`Activation::Gelu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Applied to the second half.
    pub activation: Activation,
}

impl Gate {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1)?;
        let x = inputs[0];
        check::float("x", x)?;
        check::min_rank("x", x, 1, "at least 1")?;
        let channels = x.shape.channels();
        check::multiple("channels", channels, 2)?;
        Ok(vec![TensorType::new(x.dtype, x.shape.with_channels(channels / 2))])
    }
}

/// Blends a frame with the one before, to calm flicker. Operands: `current [images, H, W, C]`,
/// `previous` of the same shape, `strength f32 [1]`.
///
/// A pixel moves towards the previous one by `strength`. If `threshold` is set, it moves by `strength · max(0, 1 −
/// difference / threshold)`, where the difference is the mean absolute difference of its channels: the more a pixel
/// changes, the less it is blended, and not at all from the threshold on, so that motion leaves no trail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemporalBlend {
    /// The difference at which a pixel counts as moved.
    #[serde(default)]
    pub threshold: Option<f32>,
}

impl TemporalBlend {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 3)?;
        let current = inputs[0];
        check::float("current", current)?;
        check::min_rank("current", current, 1, "at least 1")?;
        check::float("previous", inputs[1])?;
        check::shape("previous", inputs[1], &current.shape)?;
        check::dtype("strength", inputs[2], DType::F32, "f32")?;
        check::shape("strength", inputs[2], &[1])?;
        if let Some(threshold) = self.threshold {
            check::finite_positive("threshold", threshold)?;
        }
        Ok(vec![current.clone()])
    }
}

/// One float operand, and a result of the same type.
pub(crate) fn infer_unary(inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
    check::count(inputs, 1)?;
    check::float("x", inputs[0])?;
    Ok(vec![inputs[0].clone()])
}

/// Softmax runs over the last axis, which must exist.
pub(crate) fn infer_softmax(inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
    let outputs = infer_unary(inputs)?;
    check::min_rank("x", inputs[0], 1, "at least 1")?;
    Ok(outputs)
}

/// Two float operands that broadcast together; the result has the first one's element type.
pub(crate) fn infer_binary(inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
    check::count(inputs, 2)?;
    let (a, b) = (inputs[0], inputs[1]);
    check::float("a", a)?;
    check::float("b", b)?;
    let shape = a
        .shape
        .broadcast(&b.shape)
        .ok_or_else(|| OpError::Broadcast { a: a.shape.clone(), b: b.shape.clone() })?;
    Ok(vec![TensorType::new(a.dtype, shape)])
}

/// `α·a + (1−α)·b`. Operands: `a`, `b` of the same shape, `α` of `[1]` or one per image, `[images]`.
pub(crate) fn infer_blend(inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
    check::count(inputs, 3)?;
    let (a, b, alpha) = (inputs[0], inputs[1], inputs[2]);
    check::float("a", a)?;
    check::float("b", b)?;
    check::min_rank("a", a, 1, "at least 1")?;
    check::shape("b", b, &a.shape)?;
    check::float("alpha", alpha)?;
    check::rank("alpha", alpha, 1, "1")?;
    if alpha.shape[0] != 1 {
        check::shape("alpha", alpha, &[a.shape[0]])?;
    }
    Ok(vec![a.clone()])
}
