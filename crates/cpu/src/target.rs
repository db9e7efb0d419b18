//! What the CPU tells the passes and the plan.

use kinora_graph::{
    Op, Target, TensorType,
    op::{Conv, Linear, NormKind, Stage},
};

use crate::{
    fast::{PackedWeight, in_place},
    simd::Isa,
};

/// The CPU as a target of fusion and planning.
#[derive(Clone, Copy, Debug)]
pub struct CpuTarget {
    /// The instruction set, whose vectors decide how weights are packed.
    pub isa: Isa,
}

impl Default for CpuTarget {
    fn default() -> Self {
        CpuTarget { isa: Isa::detect() }
    }
}

impl Target for CpuTarget {
    fn fuses(&self, op: &Op, _inputs: &[&TensorType]) -> bool {
        match op {
            // A group norm's second read comes from a cache.
            Op::Linear(Linear { statistics: Some(_), .. }) | Op::Conv(Conv { statistics: Some(_), .. }) => {
                false
            }
            // A linear layer copies each row anyway, and can normalise it on the way.
            Op::Linear(op) => op.prologue.is_none_or(|norm| !matches!(norm.kind, NormKind::Group { .. })),
            // A convolution copies each pixel once per tap: it would repeat the norm nine times.
            Op::Conv(op) => op.prologue.is_none(),
            _ => true,
        }
    }

    fn packed_weight_bytes(&self, op: &Op, operand: usize, ty: &TensorType) -> Option<usize> {
        (PackedWeight::operand(op) == Some(operand)).then(|| PackedWeight::bytes_of(self.isa, op, ty))
    }

    fn in_place(&self, op: &Op, operand: usize) -> bool {
        match op {
            Op::Linear(op) => overwrites_epilogue_operand(&op.epilogue, op.first_of_epilogue(), operand),
            Op::Conv(op) => overwrites_epilogue_operand(&op.epilogue, op.first_of_epilogue(), operand),
            _ => in_place::in_place(op, operand),
        }
    }
}

/// Whether an operand is a tensor that the epilogue reads element by element as it writes the result.
fn overwrites_epilogue_operand(stages: &[Stage], first: usize, operand: usize) -> bool {
    let mut at = first;
    for stage in stages.iter().filter(|stage| stage.operands() > 0) {
        if at == operand {
            return matches!(stage, Stage::Add | Stage::Mul | Stage::Blend { .. });
        }
        at += stage.operands();
    }
    false
}

#[cfg(test)]
mod tests {
    use kinora_graph::op::{Activation, Affine, Norm, SamplerStep, Statistics};

    use super::*;

    fn overwritten(op: &Op) -> Vec<usize> {
        (0..12).filter(|&operand| CpuTarget::default().in_place(op, operand)).collect()
    }

    fn norm(kind: NormKind) -> Norm {
        Norm {
            kind,
            epsilon: 1e-5,
            affine: Affine::ScaleShift,
            activation: None,
            quantise: None,
            measured: false,
        }
    }

    #[test]
    fn a_product_overwrites_what_its_epilogue_reads_element_by_element() {
        let silu = Stage::Activate(Activation::Silu);
        let blend = Stage::Blend { accumulator_first: true };
        // x, weight, then the epilogue's: channels, (nothing), residual, (nothing), factor, other, α.
        let epilogue = vec![Stage::AddChannels, silu, Stage::Add, Stage::Scale(2.0), silu, Stage::Mul, blend];
        let linear = Linear { epilogue: epilogue.clone(), ..Linear::default() };
        assert_eq!(overwritten(&Op::Linear(linear.clone())), [3, 4, 5]);
        // A bias and a norm's two vectors come before.
        let linear = Linear { bias: true, prologue: Some(norm(NormKind::Layer)), ..linear };
        assert_eq!(overwritten(&Op::Linear(linear)), [6, 7, 8]);
        let conv = Conv { bias: true, epilogue, ..Conv::spatial([3, 3], 1, 1) };
        assert_eq!(overwritten(&Op::Conv(conv)), [4, 5, 6]);
        // A stage without operands before the residual does not stand in its way.
        let conv = Conv { epilogue: vec![silu, Stage::Add], ..Conv::spatial([1, 1], 1, 0) };
        assert_eq!(overwritten(&Op::Conv(conv)), [2]);
        assert!(overwritten(&Op::Conv(Conv::spatial([1, 1], 1, 0))).is_empty());
    }

    #[test]
    fn other_ops_overwrite_what_they_read_element_by_element() {
        assert_eq!(overwritten(&Op::Add), [0, 1]);
        assert_eq!(overwritten(&Op::Blend), [0, 1]);
        assert_eq!(overwritten(&Op::Norm(norm(NormKind::Layer))), [0]);
        assert!(overwritten(&Op::Embedding).is_empty());
        assert!(overwritten(&Op::SamplerStep(SamplerStep::default())).is_empty());
    }

    #[test]
    fn norms_fuse_if_rows_are_copied_once() {
        let group = NormKind::Group { groups: 4, frames: 1 };
        let linear = |kind| Op::Linear(Linear { prologue: Some(norm(kind)), ..Linear::default() });
        assert!(
            CpuTarget::default().fuses(&linear(NormKind::Layer), &[])
                && CpuTarget::default().fuses(&linear(NormKind::Rms), &[])
        );
        assert!(!CpuTarget::default().fuses(&linear(group), &[]));
        let conv = |prologue| Op::Conv(Conv { prologue, ..Conv::spatial([3, 3], 1, 1) });
        assert!(
            !CpuTarget::default().fuses(&conv(Some(norm(group))), &[])
                && CpuTarget::default().fuses(&conv(None), &[])
        );
        let statistics = Some(Statistics { groups: 4, frames: 1 });
        let measured = Op::Linear(Linear { statistics, ..Linear::default() });
        assert!(!CpuTarget::default().fuses(&measured, &[]));
        let epilogue = vec![Stage::Add, Stage::Activate(Activation::Gelu)];
        let gated = Linear { gate: Some(Activation::Gelu), epilogue, ..Linear::default() };
        assert!(CpuTarget::default().fuses(&Op::Linear(gated), &[]));
    }
}
