//! Attention.

use kinora_graph::{
    Shape, Tensor, TensorType,
    op::{Attention, AttentionBackward, AttentionExtents, Mask},
};

use super::{activation::softmax_row, elements, integers, rounded};

/// Softmax attention, over positions or over frames.
pub(super) fn attention(op: &Attention, inputs: &[&Tensor], results: &[TensorType]) -> Vec<Tensor> {
    let [y, sums] = Problem::new(op, inputs).attend([0, 1, 2].map(|i| elements(inputs[i])));
    results.iter().zip([y, sums]).map(|(ty, values)| rounded(ty, &values)).collect()
}

/// The gradients of an attention's queries, keys and values.
pub(super) fn attention_backward(
    op: &AttentionBackward,
    inputs: &[&Tensor],
    results: &[TensorType],
) -> Vec<Tensor> {
    let [q, k, v] = [0, 1, 2].map(|i| elements(inputs[i]));
    let first = op.forward_operands();
    let [y, log_sum_exp, dy] = [0, 1, 2].map(|i| elements(inputs[first + i]));
    let gradients = Problem::new(&op.forward, inputs).gradients([q, k, v], [y, log_sum_exp, dy]);
    results.iter().zip(gradients).map(|(ty, values)| rounded(ty, &values)).collect()
}

/// An attention, and where its operands' elements lie.
struct Problem<'a> {
    op: &'a Attention,
    extents: AttentionExtents,
    /// Channels of a row of q, k and v.
    channels: [usize; 3],
    visibility: Visibility<'a>,
}

