//! The learned part of a normalisation.

use kinora_graph::{DType, TensorType, op::Norm};

use crate::{
    kernels::{
        DevicePointer, Kernel, Places,
        names::{activation_name, type_name},
    },
    launch::c_struct,
};

c_struct! {
    /// Where the factor and the offset of each channel lie; null if there is none.
    pub(super) struct Affine {
        scale: DevicePointer,
        shift: DevicePointer,
    }
}

/// The types of a factor and of an offset for each channel, if there are such.
#[derive(Clone, Copy, Debug)]
pub(super) struct AffineTypes {
    scale: Option<DType>,
    shift: Option<DType>,
}

impl AffineTypes {
    /// Those of the operands after `x`: scale, then shift.
    pub(super) fn of(operands: &[&TensorType]) -> AffineTypes {
        let dtype = |operand: usize| operands.get(operand).map(|ty| ty.dtype);
        AffineTypes { scale: dtype(0), shift: dtype(1) }
    }

    /// Where they lie: after `x`.
    pub(super) fn at(self, places: &Places) -> Affine {
        let at = |given: Option<DType>, operand: usize| {
            given.map_or(DevicePointer::NULL, |_| places.inputs[operand])
        };
        Affine { scale: at(self.scale, 1), shift: at(self.shift, 2) }
    }

    /// A kernel with what `affine.cuh` needs to know, the activation and the result's type, of a norm of `x`.
    pub(super) fn specialise(self, kernel: Kernel, norm: &Norm, x: &TensorType) -> Kernel {
        let name = |operand: Option<DType>| type_name(operand.unwrap_or(DType::F32));
        kernel
            .with("SCALED", self.scale.is_some())
            .with("SHIFTED", self.shift.is_some())
            .with("SCALE", name(self.scale))
            .with("SHIFT", name(self.shift))
            .with("ACTIVATION", activation_name(norm.activation))
            .with("QUANTISED", norm.quantise.is_some())
            .with("RESULT", type_name(if norm.quantise.is_some() { DType::F8E4M3 } else { x.dtype }))
    }
}
