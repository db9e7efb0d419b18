//! The edges of attention.

use kinora_graph::{
    DType, Op, Tensor,
    op::{Attention, AttentionBackward, Mask},
};

use super::{Case, Operands};
use crate::executor::{Executor, Reference};

/// The masks of short sequences.
const SHORT_MASKS: [Mask; 5] = [
    Mask::None,
    Mask::Causal { diagonal: -1 },
    Mask::SlidingWindow { diagonal: 1, window: 2 },
    Mask::Boolean,
    Mask::Additive,
];

/// Sequences and heads of every odd size.
pub(super) fn short(
    o: &mut Operands,
    [images, height, width]: [usize; 3],
    head_dim: usize,
    cases: &mut Vec<Case>,
) {
    let length = height * width;
    let (heads, frames) = (2, images.max(1));
    for axis in 0..2 {
        let op = if axis == 0 {
            Attention::over_positions(heads, head_dim)
        } else {
            Attention::over_frames(heads, head_dim, frames)
        };
        for (mask, key_lengths) in SHORT_MASKS.into_iter().flat_map(|mask| [(mask, false), (mask, true)]) {
            // A power of two keeps the scores exact.
            let op = Attention { mask, key_lengths, log_sum_exp: key_lengths, scale: 0.25, ..op.clone() };
            let shape = [images, length, heads * head_dim];
            let mut inputs = vec![o.signs(&shape), o.signs(&shape), o.x(&shape)];
            let extents = op.extents(inputs[0].ty(), inputs[1].ty());
            if op.mask_operand().is_some() {
                let shape = [extents.batch, 1, extents.queries, extents.keys];
                // Every second query sees nothing at all, the others every second key.
                let seen = |i: usize| (i / extents.keys.max(1)).is_multiple_of(2) && i.is_multiple_of(2);
                let (hidden, dtype) = match mask {
                    Mask::Boolean => (0.0, DType::U8),
                    _ => (f32::NEG_INFINITY, o.dtype),
                };
                let shown = if mask == Mask::Boolean { 1.0 } else { 0.0 };
                let mask: Vec<f32> =
                    (0..shape.iter().product()).map(|i| if seen(i) { shown } else { hidden }).collect();
                inputs.push(Tensor::from_f32(dtype, shape, &mask).unwrap());
            }
            if key_lengths {
                let lengths: Vec<i32> = (0..extents.key_batch).map(|i| i as i32 - 1).collect();
                inputs.push(Tensor::from_slice([extents.key_batch], &lengths).unwrap());
            }
            cases.push((Op::Attention(op), inputs));
        }
    }
}

/// Several tiles of queries and keys, with heads of sizes that tensor cores take, and keys that no query sees.
pub(super) fn long(o: &mut Operands, cases: &mut Vec<Case>) {
    long_with(o, Hidden { lengths: [0, 77], bias: 1.0 }, cases);
}

/// How keys are hidden: how many of a batch element exist, and what an additive mask's whole numbers are multiplied by.
#[derive(Clone, Copy)]
struct Hidden {
    lengths: [i32; 2],
    bias: f32,
}

fn long_with(o: &mut Operands, how: Hidden, cases: &mut Vec<Case>) {
    let masks = [
        Mask::None,
        // Whole tiles are hidden, seen and cut; the first queries see no key.
        Mask::Causal { diagonal: -20 },
        Mask::SlidingWindow { diagonal: 30, window: 70 },
        Mask::Boolean,
        Mask::Additive,
    ];
    let masks = masks.into_iter().flat_map(|mask| [(mask, false), (mask, true)]);
    for (index, (mask, key_lengths)) in masks.enumerate() {
        // An even and an odd number of keys; in the widest heads' also several sequences.
        for (head_dim, keys, boundaries) in
            [(64, 230, false), (8, 217, index % 3 == 0), ([72, 136, 168, 200][index % 4], 198 + index, true)]
        {
            cases.push(hidden(
                o,
                Attention { mask, key_lengths, boundaries, ..Attention::over_positions(1, head_dim) },
                keys,
                how,
            ));
        }
    }
}

