//! Numbers in 8 bits.

use serde::{Deserialize, Serialize};

use super::{OpError, TensorType, check};
use crate::DType;

/// Elements multiplied by a factor and rounded to e4m3. Operand: `x`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantise {
    /// An activation: the factor is the same for every element, and known beforehand. Result: e4m3 of `x`'s shape.
    Tensor {
        /// Multiplies.
        factor: f32,
    },
    /// The weight `[blocks · O, …]` of a product: each filter has a factor of its own, with which its largest weight becomes
    /// 448. Results: the weight in e4m3, and `scale f32 [O]`, the operand of a product that takes the factors back, its
    /// own and that of the activation.
    ///
    /// A filter whose largest weight is below 2⁻¹⁰⁰ becomes zeros, with a scale of zero.
    Filters {
        /// Filters of so many blocks share a factor, in the order of a sub-pixel convolution: one of each block.
        blocks: usize,
        /// The scale of the product's other operand, by which `scale` is multiplied: the inverse of its factor.
        activation: f32,
    },
}

impl Quantise {
    /// A filter's largest weight below which it counts as zeros: the inverse would not be finite much further down.
    pub const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);

    pub(crate) fn infer(self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1)?;
        let x = inputs[0];
        check::float("x", x)?;
        let quantised = TensorType::new(DType::F8E4M3, x.shape.clone());
        match self {
            Quantise::Tensor { factor } => {
                check::finite_positive("factor", factor)?;
                Ok(vec![quantised])
            }
            Quantise::Filters { blocks, activation } => {
                check::finite_positive("the scale of the activation", activation)?;
                check::min_rank("x", x, 1, "at least 1")?;
                check::at_least_one("blocks", blocks)?;
                check::multiple("filters", x.shape[0], blocks)?;
                Ok(vec![quantised, TensorType::new(DType::F32, [x.shape[0] / blocks])])
            }
        }
    }
}
