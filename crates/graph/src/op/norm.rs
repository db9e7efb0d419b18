//! Normalisations.

use serde::{Deserialize, Serialize};

use super::{Activation, OpError, TensorType, check};
use crate::DType;

/// Which elements share a mean and a variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// All positions of `channels / groups` channels of `frames` consecutive images.
    /// `frames` is 1 for a per-image norm, the clip's frame count for a norm over a whole clip.
    Group {
        /// How many groups the channels are divided into.
        groups: usize,
        /// How many consecutive images share statistics.
        frames: usize,
    },
    /// The channels of one position.
    Layer,
    /// The channels of one position; divides by the root mean square and subtracts nothing.
    Rms,
}

/// The learned part of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affine {
    /// Nothing is learned.
    None,
    /// A factor per channel: operand `scale [C]`.
    Scale,
    /// A factor and an offset per channel: operands `scale [C]`, `shift [C]`.
    ScaleShift,
}

impl Affine {
    /// How many operands it takes.
    pub const fn operands(self) -> usize {
        match self {
            Affine::None => 0,
            Affine::Scale => 1,
            Affine::ScaleShift => 2,
        }
    }
}

/// What a group norm has to know of its input: the mean of each group of channels of some consecutive images, and the variance
/// about it. A tensor `f32 [images / frames, groups, 2]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// How many groups the channels are divided into.
    pub groups: usize,
    /// How many consecutive images share statistics.
    pub frames: usize,
}

impl Statistics {
    /// The type of the statistics of `x`.
    pub(crate) fn of(self, x: &TensorType) -> Result<TensorType, OpError> {
        check::min_rank("x", x, 2, "at least 2")?;
        check::groups(x.shape.channels(), self.groups)?;
        check::clips(x, self.frames)?;
        Ok(TensorType::new(DType::F32, [x.shape[0] / self.frames, self.groups, 2]))
    }
}

/// A normalisation, with the activation that follows it if the two are fused.
///
/// Operands: `x [images, …, C]`, then those of [`Affine`], then the [`Statistics`] of `x` if it is [`measured`](Norm::measured).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Norm {
    /// Which elements share statistics.
    pub kind: NormKind,
    /// Added to the variance.
    pub epsilon: f32,
    /// The learned part.
    pub affine: Affine,
    /// Applied to the normalised value.
    #[serde(default)]
    pub activation: Option<Activation>,
    /// Makes the result e4m3: what its elements are multiplied by before they are rounded.
    #[serde(default)]
    pub quantise: Option<f32>,
    /// Whether the statistics are an operand: what made `x` found them on the way. For group norms.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured: bool,
}

impl Norm {
    /// What a group norm has to know of its input.
    pub fn statistics(&self) -> Option<Statistics> {
        match self.kind {
            NormKind::Group { groups, frames } => Some(Statistics { groups, frames }),
            NormKind::Layer | NormKind::Rms => None,
        }
    }

    /// The operands after `x`: the learned ones, and the statistics if they are given.
    pub fn operands<'a, T>(&self, inputs: &'a [T]) -> (&'a [T], Option<&'a T>) {
        let (learned, rest) = inputs[1..].split_at(self.affine.operands());
        (learned, rest.first())
    }

    /// Checks `x` and the affine operands that follow it.
    pub(crate) fn check(&self, x: &TensorType, affine: &[&TensorType]) -> Result<(), OpError> {
        check::float("x", x)?;
        check::min_rank("x", x, 1, "at least 1")?;
        check::finite_positive("epsilon", self.epsilon)?;
        if let Some(factor) = self.quantise {
            check::finite_positive("factor", factor)?;
        }
        let channels = x.shape.channels();
        for (operand, name) in affine.iter().zip(["scale", "shift"]) {
            check::float(name, operand)?;
            check::shape(name, operand, &[channels])?;
        }
        if let NormKind::Group { groups, frames } = self.kind {
            check::min_rank("x", x, 2, "at least 2")?;
            check::groups(channels, groups)?;
            check::clips(x, frames)?;
        }
        Ok(())
    }

    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 1 + self.affine.operands() + usize::from(self.measured))?;
        let (learned, statistics) = self.operands(inputs);
        let x = inputs[0];
        self.check(x, learned)?;
        if let Some(&given) = statistics {
            let Some(statistics) = self.statistics() else {
                return Err(OpError::Attribute("only a group norm takes statistics".to_owned()));
            };
            check::dtype("statistics", given, DType::F32, "f32")?;
            check::shape("statistics", given, &statistics.of(x)?.shape)?;
        }
        let dtype = if self.quantise.is_some() { DType::F8E4M3 } else { x.dtype };
        Ok(vec![TensorType::new(dtype, x.shape.clone())])
    }
}

/// A batch norm with its running statistics: a per-channel affine map.
///
/// Operands: `x [.., C]`, `mean [C]`, `variance [C]`, `scale [C]`, `shift [C]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm {
    /// Added to the variance.
    pub epsilon: f32,
}

impl BatchNorm {
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, 5)?;
        let x = inputs[0];
        check::float("x", x)?;
        check::min_rank("x", x, 1, "at least 1")?;
        check::finite_positive("epsilon", self.epsilon)?;
        for (operand, name) in inputs[1..].iter().zip(["mean", "variance", "scale", "shift"]) {
            check::float(name, operand)?;
            check::shape(name, operand, &[x.shape.channels()])?;
        }
        Ok(vec![x.clone()])
    }
}
