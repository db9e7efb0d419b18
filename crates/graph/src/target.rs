//! What a backend tells the passes and the plan.

use crate::{Op, TensorType};

/// What a graph needs to know about a backend.
pub trait Target {
    /// Whether the backend runs this op, with the prologue, gate, epilogue or blend it has, as one kernel. Passes ask
    /// before they fuse; an op without any of those is always accepted.
    fn fuses(&self, op: &Op, inputs: &[&TensorType]) -> bool;

    /// Scratch memory that the op needs while it runs, in bytes.
    fn workspace(&self, _op: &Op, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> usize {
        0
    }

    /// How many bytes the op's own copy of a weight takes, laid out for its kernel when the weight is known: one copy per
    /// node, which then does not need the plain tensor. `None` if the op reads the plain tensor. Asked for operands that
    /// are known before the op's phase.
    fn packed_weight_bytes(&self, _op: &Op, _operand: usize, _ty: &TensorType) -> Option<usize> {
        None
    }

    /// How many bytes an unpacked weight takes, including the padding before the next one.
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

/// A backend that accepts every fusion: for tests, and to see what the passes can do.
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
