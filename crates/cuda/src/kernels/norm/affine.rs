//! The learned part of a normalisation.

use kinora_graph::{DType, TensorType, op::Norm};

use crate::kernels::{
    Argument, DevicePointer, Kernel,
    geometry::words,
    names::{activation_name, type_name},
};

/// A factor and an offset a channel, where there are such.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine<'a> {
    scale: Option<(&'a TensorType, DevicePointer)>,
    shift: Option<(&'a TensorType, DevicePointer)>,
}

impl<'a> Affine<'a> {
    /// The operands behind `x`: scale, then shift.
    pub(super) fn new(operands: &[(&'a TensorType, DevicePointer)]) -> Affine<'a> {
        Affine { scale: operands.first().copied(), shift: operands.get(1).copied() }
    }

    #[cfg(test)]
    pub(super) fn none() -> Affine<'a> {
        Affine { scale: None, shift: None }
    }

    /// The kernels' `Affine`.
    pub(super) fn argument(&self) -> Argument {
        words([self.scale, self.shift].map(|operand| operand.map_or(0, |(_, at)| at)))
    }
}

/// A kernel with what `affine.cuh` wants to know, and the activation.
pub(super) fn with_affine(kernel: Kernel, norm: &Norm, affine: &Affine<'_>) -> Kernel {
    let type_of = |operand: Option<(&TensorType, DevicePointer)>| {
        type_name(operand.map_or(DType::F32, |(ty, _)| ty.dtype))
    };
    kernel
        .with("SCALED", affine.scale.is_some())
        .with("SHIFTED", affine.shift.is_some())
        .with("SCALE", type_of(affine.scale))
        .with("SHIFT", type_of(affine.shift))
        .with("ACTIVATION", activation_name(norm.activation))
}
