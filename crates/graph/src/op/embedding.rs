//! Numbers and tokens as vectors.

use serde::{Deserialize, Serialize};

use super::{OpError, TensorType, check};
use crate::DType;

/// A sinusoidal embedding of numbers. Operand: `t [N]`, a float. Result: `f32 [N, width]`.
///
/// Half of the channels are sines, half cosines, of `scale · t · max_period^(-i / (width/2 - shift))`; an odd
/// width ends in a zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimestepEmbedding {
    /// Channels of the result.
    pub width: usize,
    /// Cosines first.
    #[serde(default)]
    pub cosine_first: bool,
    /// Subtracted from the number of frequencies in the exponent's divisor.
    #[serde(default)]
    pub frequency_shift: f32,
    /// The longest period.
    pub max_period: f32,
    /// Multiplies the angles.
    pub scale: f32,
}

impl TimestepEmbedding {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1)?;
        let t = inputs[0];
        check::float("t", t)?;
        check::rank("t", t, 1, "1")?;
        check::finite_positive("max_period", self.max_period)?;
        check::finite("scale", self.scale)?;
        let half = self.width / 2;
        if half == 0 || !(half as f32 - self.frequency_shift).is_normal() {
            return Err(OpError::Attribute(format!(
                "a width of {} with a frequency shift of {} leaves no frequencies",
                self.width, self.frequency_shift
            )));
        }
        Ok(vec![TensorType::new(DType::F32, [t.shape[0], self.width])])
    }
}

/// Looks up rows of a table. Operands: `table [rows, C]`, `ids i32 [..]`. Result: `[.., C]`.
/// An id outside the table is an error when the op runs.
pub(crate) fn infer_lookup(inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
    check::count(inputs, 2)?;
    let (table, ids) = (inputs[0], inputs[1]);
    check::float("table", table)?;
    check::rank("table", table, 2, "2 (rows, channels)")?;
    check::dtype("ids", ids, DType::I32, "i32")?;
    let mut shape = ids.shape.to_vec();
    shape.push(table.shape[1]);
    Ok(vec![TensorType::new(table.dtype, shape)])
}
