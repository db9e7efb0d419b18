//! Matrix products.

use serde::{Deserialize, Serialize};

use super::{
    Activation, LinearOperands, Norm, OpError, Stage, Statistics, TensorType, check,
    conv::{operands_before_epilogue, with_statistics},
};
use crate::DType;

/// A learned matrix product over the channels.
///
/// Operands: `x [.., I]`, `weight [O, I]`, `scale f32 [O]` if [`quantised`](Linear::quantised), `bias [O]` if
/// [`bias`](Linear::bias) is set, those of the prologue norm, those of the epilogue. Result: `[.., O]`, or `[.., O/2]` if gated,
/// and its [`statistics`](Linear::statistics) if they are asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Whether the operands are e4m3, and the type of the result if they are: sums are multiplied by `scale` before anything
    /// else. Such a product has no prologue.
    #[serde(default)]
    pub quantised: Option<DType>,
    /// Whether a bias operand follows the weight.
    #[serde(default)]
    pub bias: bool,
    /// Multiplies the first half of the columns by this activation of the second half, before the epilogue:
    /// GEGLU inside the product.
    #[serde(default)]
    pub gate: Option<Activation>,
    /// A normalisation of the input, fused in.
    #[serde(default)]
    pub prologue: Option<Norm>,
    /// What happens to the result before it is stored.
    #[serde(default)]
    pub epilogue: Vec<Stage>,
    /// Makes the [`Statistics`] of the result, of its elements as they are stored, a second result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Statistics>,
}

impl Linear {
    /// The operands by role.
    pub fn operands<'a, T>(&self, inputs: &'a [T]) -> LinearOperands<'a, T> {
        LinearOperands::split(inputs, self.quantised, self.bias, self.prologue.as_ref())
    }

    /// The number of the epilogue's first operand.
    pub fn first_of_epilogue(&self) -> usize {
        operands_before_epilogue(self.quantised, self.bias, self.prologue.as_ref())
    }

    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        LinearOperands::<TensorType>::check_count(inputs, self.first_of_epilogue(), &self.epilogue)?;
        let args = self.operands(inputs);
        let (x, weight) = (*args.x, *args.weight);
        check::operands_of_product(x, weight, self.quantised, self.prologue.as_ref())?;
        check::min_rank("x", x, 1, "at least 1")?;
        check::rank("weight", weight, 2, "2 (out, in)")?;
        let [out, expected] = [weight.shape[0], weight.shape[1]];
        if x.shape.channels() != expected {
            return Err(OpError::InputChannels { expected, got: x.shape.channels() });
        }
        let columns = if self.gate.is_some() {
            check::multiple("gated output channels", out, 2)?;
            out / 2
        } else {
            out
        };
        let output = TensorType::new(self.quantised.unwrap_or(x.dtype), x.shape.with_channels(columns));
        args.check(self.prologue.as_ref(), &self.epilogue, out, &output)?;
        with_statistics(output, self.statistics)
    }

    pub(crate) fn flops(&self, inputs: &[&TensorType]) -> u64 {
        (inputs[0].shape.rows() as u64).saturating_mul(inputs[1].elements() as u64).saturating_mul(2)
    }
}

/// A batched product of two activations, `a [.., M, K] · b [.., K, N]`. The leading axes are equal, or `b` has
/// none and serves every batch element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatMul {
    /// `a` is stored as `[.., K, M]`.
    #[serde(default)]
    pub transpose_a: bool,
    /// `b` is stored as `[.., N, K]`.
    #[serde(default)]
    pub transpose_b: bool,
}

impl MatMul {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 2)?;
        let (a, b) = (inputs[0], inputs[1]);
        for (name, ty) in [("a", a), ("b", b)] {
            check::float(name, ty)?;
            check::min_rank(name, ty, 2, "at least 2")?;
        }
        let [m, k] = matrix(a, self.transpose_a);
        let [k_of_b, n] = matrix(b, self.transpose_b);
        if k != k_of_b {
            return Err(OpError::InputChannels { expected: k_of_b, got: k });
        }
        let batch = &a.shape[..a.shape.len() - 2];
        if b.shape.len() > 2 && b.shape[..b.shape.len() - 2] != *batch {
            return Err(OpError::Broadcast { a: a.shape.clone(), b: b.shape.clone() });
        }
        let mut shape = batch.to_vec();
        shape.extend([m, n]);
        Ok(vec![TensorType::new(a.dtype, shape)])
    }

    pub(crate) fn flops(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> u64 {
        let products = matrix(inputs[0], self.transpose_a)[1] as u64;
        (outputs[0].elements() as u64).saturating_mul(products).saturating_mul(2)
    }
}

/// Rows and columns of the trailing matrix.
fn matrix(ty: &TensorType, transposed: bool) -> [usize; 2] {
    let rank = ty.shape.len();
    let [rows, columns] = [ty.shape[rank - 2], ty.shape[rank - 1]];
    if transposed { [columns, rows] } else { [rows, columns] }
}
