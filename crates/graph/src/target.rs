//! What a backend tells the passes and the plan.

use crate::{Op, TensorType};

/// A backend, as far as a graph needs to know it.
pub trait Target {
    /// Whether the backend runs this op, with the prologue, gate and epilogue it has, as one kernel. Passes ask before
    /// they fuse; an op without any of those is always accepted.
    fn fuses(&self, op: &Op, inputs: &[&TensorType]) -> bool;

    /// Scratch memory that the op needs while it runs, in bytes.
    fn workspace(&self, _op: &Op, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> usize {
        0
    }

    /// How many bytes the op's own copy of a weight takes, laid out for its kernel when the weights are loaded: one copy a
    /// node, which then does not need the plain tensor. `None` where the op reads the plain tensor. Asked for operands of
    /// the clip and step phases that are known at load.
    fn packed_weight_bytes(&self, _op: &Op, _operand: usize, _ty: &TensorType) -> Option<usize> {
        None
    }

    /// How many bytes a weight that is kept as it is takes, with what follows it up to where the next one may start.
    fn weight_bytes(&self, ty: &TensorType) -> usize {
        ty.bytes()
    }

    /// Whether the op's first result may be written over this operand, given that nothing reads it later and the two
    /// have as many elements of the same size.
    fn in_place(&self, _op: &Op, _operand: usize) -> bool {
        false
    }

    /// Every buffer starts at a multiple of this many bytes, a power of two.
    fn alignment(&self) -> usize {
        crate::tensor::ALIGNMENT
    }
}

/// A backend that fuses whatever is asked: for tests, and to see what the passes can do.
#[derive(Clone, Copy, Debug, Default)]
pub struct FuseAll;

impl Target for FuseAll {
    fn fuses(&self, _op: &Op, _inputs: &[&TensorType]) -> bool {
        true
    }
}

/// A backend that fuses nothing: the baseline.
#[derive(Clone, Copy, Debug, Default)]
pub struct FuseNothing;

impl Target for FuseNothing {
    fn fuses(&self, _op: &Op, _inputs: &[&TensorType]) -> bool {
        false
    }
}
