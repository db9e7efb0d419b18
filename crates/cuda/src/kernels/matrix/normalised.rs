//! A product whose input is normalised first.
//!
//! The norm is not fused into the product: it would break the direct path from memory to the tensor cores. The normalised
//! input is written to scratch memory, and the product reads it there.

use kinora_graph::{Op, TensorType, op::Norm};

use crate::{
    CudaError,
    kernels::{Call, Implementation, Places, Work},
};

/// A norm's kernels, then a product's.
#[derive(Debug)]
pub(super) struct Normalised {
    pub norm: Box<dyn Implementation>,
    pub product: Box<dyn Implementation>,
}

/// The prologue of a product, and which operands are its own.
pub(super) fn prologue(op: &Op) -> Option<(Norm, usize)> {
    match op {
        Op::Linear(op) => op.prologue.map(|norm| (norm, 2 + usize::from(op.bias))),
        Op::Conv(op) => op.prologue.map(|norm| (norm, 2 + usize::from(op.bias))),
        _ => None,
    }
}

/// The prologue as a call of its own. Its result is the input's type.
pub(super) fn with_norm_call<R>(call: &Call<'_>, f: impl FnOnce(&Call<'_>) -> R) -> Option<R> {
    let (norm, first) = prologue(call.op)?;
    let x = call.inputs[0];
    let inputs: Vec<&TensorType> =
        [x].into_iter().chain(call.inputs[first..first + norm.affine.operands()].iter().copied()).collect();
    let op = Op::Norm(norm);
    Some(f(&Call { layer: call.layer, op: &op, inputs: &inputs, outputs: &[x] }))
}

/// Scratch memory is divided at multiples of this, the alignment of every tensor.
const ALIGNMENT: usize = 256;

/// The bytes of the normalised input.
fn normalised_bytes(call: &Call<'_>) -> usize {
    call.inputs[0].bytes().next_multiple_of(ALIGNMENT)
}

impl Implementation for Normalised {
    fn name(&self) -> String {
        format!("{}, {}", self.norm.name(), self.product.name())
    }

    fn is_vendors(&self) -> bool {
        self.product.is_vendors()
    }

    fn workspace(&self, call: &Call<'_>) -> usize {
        // The two run one after the other, so that the rest is shared.
        let norm = with_norm_call(call, |norm| self.norm.workspace(norm)).unwrap_or(0);
        normalised_bytes(call) + norm.max(self.product.workspace(call))
    }

    fn work(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Work>, CudaError> {
        let Some((norm, first)) = prologue(call.op) else {
            return Err(CudaError::Internal(format!("{}: there is no prologue to run", call.layer)));
        };
        let rest = places.workspace + normalised_bytes(call) as u64;
        let affine = places.inputs[first..first + norm.affine.operands()].iter().copied();
        let norm_places = Places {
            inputs: [places.inputs[0]].into_iter().chain(affine).collect(),
            outputs: vec![places.workspace],
            workspace: rest,
            ..places.clone()
        };
        let mut inputs = places.inputs.clone();
        inputs[0] = places.workspace;
        let product_places = Places { inputs, workspace: rest, ..places.clone() };
        // An input without elements has nothing to normalise; the product of nothing is still a result.
        let normalise = |norm: &Call<'_>| match norm.runs() {
            true => self.norm.work(norm, &norm_places),
            false => Ok(Vec::new()),
        };
        let mut work = with_norm_call(call, normalise).transpose()?.unwrap_or_default();
        work.extend(self.product.work(call, &product_places)?);
        Ok(work)
    }
}