/// An attention of 150 queries in each of two batch elements, and of so many keys.
fn hidden(o: &mut Operands, op: Attention, keys: usize, Hidden { lengths, bias }: Hidden) -> Case {
    let (batch, queries) = (2, 150);
    let op = Attention { scale: 0.25, log_sum_exp: true, ..op };
    // Sequences of several tiles, of one query and no key, and what is outside them.
    let boundaries = [[0, 70, 71, 140], [3, 90, 90, keys - 10]];
    let by_number = |query: usize| {
        if !op.boundaries {
            return op.mask.range(query, keys);
        }
        let Some(s) = (0..3).find(|&s| (boundaries[0][s]..boundaries[0][s + 1]).contains(&query)) else {
            return 0..0;
        };
        let (first, end) = (boundaries[1][s], boundaries[1][s + 1]);
        let range = op.mask.range(query - boundaries[0][s], end - first);
        first + range.start..first + range.end
    };
    // Query 5 sees no key, and no query sees key 6. Of the rest, even queries see every key, odd ones every third.
    let in_mask = |query: usize, key: usize| {
        query != 5 && key != 6 && (query.is_multiple_of(2) || key.is_multiple_of(3))
    };
    let sees = |batch: usize, query: usize, key: usize| {
        let by_mask = op.mask_operand().is_none() || in_mask(query, key);
        by_mask && by_number(query).contains(&key) && !(op.key_lengths && key as i32 >= lengths[batch])
    };
    let q = o.signs(&[batch, queries, op.head_dim]);
    // What is hidden from all holds no finite numbers, or one too large: kernels may treat rows that a hidden value spoils another way.
    let rubbish = if op.head_dim == 8 { f32::NAN } else { 100.0 };
    let with_rubbish = |x: Tensor, rubbish: f32| {
        let mut values = x.to_f32();
        for (row, values) in values.chunks_exact_mut(op.head_dim).enumerate() {
            let (batch, key) = (row / keys, row % keys);
            if !(0..queries).any(|query| sees(batch, query, key)) {
                values.fill(rubbish);
            }
        }
        Tensor::from_f32(x.dtype(), x.shape().clone(), &values).unwrap()
    };
    let shape = [batch, keys, op.head_dim];
    let k = with_rubbish(o.signs(&shape), f32::INFINITY);
    let v = with_rubbish(o.x(&shape), rubbish);
    let mut inputs = vec![q, k, v];
    if op.mask_operand().is_some() {
        let boolean = op.mask == Mask::Boolean;
        let value = |i: usize| match (boolean, in_mask(i / keys % queries, i % keys)) {
            (true, seen) => f32::from(u8::from(seen)),
            // Nobody looks at what a boundary hides.
            (false, true) if op.boundaries && !by_number(i / keys % queries).contains(&(i % keys)) => {
                f32::NAN
            }
            (false, true) => ((i % 5) as f32 - 2.0) * bias,
            (false, false) => f32::NEG_INFINITY,
        };
        let mask: Vec<f32> = (0..batch * queries * keys).map(value).collect();
        let dtype = if boolean { DType::U8 } else { o.dtype };
        inputs.push(Tensor::from_f32(dtype, [batch, 1, queries, keys], &mask).unwrap());
    }
    if op.key_lengths {
        inputs.push(Tensor::from_slice([batch], &lengths).unwrap());
    }
    if op.boundaries {
        inputs.extend(boundaries.map(|values| Tensor::from_slice([4], &values.map(|x| x as i32)).unwrap()));
    }
    (Op::Attention(op), inputs)
}

/// The gradients of [`short`].
pub(super) fn short_backward(o: &mut Operands, extents: [usize; 3], head_dim: usize, cases: &mut Vec<Case>) {
    // Scores are to stay small, since their exponentials decide the sizes of all results.
    let mut forward = Vec::new();
    let mut unit = Operands { magnitude: 1.0, ..*o };
    short(&mut unit, extents, head_dim, &mut forward);
    for (op, mut inputs) in forward {
        let Op::Attention(op) = op else { continue };
        let op = Attention { log_sum_exp: true, ..op };
        // Large gradients of the result beside small values.
        inputs[2] = o.eighths(inputs[2].shape(), 1.0 / large(o));
        cases.extend(backward(o, op, inputs));
    }
}

