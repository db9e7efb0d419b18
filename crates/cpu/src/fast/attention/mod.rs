//! Softmax attention, blockwise: the whole matrix of scores never exists.
//!
//! Two paths share the reading of operands ([`operand`]), what a query sees ([`visibility`], [`hidden`]) and the
//! softmax of a row ([`softmax`]): [`blocks`] takes sequences of any length with matrix products and an online softmax,
//! [`frames`] takes the many short sequences of temporal attention. [`backward`] has the gradients of both.

mod backward;
mod blocks;
mod frames;
mod hidden;
mod operand;
mod scratch;
mod softmax;
#[cfg(test)]
mod tests;
mod visibility;

pub(super) use scratch::register_scratch;

use kinora_graph::op::{Attention, AttentionBackward, AttentionExtents, SequenceAxis};

use self::operand::{Layout, Rows, RowsMut, Sequence};
use self::visibility::Visibility;
use crate::simd::Isa;
use crate::view::{View, ViewMut};

/// Computes `op` on operands whose types it has checked. The result does not depend on the number of threads.
///
/// The outputs overlap no operand.
pub(crate) fn attention(isa: Isa, op: &Attention, inputs: &[View<'_>], outputs: &[ViewMut<'_>]) {
    let problem = Problem::new(op, inputs, outputs);
    let AttentionExtents { queries, keys, .. } = problem.extents;
    let short = queries.max(keys) <= frames::LONGEST;
    match op.axis {
        SequenceAxis::Frames { .. } if short => frames::run(isa, &problem),
        _ => blocks::run(isa, &problem),
    }
}

/// Computes the gradients of an attention. The result does not depend on the number of threads.
///
/// The outputs overlap no operand.
pub(crate) fn attention_backward(
    isa: Isa,
    op: &AttentionBackward,
    inputs: &[View<'_>],
    outputs: &[ViewMut<'_>],
) {
    backward::run(isa, &Problem::new(&op.forward, inputs, outputs));
}

/// An attention and its memory.
struct Problem<'a> {
    op: &'a Attention,
    extents: AttentionExtents,
    inputs: &'a [View<'a>],
    outputs: &'a [ViewMut<'a>],
}

impl<'a> Problem<'a> {
    fn new(op: &'a Attention, inputs: &'a [View<'a>], outputs: &'a [ViewMut<'a>]) -> Self {
        let extents = op.extents(inputs[0].ty(), inputs[1].ty());
        Problem { op, extents, inputs, outputs }
    }

    /// The layout of a tensor's rows, with `length` rows in a sequence.
    fn layout(&self, length: usize, channels: usize, offset: usize) -> Layout {
        Layout { length, positions: self.extents.positions, channels, offset, head_dim: self.op.head_dim }
    }

    fn operand(&self, index: usize, length: usize, sequence: Sequence) -> Rows<'a> {
        let view = self.inputs[index];
        Rows::new(view, self.layout(length, view.ty().shape[2], self.op.offsets[index]), sequence)
    }

    fn queries(&self, sequence: Sequence) -> Rows<'a> {
        self.operand(0, self.extents.queries, sequence)
    }

    /// The keys of the queries of `sequence`.
    fn keys(&self, sequence: Sequence) -> Rows<'a> {
        self.operand(1, self.extents.keys, self.of_keys(sequence))
    }

    /// The values of the queries of `sequence`.
    fn values(&self, sequence: Sequence) -> Rows<'a> {
        self.operand(2, self.extents.keys, self.of_keys(sequence))
    }

    fn output(&self, sequence: Sequence) -> RowsMut<'_> {
        let layout = self.layout(self.extents.queries, self.op.heads * self.op.head_dim, 0);
        RowsMut::new(&self.outputs[0], layout, sequence)
    }

    /// Writes the logarithm of a query's sum of exponentials, if it is a result: `total` is their sum less `largest`.
    ///
    /// # Safety
    /// No other thread writes this query's meanwhile.
    unsafe fn write_log_sum_exp(&self, sequence: Sequence, query: usize, largest: f32, total: f32) {
        let Some(view) = self.outputs.get(1) else { return };
        let at = self.row_of_sums(sequence, query);
        assert!(at < view.ty().elements());
        let sum = if total == 0.0 { f32::NEG_INFINITY } else { largest + total.ln() };
        // SAFETY: the result is f32 and has the element, which is the caller's alone.
        unsafe { *view.ptr::<f32>().add(at) = sum };
    }

    /// Which element of the logarithms is a query's.
    fn row_of_sums(&self, sequence: Sequence, query: usize) -> usize {
        let AttentionExtents { queries, positions, .. } = self.extents;
        let row = (sequence.batch * queries + query) * positions + sequence.position;
        row * self.op.heads + sequence.head
    }

    fn visibility(&self, sequence: Sequence) -> Visibility<'a> {
        let AttentionExtents { queries, keys, .. } = self.extents;
        let length = match self.op.key_lengths_operand() {
            // SAFETY: the outputs overlap no operand, so nothing writes it.
            Some(index) => unsafe {
                self.inputs[index].slice::<i32>()[self.of_keys(sequence).batch].clamp(0, keys as i32) as usize
            },
            None => keys,
        };
        let operand = self.op.mask_operand().map(|index| self.inputs[index]);
        // SAFETY: as for the lengths.
        let boundaries = self
            .op
            .boundary_operands()
            .map(|operands| unsafe { operands.map(|index| self.inputs[index].slice::<i32>()) });
        Visibility::new(self.op.mask, operand, sequence, (queries, keys), length, boundaries)
    }

    /// The sequence of keys that serves a sequence of queries.
    fn of_keys(&self, sequence: Sequence) -> Sequence {
        let share = self.extents.batch / self.extents.key_batch;
        Sequence { batch: sequence.batch / share, ..sequence }
    }
}
