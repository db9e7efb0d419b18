//! Ops that move elements without computing on them. They copy bytes, whatever the element type.

use std::ops::Range;

use kinora_graph::op::{Concat, Slice};

use crate::{
    tasks,
    view::{View, ViewMut},
};

/// Bytes that a task copies.
const TASK_BYTES: usize = 64 * 1024;

/// One operand's share of each row of the result.
struct Part {
    data: *const u8,
    /// Bytes between the rows of the operand.
    stride: usize,
    /// The bytes of the result's row that come from it.
    columns: Range<usize>,
}

// SAFETY: a pointer into a view's memory, which nothing writes meanwhile.
unsafe impl Sync for Part {}

/// Joins operands along an axis.
pub(crate) fn concat(op: &Concat, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    let shape = &output.ty().shape;
    let inner = shape[op.axis + 1..].iter().product::<usize>() * output.ty().dtype.size();
    let mut end = 0;
    let part = |input: &View<'_>| {
        let stride = input.ty().shape[op.axis] * inner;
        end += stride;
        Part { data: input.bytes(), stride, columns: end - stride..end }
    };
    let parts: Vec<Part> = inputs.iter().map(part).collect();
    // SAFETY: each operand has as many rows as the result, `stride` bytes long, and together they make the result's.
    unsafe { copy_parts(&parts, shape[op.axis] * inner, &output) };
}

/// The same elements in other memory: a reshape outside a plan.
pub(crate) fn copy(inputs: &[View<'_>], output: ViewMut<'_>) {
    let (from, to, count) = (inputs[0].bytes(), output.bytes(), output.ty().bytes());
    // SAFETY: a reshape keeps the number of bytes, and the two tensors have memory of their own.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count) };
}

/// Takes a range of an axis.
pub(crate) fn slice(op: &Slice, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    let (from, to) = (&inputs[0].ty().shape, &output.ty().shape);
    let inner = to[op.axis + 1..].iter().product::<usize>() * output.ty().dtype.size();
    // SAFETY: the range lies within the axis, and the operand has elements because the result has.
    let data = unsafe { inputs[0].bytes().add(op.start * inner) };
    let part = Part { data, stride: from[op.axis] * inner, columns: 0..op.len * inner };
    // SAFETY: the operand has as many rows as the result, and `start + len` indices of each exist.
    unsafe { copy_parts(&[part], op.len * inner, &output) };
}

/// Fills the rows of `output`, `row_bytes` each, from their parts.
///
/// # Safety
/// For every row of the result, each part has `columns.len()` bytes at `stride` times the row; the parts' columns follow
/// one another and make up the row.
unsafe fn copy_parts(parts: &[Part], row_bytes: usize, output: &ViewMut<'_>) {
    tasks::each(output.ty().bytes(), TASK_BYTES, |range| {
        let mut at = range.start;
        let mut row = at / row_bytes;
        while at < range.end {
            let row_start = row * row_bytes;
            for part in parts {
                let from = (row_start + part.columns.start).max(at);
                let to = (row_start + part.columns.end).min(range.end);
                if from < to {
                    let offset = row * part.stride + (from - row_start - part.columns.start);
                    // SAFETY: within the part by this function's contract, and within this task's own bytes of the result.
                    unsafe {
                        let target = output.bytes().add(from);
                        std::ptr::copy_nonoverlapping(part.data.add(offset), target, to - from);
                    }
                }
            }
            row += 1;
            at = row * row_bytes;
        }
    });
}