impl<'a> Problem<'a> {
    fn new(op: &'a Attention, inputs: &[&'a Tensor]) -> Self {
        Problem {
            op,
            extents: op.extents(inputs[0].ty(), inputs[1].ty()),
            channels: [0, 1, 2].map(|i| inputs[i].shape()[2]),
            visibility: Visibility::new(op, inputs),
        }
    }

    /// The offset of a head's channels in a row of q, k or v.
    fn first(&self, operand: usize, row: usize, head: usize) -> usize {
        row * self.channels[operand] + self.op.offsets[operand] + head * self.op.head_dim
    }

    /// The same in what has the channels of the heads alone: results, and their gradients.
    fn first_of_heads(&self, row: usize, head: usize) -> usize {
        (row * self.op.heads + head) * self.op.head_dim
    }

    /// Rows of `rows` sequences of some length, at every position.
    fn rows(&self, sequences: usize, length: usize) -> usize {
        sequences * length * self.extents.positions
    }

    /// Calls `body` with each query of each sequence and head: with the batch elements of the query and of its keys, the position, the
    /// query's number, its row and the head.
    fn for_each_query(&self, mut body: impl FnMut([usize; 2], usize, usize, usize, usize)) {
        let extents = self.extents;
        for batch in 0..extents.batch {
            let key_batch = batch / (extents.batch / extents.key_batch);
            for position in 0..extents.positions {
                for query in 0..extents.queries {
                    // Over frames, a sequence's next element is all positions further on.
                    let query_row = (batch * extents.queries + query) * extents.positions + position;
                    for head in 0..self.op.heads {
                        body([batch, key_batch], position, query, query_row, head);
                    }
                }
            }
        }
    }

    fn key_row(&self, key_batch: usize, position: usize, key: usize) -> usize {
        (key_batch * self.extents.keys + key) * self.extents.positions + position
    }

    /// The result, and the logarithms of the sums.
    fn attend(&self, [q, k, v]: [Vec<f64>; 3]) -> [Vec<f64>; 2] {
        let (op, extents) = (self.op, self.extents);
        let queries = self.rows(extents.batch, extents.queries);
        let mut y = vec![0.0; queries * op.heads * op.head_dim];
        let mut sums = vec![0.0; queries * op.heads];
        self.for_each_query(|[batch, key_batch], position, query, query_row, head| {
            // Hidden keys are skipped altogether: their contents, even NaN, are never read.
            let (mut seen, mut weights) = (Vec::new(), Vec::new());
            for key in 0..extents.keys {
                let Some(added) = self.visibility.of(batch, key_batch, head, query, key) else { continue };
                let first_q = self.first(0, query_row, head);
                let first_k = self.first(1, self.key_row(key_batch, position, key), head);
                let mut product = 0.0;
                for c in 0..op.head_dim {
                    product += q[first_q + c] * k[first_k + c];
                }
                seen.push(key);
                weights.push(product * f64::from(op.scale) + added);
            }
            sums[query_row * op.heads + head] = log_sum_exp(&weights);
            softmax_row(&mut weights);
            for c in 0..op.head_dim {
                // Stays zero for a query that sees no key.
                let mut sum = 0.0;
                for (&key, weight) in seen.iter().zip(&weights) {
                    sum += weight * v[self.first(2, self.key_row(key_batch, position, key), head) + c];
                }
                y[self.first_of_heads(query_row, head) + c] = sum;
            }
        });
        [y, sums]
    }

    /// The gradients of q, k and v, from the results and the gradient of the first of them.
    fn gradients(&self, [q, k, v]: [Vec<f64>; 3], [y, log_sum_exp, dy]: [Vec<f64>; 3]) -> [Vec<f64>; 3] {
        let (op, extents) = (self.op, self.extents);
        let scale = f64::from(op.scale);
        let width = op.heads * op.head_dim;
        let queries = self.rows(extents.batch, extents.queries);
        let keys = self.rows(extents.key_batch, extents.keys);
        let [mut dq, mut dk, mut dv] = [queries, keys, keys].map(|rows| vec![0.0; rows * width]);
        self.for_each_query(|[batch, key_batch], position, query, query_row, head| {
            let first_q = self.first(0, query_row, head);
            let of_query = self.first_of_heads(query_row, head);
            let mut of_results = 0.0;
            for c in 0..op.head_dim {
                of_results += dy[of_query + c] * y[of_query + c];
            }
            for key in 0..extents.keys {
                // What is hidden is skipped altogether, as in the attention.
                let Some(added) = self.visibility.of(batch, key_batch, head, query, key) else { continue };
                let key_row = self.key_row(key_batch, position, key);
                let (first_k, first_v) = (self.first(1, key_row, head), self.first(2, key_row, head));
                let of_key = self.first_of_heads(key_row, head);
                let (mut product, mut of_weight) = (0.0, 0.0);
                for c in 0..op.head_dim {
                    product += q[first_q + c] * k[first_k + c];
                    of_weight += dy[of_query + c] * v[first_v + c];
                }
                let weight = (product * scale + added - log_sum_exp[query_row * op.heads + head]).exp();
                let of_score = weight * (of_weight - of_results);
                for c in 0..op.head_dim {
                    dq[of_query + c] += scale * of_score * k[first_k + c];
                    dk[of_key + c] += scale * of_score * q[first_q + c];
                    dv[of_key + c] += weight * dy[of_query + c];
                }
            }
        });
        [dq, dk, dv]
    }
}

/// The logarithm of the sum of exponentials, -∞ of none.
fn log_sum_exp(scores: &[f64]) -> f64 {
    // Less the largest, no exponential overflows. What the largest ignores, a NaN, the sum does not.
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY && !scores.iter().any(|score| score.is_nan()) {
        return largest;
    }
    largest + scores.iter().map(|score| (score - largest).exp()).sum::<f64>().ln()
}