/// The gradients of [`long`]: hidden keys hold what is not finite here as well.
pub(super) fn long_backward(o: &mut Operands, cases: &mut Vec<Case>) {
    let mut forward = Vec::new();
    // Weights of 16 bits are rounded: with many keys of no gradient, or of far smaller ones than others have, results that cancel would
    // be held to less than their terms' last place.
    long_with(o, Hidden { lengths: [190, 300], bias: 0.125 }, &mut forward);
    for (op, inputs) in forward {
        let Op::Attention(op) = op else { continue };
        // If few keys had nearly all of the weight, gradients would be differences of numbers that are nearly the same.
        let scale = 0.5f32.powi(op.head_dim.ilog2().div_ceil(2) as i32 + 1);
        cases.extend(backward(o, Attention { scale, ..op }, inputs));
    }
    // Heads of the sizes that networks have, lengths that fill no tile, and keys that several batch elements share.
    let causal = Mask::Causal { diagonal: 40 };
    for ([batch, key_batch, heads, queries, keys, head_dim], mask) in [
        ([1, 1, 2, 130, 170, 64], causal),
        ([1, 1, 1, 129, 200, 128], Mask::None),
        ([1, 1, 1, 200, 129, 128], Mask::SlidingWindow { diagonal: -30, window: 60 }),
        ([4, 2, 2, 33, 77, 40], Mask::None),
        ([2, 1, 1, 65, 1, 80], Mask::None),
        ([1, 1, 2, 1, 65, 96], Mask::None),
        ([1, 1, 1, 70, 110, 160], causal),
        ([1, 1, 1, 70, 90, 256], Mask::None),
        ([1, 1, 1, 20, 60, 264], causal),
    ] {
        let op =
            Attention { mask, scale: 0.125, log_sum_exp: true, ..Attention::over_positions(heads, head_dim) };
        let width = heads * head_dim;
        let [q, k, v] = [[batch, queries], [key_batch, keys], [key_batch, keys]]
            .map(|[batch, length]| o.eighths(&[batch, length, width], 1.0));
        cases.extend(backward(o, op, vec![q, k, v]));
    }
    let over_frames = Attention { log_sum_exp: true, ..Attention::over_frames(2, 32, 14) };
    let packed = o.eighths(&[28, 5, 200], 1.0);
    let op = Attention { offsets: [8, 72, 136], ..over_frames };
    cases.extend(backward(o, op, vec![packed.clone(), packed.clone(), packed]));
}

/// What gradients of the results are multiplied by, and values divided: a power of two.
fn large(o: &Operands) -> f32 {
    if o.magnitude > 1.0 { 4096.0 } else { 1.0 }
}

/// The gradients of an attention, if it accepts its operands. Those of its results are zero where a query sees no key for every second one,
/// and not finite for the others: nobody looks at them.
fn backward(o: &mut Operands, forward: Attention, mut inputs: Vec<Tensor>) -> Option<Case> {
    let op = Op::Attention(forward.clone());
    op.infer(&inputs.iter().map(Tensor::ty).collect::<Vec<_>>()).ok()?;
    let results = Reference.run(&op, &inputs.iter().collect::<Vec<_>>()).unwrap();
    let dy = o.eighths(results[0].shape(), large(o));
    let mut values = dy.to_f32();
    let sums = results[1].to_f32();
    for (row, values) in values.chunks_exact_mut(forward.head_dim).enumerate() {
        if sums[row] == f32::NEG_INFINITY {
            values.fill(if row.is_multiple_of(2) { f32::NAN } else { 0.0 });
        }
    }
    inputs.extend(results);
    inputs.push(Tensor::from_f32(dy.dtype(), dy.shape().clone(), &values).unwrap());
    Some((Op::AttentionBackward(AttentionBackward { forward }), inputs))
}
