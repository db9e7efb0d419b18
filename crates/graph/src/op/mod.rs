//! The ops: what they mean, what they accept, what they return.
//!
//! An op is semantic (`Conv`, `Norm`, `Attention`), never a kernel. Its operands and results are described on its
//! struct; [`Op::infer`] is the only place that decides whether operands fit.

mod activation;
mod arrange;
mod attention;
mod check;
mod conv;
mod embedding;
mod error;
mod fused;
mod linear;
mod norm;
mod pointwise;
mod quantise;
mod resample;
mod sampler;
#[cfg(test)]
mod tests;
mod text;

use serde::{Deserialize, Serialize};

pub use activation::Activation;
pub use arrange::{Concat, Reshape, Slice};
pub use attention::{Attention, AttentionBackward, AttentionExtents, Mask, SequenceAxis};
pub use conv::{Conv, LinearOperands};
pub use embedding::TimestepEmbedding;
pub use error::OpError;
pub use fused::{Stage, is_channel_operand};
pub use linear::{Linear, MatMul};
pub use norm::{Affine, BatchNorm, Norm, NormKind, Statistics};
pub use pointwise::{Gate, Scale, TemporalBlend};
pub use quantise::Quantise;
pub use resample::{Interpolation, Mean, Pool, PoolKind, Resample, Upsample};
pub use sampler::{Prediction, STEP_COLUMNS, SamplerOperands, SamplerStep, StepCoefficients};

use crate::{DType, TensorType};

/// An operation on tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Convolution over space, frames or both.
    Conv(Conv),
    /// Learned matrix product over the channels.
    Linear(Linear),
    /// Product of two activations.
    MatMul(MatMul),
    /// Group, layer and RMS norm.
    Norm(Norm),
    /// Batch norm with running statistics.
    BatchNorm(BatchNorm),
    /// A pointwise function.
    Activate(Activation),
    /// Softmax over the last axis.
    Softmax,
    /// Half of the channels times an activation of the other half.
    Gate(Gate),
    /// Softmax attention.
    Attention(Attention),
    /// Its gradients.
    AttentionBackward(AttentionBackward),
    /// Sum of two operands that broadcast together.
    Add,
    /// Product of two operands that broadcast together.
    Mul,
    /// A constant factor and offset.
    Scale(Scale),
    /// `α·a + (1−α)·b`, operands `a`, `b`, `α`.
    Blend,
    /// Joins along an axis.
    Concat(Concat),
    /// A range of an axis.
    Slice(Slice),
    /// Nearest or bilinear resizing.
    Upsample(Upsample),
    /// One pass of a separable filter over bytes.
    Resample(Resample),
    /// Average or max pooling.
    Pool(Pool),
    /// The mean over some axes.
    Mean(Mean),
    /// Sinusoidal embedding of numbers.
    TimestepEmbedding(TimestepEmbedding),
    /// Rows of a table, operands `table`, `ids`.
    Embedding,
    /// Another element type; float to integer or e4m3 rounds half to even and saturates.
    Cast(DType),
    /// Numbers in e4m3.
    Quantise(Quantise),
    /// Another shape for the same memory.
    Reshape(Reshape),
    /// One step of a diffusion sampler.
    SamplerStep(SamplerStep),
    /// A frame blended with the previous one.
    TemporalBlend(TemporalBlend),
}

impl Op {
    /// Checks the operands and returns the types of the results.
    ///
    /// # Errors
    /// If the op is not defined for these operands.
    pub fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let outputs = match self {
            Op::Conv(op) => op.infer(inputs),
            Op::Linear(op) => op.infer(inputs),
            Op::MatMul(op) => op.infer(inputs),
            Op::Norm(op) => op.infer(inputs),
            Op::BatchNorm(op) => op.infer(inputs),
            Op::Activate(_) => pointwise::infer_unary(inputs),
            Op::Softmax => pointwise::infer_softmax(inputs),
            Op::Gate(op) => op.infer(inputs),
            Op::Attention(op) => op.infer(inputs),
            Op::AttentionBackward(op) => op.infer(inputs),
            Op::Add | Op::Mul => pointwise::infer_binary(inputs),
            Op::Scale(op) => op.infer(inputs),
            Op::Blend => pointwise::infer_blend(inputs),
            Op::Concat(op) => op.infer(inputs),
            Op::Slice(op) => op.infer(inputs),
            Op::Upsample(op) => op.infer(inputs),
            Op::Resample(op) => op.infer(inputs),
            Op::Pool(op) => op.infer(inputs),
            Op::Mean(op) => op.infer(inputs),
            Op::TimestepEmbedding(op) => op.infer(inputs),
            Op::Embedding => embedding::infer_lookup(inputs),
            Op::Cast(dtype) => {
                check::count(inputs, 1)?;
                Ok(vec![TensorType::new(*dtype, inputs[0].shape.clone())])
            }
            Op::Quantise(op) => op.infer(inputs),
            Op::Reshape(op) => op.infer(inputs),
            Op::SamplerStep(op) => op.infer(inputs),
            Op::TemporalBlend(op) => op.infer(inputs),
        }?;
        match outputs.iter().find(|output| output.checked_bytes().is_none()) {
            Some(output) => Err(OpError::TooLarge(output.shape.clone())),
            None => Ok(outputs),
        }
    }

    /// Floating-point operations of the matrix work, a multiply-add counted as two, for types that [`Op::infer`]
    /// accepted and returned. Memory-bound ops count as zero: their cost is their bytes. At most `u64::MAX`.
    pub fn flops(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> u64 {
        match self {
            Op::Conv(op) => op.flops(inputs, outputs),
            Op::Linear(op) => op.flops(inputs),
            Op::MatMul(op) => op.flops(inputs, outputs),
            Op::Attention(op) => op.flops(inputs),
            Op::AttentionBackward(op) => op.flops(inputs),
            _ => 0,
        }
    }

    /// The epilogue of a convolution or linear op: what fusion works on.
    pub fn epilogue(&self) -> Option<&[Stage]> {
        match self {
            Op::Conv(op) => Some(&op.epilogue),
            Op::Linear(op) => Some(&op.epilogue),
            _ => None,
        }
    }

    /// The epilogue of a convolution or linear op, to extend.
    pub fn epilogue_mut(&mut self) -> Option<&mut Vec<Stage>> {
        match self {
            Op::Conv(op) => Some(&mut op.epilogue),
            Op::Linear(op) => Some(&mut op.epilogue),
            _ => None,
        }
    }
}