/// Which keys a query sees.
struct Visibility<'a> {
    op: &'a Attention,
    extents: AttentionExtents,
    mask: Option<(&'a Shape, Vec<f64>)>,
    key_lengths: Option<&'a [i32]>,
    boundaries: Option<[&'a [i32]; 2]>,
}

impl<'a> Visibility<'a> {
    /// That of an attention's operands, which may have others behind them.
    fn new(op: &'a Attention, inputs: &[&'a Tensor]) -> Self {
        Visibility {
            op,
            extents: op.extents(inputs[0].ty(), inputs[1].ty()),
            mask: op.mask_operand().map(|i| (inputs[i].shape(), elements(inputs[i]))),
            key_lengths: op.key_lengths_operand().map(|i| integers(inputs[i])),
            boundaries: op.boundary_operands().map(|operands| operands.map(|i| integers(inputs[i]))),
        }
    }

    /// What is added to a key's score, or `None` if the key is hidden.
    fn of(&self, batch: usize, key_batch: usize, head: usize, query: usize, key: usize) -> Option<f64> {
        // A negative length hides all keys, one beyond the keys hides none.
        if self.key_lengths.is_some_and(|lengths| key as i64 >= i64::from(lengths[key_batch])) {
            return None;
        }
        // Causality counts from where a sequence begins.
        let (mut query_number, mut key_number) = (query as i128, key as i128);
        if let Some([queries, keys]) = self.boundaries {
            let between =
                |bounds: &[i32], s: usize, i: i128| (bounds[s].into()..bounds[s + 1].into()).contains(&i);
            let sequence = (0..queries.len() - 1).find(|&s| between(queries, s, query_number))?;
            if !between(keys, sequence, key_number) {
                return None;
            }
            query_number -= i128::from(queries[sequence]);
            key_number -= i128::from(keys[sequence]);
        }
        let mask_value = || {
            let (shape, values) = self.mask.as_ref()?;
            let batch = if shape[0] == 1 { 0 } else { batch };
            let head = if shape[1] == 1 { 0 } else { head };
            let row = (batch * shape[1] + head) * self.extents.queries + query;
            Some(values[row * self.extents.keys + key])
        };
        match self.op.mask {
            Mask::None => Some(0.0),
            Mask::Causal { diagonal } => (key_number <= query_number + i128::from(diagonal)).then_some(0.0),
            Mask::SlidingWindow { diagonal, window } => {
                let last = query_number + i128::from(diagonal);
                (last - (window as i128) < key_number && key_number <= last).then_some(0.0)
            }
            Mask::Boolean => (mask_value()? != 0.0).then_some(0.0),
            Mask::Additive => mask_value().filter(|&value| value != f64::NEG_INFINITY),
        }
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        DType, Op,
        op::{Concat, Slice},
    };

    use super::{super::testing::*, *};

    const HIDDEN: f32 = f32::NEG_INFINITY;

    /// One query of 1 and three keys with scores 0, ln 2 and ln 5, so weights of 1/8, 2/8 and 5/8; the values are
    /// 8, 80 and 800.
    fn one_query() -> [Tensor; 3] {
        let (ln2, ln5) = (2f32.ln(), 5f32.ln());
        [
            floats(&[1, 1, 1], &[1.0]),
            floats(&[1, 3, 1], &[0.0, ln2, ln5]),
            floats(&[1, 3, 1], &[8.0, 80.0, 800.0]),
        ]
    }

    fn single() -> Attention {
        Attention { scale: 1.0, ..Attention::over_positions(1, 1) }
    }

    fn attend(op: Attention, inputs: &[&Tensor]) -> Vec<f32> {
        values(Op::Attention(op), inputs)
    }

    /// `x` with axes in another order: the tests' own way to move frames and positions about.
    fn permuted(x: &Tensor, axes: &[usize]) -> Tensor {
        let shape: Vec<usize> = axes.iter().map(|&axis| x.shape()[axis]).collect();
        let strides = x.shape().strides();
        let source = x.to_f32();
        let elements: Vec<f32> = (0..source.len())
            .map(|mut index| {
                let mut from = 0;
                for (&axis, &extent) in axes.iter().zip(&shape).rev() {
                    from += index % extent * strides[axis];
                    index /= extent;
                }
                source[from]
            })
            .collect();
        floats(&shape, &elements)
    }

    #[test]
    fn sequences_between_boundaries_do_not_see_each_other() {
        let (q, k) = (floats(&[1, 5, 1], &[0.0; 5]), floats(&[1, 6, 1], &[0.0; 6]));
        let v = floats(&[1, 6, 1], &[1.0, 3.0, 10.0, 30.0, 50.0, 7000.0]);
        let boundaries = |values: &[i32]| Tensor::from_slice([values.len()], values).unwrap();
        // Two queries of two keys, a query of none, a query of three keys; a query and a key are outside.
        let [queries, keys] = [&[0, 2, 3, 4], &[0, 2, 2, 5]].map(|values| boundaries(values));
        let run = |mask| {
            let op = Attention { boundaries: true, mask, ..single() };
            attend(op, &[&q, &k, &v, &queries, &keys])
        };
        assert_close(&run(Mask::None), &[2.0, 2.0, 0.0, 30.0, 0.0]);
        assert_close(&run(Mask::Causal { diagonal: 0 }), &[1.0, 2.0, 0.0, 10.0, 0.0]);
        assert_close(&run(Mask::SlidingWindow { diagonal: 1, window: 1 }), &[3.0, 0.0, 0.0, 30.0, 0.0]);
    }

    #[test]
    fn the_second_result_is_the_logarithm_of_the_sum() {
        let [q, k, v] = one_query();
        let op = Attention { log_sum_exp: true, ..single() };
        // 1 + 2 + 5, and without the last key 1 + 2.
        let results = super::super::run("", &Op::Attention(op.clone()), &[&q, &k, &v]).unwrap();
        assert_eq!(results[0].to_f32(), attend(single(), &[&q, &k, &v]));
        assert_close(&results[1].to_f32(), &[8f64.ln()]);
        let sum_of = |length: i32| {
            let lengths = Tensor::from_slice([1], &[length]).unwrap();
            let op = Op::Attention(Attention { key_lengths: true, ..op.clone() });
            super::super::run("", &op, &[&q, &k, &v, &lengths]).unwrap()[1].to_f32()
        };
        assert_close(&sum_of(2), &[3f64.ln()]);
        assert_eq!(sum_of(0), [f32::NEG_INFINITY]);
    }

    #[test]
    fn weights_are_the_softmax_of_the_scaled_scores() {
        let [q, k, v] = one_query();
        // 1 + 20 + 500.
        assert_close(&attend(single(), &[&q, &k, &v]), &[521.0]);
        // A query of 0 weights all alike.
        let zero = floats(&[1, 1, 1], &[0.0]);
        assert_close(&attend(single(), &[&zero, &k, &v]), &[296.0]);
        // Twice the query at half the scale is the same.
        let op = Attention { scale: 0.5, ..single() };
        assert_close(&attend(op, &[&floats(&[1, 1, 1], &[2.0]), &k, &v]), &[521.0]);
        // One key is a constant.
        let (k, v) = (floats(&[1, 1, 1], &[-3.0]), floats(&[1, 1, 1], &[7.0]));
        assert_eq!(attend(single(), &[&q, &k, &v]), [7.0]);
    }

    #[test]
    fn heads_do_not_mix() {
        // Two heads of one channel; the second one sees the scores the other way round.
        let q = floats(&[1, 1, 2], &[1.0, -1.0]);
        let k = floats(&[1, 2, 2], &[0.0, 0.0, 3f32.ln(), 3f32.ln()]);
        let v = floats(&[1, 2, 2], &[0.0, 0.0, 4.0, 4.0]);
        let op = Attention { scale: 1.0, ..Attention::over_positions(2, 1) };
        assert_close(&attend(op, &[&q, &k, &v]), &[3.0, 1.0]);
    }

    #[test]
    fn a_boolean_mask_hides_keys_and_what_they_hold() {
        let [q, _, _] = one_query();
        let k = floats(&[1, 3, 1], &[0.0, f32::NAN, 3f32.ln()]);
        let v = floats(&[1, 3, 1], &[8.0, f32::NAN, 80.0]);
        let op = Attention { mask: Mask::Boolean, ..single() };
        // Weights of 1/4 and 3/4.
        let mask = bytes(&[1, 1, 1, 3], &[1, 0, 255]);
        assert_close(&attend(op.clone(), &[&q, &k, &v, &mask]), &[62.0]);
        let mask = bytes(&[1, 1, 1, 3], &[0, 0, 0]);
        assert_eq!(attend(op, &[&q, &k, &v, &mask]), [0.0]);
    }

    #[test]
    fn an_additive_mask_shifts_scores_and_hides_by_minus_infinity() {
        let [q, k, v] = one_query();
        let op = Attention { mask: Mask::Additive, scale: 2.0, ..single() };
        // The mask is not scaled. Scores 0 + ln 4, 2 ln 2, hidden: equal weights.
        let mask = floats(&[1, 1, 1, 3], &[4f32.ln(), 0.0, HIDDEN]);
        assert_close(&attend(op.clone(), &[&q, &k, &v, &mask]), &[44.0]);
        let mask = floats(&[1, 1, 1, 3], &[HIDDEN; 3]);
        assert_eq!(attend(op.clone(), &[&q, &k, &v, &mask]), [0.0]);
        // A huge finite mask hides nothing: if all are alike, it changes nothing.
        let mask = floats(&[1, 1, 1, 3], &[-3e38; 3]);
        assert_eq!(attend(Attention { scale: 0.0, ..op }, &[&q, &k, &v, &mask]), [296.0]);
    }

    #[test]
    fn masks_may_differ_by_batch_element_and_head() {
        // Two batch elements, two heads, one query; keys hold values 1 and 2 in every head.
        let (q, k) = (floats(&[2, 1, 2], &[0.0; 4]), floats(&[2, 2, 2], &[0.0; 8]));
        let v = floats(&[2, 2, 2], &[1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0]);
        let op = Attention { mask: Mask::Boolean, ..Attention::over_positions(2, 1) };
        let run = |shape: [usize; 4], mask: &[u8]| attend(op.clone(), &[&q, &k, &v, &bytes(&shape, mask)]);
        assert_eq!(run([1, 1, 1, 2], &[0, 1]), [2.0, 2.0, 2.0, 2.0]);
        assert_eq!(run([2, 1, 1, 2], &[0, 1, 1, 0]), [2.0, 2.0, 1.0, 1.0]);
        assert_eq!(run([1, 2, 1, 2], &[0, 1, 1, 0]), [2.0, 1.0, 2.0, 1.0]);
        assert_eq!(run([2, 2, 1, 2], &[0, 1, 1, 0, 0, 0, 1, 1]), [2.0, 1.0, 0.0, 1.5]);
    }

    #[test]
    fn a_window_hides_what_is_far_behind() {
        let (q, k) = (floats(&[1, 4, 1], &[0.0; 4]), floats(&[1, 4, 1], &[0.0; 4]));
        let v = floats(&[1, 4, 1], &[1.0, 10.0, 100.0, 1000.0]);
        let run = |diagonal, window| {
            attend(Attention { mask: Mask::SlidingWindow { diagonal, window }, ..single() }, &[&q, &k, &v])
        };
        assert_close(&run(0, 2), &[1.0, 5.5, 55.0, 550.0]);
        assert_close(&run(1, 1), &[10.0, 100.0, 1000.0, 0.0]);
        assert_close(&run(-2, 1), &[0.0, 0.0, 1.0, 10.0]);
        assert_close(&run(3, usize::MAX), &[277.75; 4]);
        assert_close(&run(i64::MIN, usize::MAX), &[0.0; 4]);
        assert_close(&run(i64::MAX, i64::MAX as usize), &[370.0, 550.0, 1000.0, 0.0]);
    }

    #[test]
    fn a_causal_mask_follows_its_diagonal() {
        // Equal scores: the result is the mean of the values that a query sees, of 1, 2, 3.
        let (q, k, v) = (floats(&[1, 2, 1], &[0.0; 2]), floats(&[1, 3, 1], &[0.0; 3]), counting(&[1, 3, 1]));
        let run = |diagonal| attend(Attention { mask: Mask::Causal { diagonal }, ..single() }, &[&q, &k, &v]);
        assert_eq!(run(0), [1.0, 1.5]);
        assert_eq!(run(1), [1.5, 2.0]);
        assert_eq!(run(-1), [0.0, 1.0]);
        assert_eq!(run(-2), [0.0, 0.0]);
        assert_eq!(run(i64::MAX), [2.0, 2.0]);
        assert_eq!(run(i64::MIN), [0.0, 0.0]);
    }

    #[test]
    fn key_lengths_are_clamped_to_the_keys_there_are() {
        let (q, k, v) = (floats(&[1, 1, 1], &[0.0]), floats(&[1, 3, 1], &[0.0; 3]), counting(&[1, 3, 1]));
        let op = Attention { key_lengths: true, ..single() };
        for (length, expected) in [(-5, 0.0), (0, 0.0), (1, 1.0), (2, 1.5), (3, 2.0), (9, 2.0)] {
            assert_eq!(attend(op.clone(), &[&q, &k, &v, &ints(&[1], &[length])]), [expected]);
        }
        // With a mask, which comes first among the operands, both count.
        let op = Attention { mask: Mask::Boolean, ..op };
        let mask = bytes(&[1, 1, 1, 3], &[0, 1, 1]);
        assert_eq!(attend(op, &[&q, &k, &v, &mask, &ints(&[1], &[2])]), [2.0]);
    }

    #[test]
    fn a_context_serves_consecutive_batch_elements() {
        // Four queries, two contexts of one key: the first two see the first one.
        let q = floats(&[4, 1, 1], &[0.0; 4]);
        let (k, v) = (floats(&[2, 1, 1], &[0.0; 2]), floats(&[2, 1, 1], &[5.0, 6.0]));
        assert_eq!(attend(single(), &[&q, &k, &v]), [5.0, 5.0, 6.0, 6.0]);
        let op = Attention { key_lengths: true, ..single() };
        assert_eq!(attend(op, &[&q, &k, &v, &ints(&[2], &[1, 0])]), [5.0, 5.0, 0.0, 0.0]);
    }

    #[test]
    fn packed_operands_equal_separate_ones() {
        let [q, k, v] = [1, 2, 3].map(|seed| scattered(&[2, 3, 4], seed));
        // In the order v, a channel of NaN that nothing may read, q, k.
        let gap = floats(&[2, 3, 1], &[f32::NAN; 6]);
        let packed = run_one(Op::Concat(Concat { axis: 2 }), &[&v, &gap, &q, &k]);
        let op = Attention::over_positions(2, 2);
        let separate = attend(op.clone(), &[&q, &k, &v]);
        assert_eq!(attend(Attention { offsets: [5, 9, 0], ..op }, &[&packed; 3]), separate);
    }

    #[test]
    fn over_frames_equals_over_positions_of_the_permuted_clip() {
        // Two clips of 3 query frames and 4 key frames, 5 positions, 2 heads of 2 channels.
        let (clips, frames, keys, positions) = (2, 3, 4, 5);
        let q = scattered(&[clips * frames, positions, 4], 1);
        let k = scattered(&[clips * keys, positions, 4], 2);
        let v = scattered(&[clips * keys, positions, 4], 3);
        let to_sequences = |x: &Tensor, frames: usize| {
            let x = x.reshape([clips, frames, positions, 4]).unwrap();
            permuted(&x, &[0, 2, 1, 3]).reshape([clips * positions, frames, 4]).unwrap()
        };
        let sequences = [to_sequences(&q, frames), to_sequences(&k, keys), to_sequences(&v, keys)];
        for mask in [Mask::None, Mask::Causal { diagonal: 0 }] {
            let over_frames = Attention { mask, ..Attention::over_frames(2, 2, frames) };
            let over_positions = Attention { mask, ..Attention::over_positions(2, 2) };
            let got = run_one(Op::Attention(over_frames), &[&q, &k, &v]);
            let expected = run_one(Op::Attention(over_positions), &sequences.each_ref());
            let expected = expected.reshape([clips, positions, frames, 4]).unwrap();
            assert_eq!(got.to_f32(), permuted(&expected, &[0, 2, 1, 3]).to_f32());
        }
    }

    #[test]
    fn masks_and_lengths_over_frames_belong_to_clips() {
        // Two clips of two frames at two positions; a frame's value is its own number.
        let q = floats(&[4, 2, 1], &[0.0; 8]);
        let v = floats(&[4, 2, 1], &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]);
        let op = Attention { mask: Mask::Boolean, ..Attention::over_frames(1, 1, 2) };
        let mask = bytes(&[2, 1, 2, 2], &[1, 0, 0, 1, 0, 1, 1, 1]);
        let y = attend(op, &[&q, &q, &v, &mask]);
        assert_eq!(y, [1.0, 10.0, 2.0, 20.0, 4.0, 40.0, 3.5, 35.0]);
        let op = Attention { key_lengths: true, ..Attention::over_frames(1, 1, 2) };
        let y = attend(op, &[&q, &q, &v, &ints(&[2], &[1, 2])]);
        assert_eq!(y, [1.0, 10.0, 1.0, 10.0, 3.5, 35.0, 3.5, 35.0]);
    }

    #[test]
    fn huge_scores_do_not_overflow() {
        let (q, v) = (floats(&[1, 1, 1], &[1e4]), counting(&[1, 3, 1]));
        assert_eq!(attend(single(), &[&q, &floats(&[1, 3, 1], &[-1e4, 1e4, 0.0]), &v]), [2.0]);
        assert_eq!(attend(single(), &[&q, &floats(&[1, 3, 1], &[-1e4; 3]), &v]), [2.0]);
    }

    #[test]
    fn no_keys_give_zeros_and_no_batch_gives_nothing() {
        let (q, none) = (floats(&[1, 2, 1], &[1.0, 2.0]), floats(&[1, 0, 1], &[]));
        assert_eq!(attend(single(), &[&q, &none, &none]), [0.0, 0.0]);
        let empty = floats(&[0, 2, 1], &[]);
        assert_eq!(run_one(Op::Attention(single()), &[&empty; 3]).shape()[..], [0, 2, 1]);
    }

    #[test]
    fn the_result_has_the_type_of_the_query() {
        let [q, k, v] = one_query();
        let y = run_one(Op::Attention(single()), &[&q.cast(DType::BF16), &k, &v]);
        // A bf16 counts in fours from 512 on.
        assert_eq!((y.dtype(), y.to_f32()), (DType::BF16, vec![520.0]));
        let one = run_one(Op::Slice(Slice { axis: 1, start: 1, len: 1 }), &[&k]);
        assert_eq!(attend(single(), &[&q, &one, &one]), one.to_f32());
    }

    /// Numbers from -1 to 1 that follow from a seed.
    fn numbers(count: usize, seed: &mut u64) -> Vec<f64> {
        let mut next = || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*seed >> 40) as f64 / f64::from(1u32 << 23) - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// The gradients against differences: what `Σ factor · y` becomes if one operand's element is a little larger and a little smaller.
    #[test]
    fn gradients_are_what_differences_tell() {
        const STEP: f64 = 1e-5;
        let lengths = Tensor::from_slice([2], &[4i32, 0]).unwrap();
        let boundaries = [[0i32, 2, 5], [1, 3, 4]].map(|values| Tensor::from_slice([3], &values).unwrap());
        let hidden: Vec<f32> =
            (0..2 * 5 * 4).map(|i| if i % 3 == 1 { HIDDEN } else { 0.25 * i as f32 }).collect();
        let seen: Vec<f32> = (0..2 * 5 * 4).map(|i| f32::from(u8::from(i % 3 != 1 && i / 4 != 2))).collect();
        let additive = floats(&[1, 2, 5, 4], &hidden);
        let boolean = floats(&[1, 2, 5, 4], &seen).cast(DType::U8);
        let [q, k] = [[2, 5, 9], [2, 4, 8]].map(|shape| floats(&shape, &vec![0.0; shape.iter().product()]));
        let shared = floats(&[1, 4, 8], &[0.0; 32]);
        let base = Attention { scale: 0.7, offsets: [3, 1, 2], ..Attention::over_positions(2, 3) };
        let window = Mask::SlidingWindow { diagonal: 1, window: 2 };
        let over_frames = Attention { offsets: base.offsets, ..Attention::over_frames(2, 3, 2) };
        let frames = [[4, 3, 9], [6, 3, 8]].map(|shape| floats(&shape, &vec![0.0; shape.iter().product()]));
        let with = |mask| Attention { mask, ..base.clone() };
        let cases: Vec<(Attention, Vec<&Tensor>)> = vec![
            (base.clone(), vec![&q, &k, &k]),
            (base.clone(), vec![&q, &shared, &shared]),
            (with(Mask::Causal { diagonal: -1 }), vec![&q, &k, &k]),
            (with(window), vec![&q, &k, &k]),
            (with(Mask::Boolean), vec![&q, &k, &k, &boolean]),
            (with(Mask::Additive), vec![&q, &shared, &shared, &additive]),
            (Attention { key_lengths: true, ..with(Mask::None) }, vec![&q, &k, &k, &lengths]),
            (
                Attention { boundaries: true, ..with(Mask::Causal { diagonal: 0 }) },
                vec![&q, &k, &k, &boundaries[0], &boundaries[1]],
            ),
            (over_frames.clone(), vec![&frames[0], &frames[1], &frames[1]]),
            (Attention { mask: window, ..over_frames }, vec![&frames[0], &frames[1], &frames[1]]),
        ];
        let mut seed = 7;
        for (op, inputs) in cases {
            let problem = Problem::new(&op, &inputs);
            let operands = [0, 1, 2].map(|i| numbers(inputs[i].shape().elements(), &mut seed));
            let [y, sums] = problem.attend(operands.clone());
            let factors = numbers(y.len(), &mut seed);
            let gradients = problem.gradients(operands.clone(), [y, sums, factors.clone()]);
            let value = |operands: [Vec<f64>; 3]| -> f64 {
                let [y, _] = problem.attend(operands);
                y.iter().zip(&factors).map(|(y, factor)| y * factor).sum()
            };
            let width = op.heads * op.head_dim;
            for (operand, gradient) in gradients.iter().enumerate() {
                let channels = problem.channels[operand];
                for at in 0..operands[operand].len() {
                    let moved = |step: f64| {
                        let mut operands = operands.clone();
                        operands[operand][at] += step;
                        value(operands)
                    };
                    let difference = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                    let channel = (at % channels).checked_sub(op.offsets[operand]).filter(|&c| c < width);
                    // What is no head's has no part in the result.
                    let exact = channel.map_or(0.0, |c| gradient[at / channels * width + c]);
                    assert!(
                        (difference - exact).abs() < 1e-9,
                        "{op}: element {at} of operand {operand}: {exact}, and by differences {difference}"
                    );
                }
            }
        }
    }

    #[test]
    fn gradients_of_hidden_keys_are_zero_whatever_they_hold() {
        let nan = f32::NAN;
        let (q, k) = (floats(&[1, 2, 1], &[1.0, nan]), floats(&[1, 3, 1], &[0.0, 0.0, nan]));
        let v = floats(&[1, 3, 1], &[4.0, 8.0, nan]);
        let mask = floats(&[1, 1, 2, 3], &[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]).cast(DType::U8);
        let forward = Attention { mask: Mask::Boolean, log_sum_exp: true, ..single() };
        let op = Op::Attention(forward.clone());
        let results = super::super::run("", &op, &[&q, &k, &v, &mask]).unwrap();
        let dy = floats(&[1, 2, 1], &[1.0, nan]);
        let backward = Op::AttentionBackward(AttentionBackward { forward });
        let inputs = [&q, &k, &v, &mask, &results[0], &results[1], &dy];
        let gradients = super::super::run("", &backward, &inputs).unwrap();
        // Weights of a half; dS = ½ (4 - 6) and ½ (8 - 6).
        assert_close(&gradients[0].to_f32(), &[0.0, 0.0]);
        assert_close(&gradients[1].to_f32(), &[-1.0, 1.0, 0.0]);
        assert_close(&gradients[2].to_f32(), &[0.5, 0.5, 0.0]);
    }
}
