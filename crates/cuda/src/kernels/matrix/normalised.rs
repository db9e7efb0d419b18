//! A product whose input is normalised first.
//!
//! The norm is not fused into the product: it would break the direct path from memory to the tensor cores. The normalised
//! input is written to scratch memory, and the product reads it there.

use std::ops::Range;

use kinora_graph::{Op, TensorType};

use crate::{
    CudaError,
    kernels::{Call, Implementation, Places, Work},
};

/// A norm's kernels, then a product's.
#[derive(Debug)]
pub(super) struct Normalised {
    norm: Box<dyn Implementation>,
    product: Box<dyn Implementation>,
    /// The norm's operands after the input.
    affine: Range<usize>,
    /// The bytes of the normalised input.
    normalised_bytes: usize,
    /// An input without elements has nothing to normalise; the product of nothing is still a result.
    normalises: bool,
}

/// The norm before a product, as an op of its own.
pub(super) struct Prologue<'a> {
    op: Op,
    layer: &'a str,
    inputs: Vec<&'a TensorType>,
    affine: Range<usize>,
}

impl<'a> Prologue<'a> {
    /// The prologue of a call; `None` if it has none.
    pub fn of(call: &Call<'a>) -> Option<Prologue<'a>> {
        let (norm, bias) = match call.op {
            Op::Linear(op) => (op.prologue?, op.bias),
            Op::Conv(op) => (op.prologue?, op.bias),
            _ => return None,
        };
        let first = 2 + usize::from(bias);
        let affine = first..first + norm.affine.operands();
        let inputs =
            [call.inputs[0]].into_iter().chain(call.inputs[affine.clone()].iter().copied()).collect();
        Some(Prologue { op: Op::Norm(norm), layer: call.layer, inputs, affine })
    }

    /// Does something with the prologue's call. Its result has the input's type.
    pub fn with_call<R>(&self, work: impl FnOnce(&Call<'_>) -> R) -> R {
        let Prologue { op, layer, inputs, .. } = self;
        work(&Call { layer, op, inputs, outputs: &inputs[..1] })
    }
}

/// Scratch memory is divided at multiples of this, the alignment of every tensor.
const ALIGNMENT: usize = 256;

impl Normalised {
    pub fn new(
        prologue: &Prologue<'_>,
        norm: Box<dyn Implementation>,
        product: Box<dyn Implementation>,
    ) -> Normalised {
        Normalised {
            norm,
            product,
            affine: prologue.affine.clone(),
            normalised_bytes: prologue.inputs[0].bytes().next_multiple_of(ALIGNMENT),
            normalises: prologue.with_call(|call| call.runs()),
        }
    }
}

// SAFETY: norm and product keep the contract; the workspace holds the normalised operand, then what either needs.
unsafe impl Implementation for Normalised {
    fn name(&self) -> String {
        format!("{}, {}", self.norm.name(), self.product.name())
    }

    fn is_vendors(&self) -> bool {
        self.product.is_vendors()
    }

    fn workspace(&self) -> usize {
        // The two run one after the other and share the rest.
        self.normalised_bytes + self.norm.workspace().max(self.product.workspace())
    }

    fn work(&self, places: &Places) -> Result<Vec<Work>, CudaError> {
        let rest = places.workspace.offset(self.normalised_bytes);
        let affine = places.inputs[self.affine.clone()].iter().copied();
        let norm_places = Places {
            inputs: [places.inputs[0]].into_iter().chain(affine).collect(),
            outputs: vec![places.workspace],
            workspace: rest,
            ..places.clone()
        };
        let mut inputs = places.inputs.clone();
        inputs[0] = places.workspace;
        let product_places = Places { inputs, workspace: rest, ..places.clone() };
        let mut work = if self.normalises { self.norm.work(&norm_places)? } else { Vec::new() };
        work.extend(self.product.work(&product_places)?);
        Ok(work)
    }
}
