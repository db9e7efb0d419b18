//! What the CPU tells the passes and the plan.

use kinora_graph::{
    Op, Target, TensorType,
    op::{NormKind, Stage},
};

use crate::fast::in_place;

/// The CPU as a target of fusion and planning.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTarget;

impl Target for CpuTarget {
    fn fuses(&self, op: &Op, _inputs: &[&TensorType]) -> bool {
        match op {
            // A linear layer copies each row anyway, and normalises it on the way.
            Op::Linear(op) => op.prologue.is_none_or(|norm| !matches!(norm.kind, NormKind::Group { .. })),
            // A convolution copies each pixel once a tap: it would repeat the norm nine times.
            Op::Conv(op) => op.prologue.is_none(),
            _ => true,
        }
    }

    fn in_place(&self, op: &Op, operand: usize) -> bool {
        match op {
            Op::Linear(linear) => {
                let norm = linear.prologue.map_or(0, |norm| norm.affine.operands());
                overwrites_epilogue_operand(&linear.epilogue, 2 + usize::from(linear.bias) + norm, operand)
            }
            Op::Conv(conv) => {
                let norm = conv.prologue.map_or(0, |norm| norm.affine.operands());
                overwrites_epilogue_operand(&conv.epilogue, 2 + usize::from(conv.bias) + norm, operand)
            }
            _ => in_place::in_place(op, operand),
        }
    }
}

/// Whether an operand is a tensor that the epilogue reads element by element as it writes the result.
fn overwrites_epilogue_operand(stages: &[Stage], first: usize, operand: usize) -> bool {
    let mut at = first;
    for stage in stages {
        if at == operand {
            return matches!(stage, Stage::Add | Stage::Mul | Stage::Blend { .. });
        }
        at += stage.operands();
    }
    false
}
