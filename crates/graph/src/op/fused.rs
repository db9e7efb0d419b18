//! The epilogue: what a convolution or a matrix product can do to its result before storing it.

use serde::{Deserialize, Serialize};

use super::{Activation, OpError, TensorType, check};

/// One step applied to the f32 accumulator before it is stored. Stages run in order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Applies an activation.
    Activate(Activation),
    /// Multiplies by a constant.
    Scale(f32),
    /// Adds an operand of one vector per image, `[images or 1, 1, …, C]`: the time embedding.
    AddChannels,
    /// Adds an operand of the output's shape: the residual.
    Add,
    /// Multiplies by an operand of the output's shape.
    Mul,
    /// Blends with an operand of the output's shape by a second operand `α [1]`: `α·first + (1−α)·second`, where the
    /// accumulator is either `first` or `second`.
    Blend {
        /// Whether the accumulator is the blend's first side, the one weighted by α.
        accumulator_first: bool,
    },
}

impl Stage {
    /// How many operands the stage takes.
    pub const fn operands(self) -> usize {
        match self {
            Stage::Activate(_) | Stage::Scale(_) => 0,
            Stage::AddChannels | Stage::Add | Stage::Mul => 1,
            Stage::Blend { .. } => 2,
        }
    }

    /// The operands of each stage of an epilogue, in order.
    pub fn split<'a, T>(
        stages: &'a [Stage],
        mut operands: &'a [T],
    ) -> impl Iterator<Item = (Stage, &'a [T])> {
        stages.iter().map(move |&stage| {
            let (own, rest) = operands.split_at(stage.operands().min(operands.len()));
            operands = rest;
            (stage, own)
        })
    }

    /// How many operands an epilogue takes.
    pub fn operand_count(stages: &[Stage]) -> usize {
        stages.iter().map(|s| s.operands()).sum()
    }

    /// Checks an epilogue's operands against the output.
    pub(crate) fn check_all(
        stages: &[Stage],
        operands: &[&TensorType],
        output: &TensorType,
    ) -> Result<(), OpError> {
        for (stage, own) in Stage::split(stages, operands) {
            match stage {
                Stage::Activate(_) => {}
                Stage::Scale(factor) => check::finite("scale", factor)?,
                Stage::AddChannels => {
                    check::float("the channel operand", own[0])?;
                    if !is_channel_operand(own[0], output) {
                        let mut expected = vec![1; output.shape.len()];
                        expected[0] = output.shape[0];
                        expected[output.shape.len() - 1] = output.shape.channels();
                        check::shape("the channel operand", own[0], &expected)?;
                    }
                }
                Stage::Add | Stage::Mul => {
                    check::float("the epilogue operand", own[0])?;
                    check::shape("the epilogue operand", own[0], &output.shape)?;
                }
                Stage::Blend { .. } => {
                    check::float("the blend operand", own[0])?;
                    check::shape("the blend operand", own[0], &output.shape)?;
                    check::float("alpha", own[1])?;
                    check::shape("alpha", own[1], &[1])?;
                }
            }
        }
        Ok(())
    }
}

/// Whether `operand` broadcasts over `output` as one vector per image, or one vector for all.
pub fn is_channel_operand(operand: &TensorType, output: &TensorType) -> bool {
    let (a, b) = (&operand.shape, &output.shape);
    if b.len() < 2 || a.is_empty() || a.len() > b.len() || a.channels() != b.channels() {
        return false;
    }
    let lead = b.len() - a.len();
    a[..a.len() - 1].iter().enumerate().all(|(axis, &d)| d == 1 || (axis + lead == 0 && d == b[0]))
}
