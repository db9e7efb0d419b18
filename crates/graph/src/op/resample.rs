//! Ops that change an image's size: upsampling, filters, pooling, means.

use serde::{Deserialize, Serialize};

use super::{OpError, TensorType, arrange::axis_exists, check};
use crate::DType;

/// How a position between samples is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The sample at `floor(i · in / out)`.
    Nearest,
    /// Weighted by distance, with half-pixel centres and edges held.
    Bilinear,
}

/// Resizes images. Operand: `x [images, H, W, C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upsample {
    /// How a position between samples is read.
    pub interpolation: Interpolation,
    /// The new height and width.
    pub size: [usize; 2],
}

impl Upsample {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1)?;
        let x = inputs[0];
        check::float("x", x)?;
        check::rank("x", x, 4, "4 (images, height, width, channels)")?;
        check::at_least_one("height", self.size[0].min(x.shape[1]))?;
        check::at_least_one("width", self.size[1].min(x.shape[2]))?;
        Ok(vec![TensorType::new(x.dtype, [x.shape[0], self.size[0], self.size[1], x.shape[3]])])
    }
}

/// One pass of a separable filter over bytes: resizes one axis, in fixed point, as Pillow does.
///
/// | operand | shape | |
/// | --- | --- | --- |
/// | `x` | u8, any shape | its axis has `from` elements |
/// | `first` | i32 `[to]` | the first neighbour of each result |
/// | `weights` | i32 `[to, taps]` | the neighbours' weights, in units of 2⁻²² |
///
/// Result: u8, `x` with an axis of `to` elements, each `(2²¹ + Σ x[first + t] · weights[t]) >> 22`, clamped to a byte. A
/// neighbour outside the axis is the nearest one in it, so that no table can make it read beyond. Sums are of 32 bits and
/// wrap; those of a filter, whose weights add up to 1, never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resample {
    /// The axis.
    pub axis: usize,
}

impl Resample {
    /// Fraction bits of a weight: what 32 bits leave beside the byte, the sign, and one for a filter's overshoot.
    pub const FRACTION_BITS: u32 = 32 - 8 - 2;
    /// Half of the last bit kept, with which a sum begins so that cutting it off rounds.
    pub const HALF: i32 = 1 << (Self::FRACTION_BITS - 1);

    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 3)?;
        let (x, first, weights) = (inputs[0], inputs[1], inputs[2]);
        check::dtype("x", x, DType::U8, "u8")?;
        check::dtype("first", first, DType::I32, "i32")?;
        check::dtype("weights", weights, DType::I32, "i32")?;
        axis_exists(self.axis, &x.shape)?;
        check::rank("first", first, 1, "1")?;
        check::rank("weights", weights, 2, "2 (results, taps)")?;
        let (to, taps) = (first.shape[0], weights.shape[1]);
        check::shape("weights", weights, &[to, taps])?;
        check::at_least_one("the axis", x.shape[self.axis])?;
        check::at_least_one("the number of results", to)?;
        check::at_least_one("the number of taps", taps)?;
        let mut shape = x.shape.to_vec();
        shape[self.axis] = to;
        Ok(vec![TensorType::new(DType::U8, shape)])
    }
}

/// What a pooling window computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The mean; padding counts as zeros.
    Average,
    /// The largest; padding does not count.
    Max,
}

/// Pools windows of an image. Operand: `x [images, H, W, C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// What a window computes.
    pub kind: PoolKind,
    /// The window's height and width.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Padding on both sides of an axis, less than the window: a window of padding alone has no maximum.
    pub padding: [usize; 2],
}

impl Pool {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1)?;
        let x = inputs[0];
        check::float("x", x)?;
        check::rank("x", x, 4, "4 (images, height, width, channels)")?;
        let axis = |i: usize, axis| {
            let [extent, kernel, stride, pad] =
                [x.shape[1 + i], self.kernel[i], self.stride[i], self.padding[i]];
            check::at_least_one(axis, extent)?;
            if pad >= kernel && pad > 0 {
                return Err(OpError::Attribute(format!("the {axis} padding must be less than the window")));
            }
            check::Window { axis, extent, kernel, stride, padding: [pad, pad], dilation: 1 }.extents()
        };
        let [padded_height, height] = axis(0, "height")?;
        let [padded_width, width] = axis(1, "width")?;
        check::padded(x, [x.shape[0], padded_height, padded_width, x.shape[3]])?;
        Ok(vec![TensorType::new(x.dtype, [x.shape[0], height, width, x.shape[3]])])
    }
}

/// The mean over some axes, which become 1. Operand: `x`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mean {
    /// The axes, ascending.
    pub axes: Vec<usize>,
}

impl Mean {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1)?;
        let x = inputs[0];
        check::float("x", x)?;
        if !self.axes.is_sorted_by(|a, b| a < b) {
            return Err(OpError::Attribute("the mean's axes must ascend".into()));
        }
        let mut shape = x.shape.to_vec();
        for &axis in &self.axes {
            axis_exists(axis, &x.shape)?;
            check::at_least_one("an averaged axis", shape[axis])?;
            shape[axis] = 1;
        }
        Ok(vec![TensorType::new(x.dtype, shape)])
    }
}
