//! Every case against a plain f64 loop, for every instruction set, over an output that was all NaN.

use kinora_graph::op::{Attention, AttentionBackward, Mask, Op, SequenceAxis};
use kinora_graph::{DType, Tensor, TensorType};

use super::attention;
use crate::fast::run_on_tensors;
use crate::simd::Isa;
use crate::testing::Random;
use crate::view::{View, ViewMut};

/// The operands of an attention over `[batch, queries]` and `[key_batch, keys]` rows at each of `positions`.
struct Case {
    op: Attention,
    inputs: Vec<Tensor>,
}

impl Case {
    /// Random q, k and v as f32, a tenth of the keys hidden by the mask if it is an operand.
    fn new(
        op: Attention,
        [batch, queries]: [usize; 2],
        [key_batch, keys]: [usize; 2],
        positions: usize,
    ) -> Case {
        let mut random = Random::new((batch + 31 * queries + 977 * keys + 7919 * op.head_dim) as u64);
        let width = op.heads * op.head_dim;
        let shape = |batch: usize, length: usize| match op.axis {
            SequenceAxis::Positions => [batch, length, width],
            SequenceAxis::Frames { .. } => [batch * length, positions, width],
        };
        let mut inputs = vec![random.tensor(DType::F32, &shape(batch, queries), 3.0)];
        for _ in 0..2 {
            inputs.push(random.tensor(DType::F32, &shape(key_batch, keys), 3.0));
        }
        let mask_shape = [batch, op.heads, queries, keys];
        let mask: Vec<f32> = (0..mask_shape.iter().product()).map(|_| random.uniform()).collect();
        match op.mask {
            Mask::Boolean => {
                let mask: Vec<u8> =
                    mask.iter().map(|&x| if x < -0.8 { 0 } else { 1 + (x > 0.5) as u8 }).collect();
                inputs.push(Tensor::from_slice(mask_shape, &mask).unwrap());
            }
            Mask::Additive => {
                let mask: Vec<f32> =
                    mask.iter().map(|&x| if x < -0.8 { f32::NEG_INFINITY } else { x }).collect();
                inputs.push(Tensor::from_slice(mask_shape, &mask).unwrap());
            }
            Mask::None | Mask::Causal { .. } | Mask::SlidingWindow { .. } => {}
        }
        if op.key_lengths {
            let lengths: Vec<i32> = (0..key_batch).map(|i| (keys - keys.min(i * 3)) as i32).collect();
            inputs.push(Tensor::from_slice([key_batch], &lengths).unwrap());
        }
        Case { op, inputs }
    }

    fn self_attention(op: Attention, batch: usize, length: usize) -> Case {
        Case::new(op, [batch, length], [batch, length], 1)
    }

    /// The result, and the logarithms of the sums.
    fn run(&self, isa: Isa, dtype: DType) -> [Tensor; 2] {
        let q = self.inputs[0].shape();
        let ty = TensorType::new(dtype, [q[0], q[1], self.op.heads * self.op.head_dim]);
        let poison = vec![f32::NAN; ty.elements()];
        let mut output = Tensor::from_f32(dtype, ty.shape.clone(), &poison).unwrap();
        let sums_ty = TensorType::new(DType::F32, [q[0], q[1], self.op.heads]);
        let mut sums =
            Tensor::from_f32(DType::F32, sums_ty.shape.clone(), &vec![f32::NAN; sums_ty.elements()]).unwrap();
        let views: Vec<View<'_>> = self.inputs.iter().map(View::of).collect();
        // SAFETY: the outputs' memory is the test's own, and lives as long as the call.
        let outputs = unsafe {
            [
                ViewMut::new(&ty, output.bytes_mut().as_mut_ptr()),
                ViewMut::new(&sums_ty, sums.bytes_mut().as_mut_ptr()),
            ]
        };
        attention(isa, &self.op, &views, &outputs);
        [output, sums]
    }

    /// The result by the definition, and beside each value the mean magnitude of what it is a mean of; then the logarithms of the
    /// sums.
    fn exact(&self) -> (Vec<(f64, f64)>, Vec<f64>) {
        let op = &self.op;
        let e = op.extents(self.inputs[0].ty(), self.inputs[1].ty());
        let values: Vec<Vec<f32>> = self.inputs.iter().map(Tensor::to_f32).collect();
        let at =
            |operand: usize, length: usize, batch: usize, row: usize, position: usize, channel: usize| {
                let channels = self.inputs[operand].shape()[2];
                let row = match op.axis {
                    SequenceAxis::Positions => batch * length + row,
                    SequenceAxis::Frames { .. } => (batch * length + row) * e.positions + position,
                };
                values[operand][row * channels + op.offsets[operand] + channel] as f64
            };
        let width = op.heads * op.head_dim;
        let mut result = vec![(f64::NAN, f64::NAN); e.batch * e.queries * e.positions * width];
        let mut sums = vec![f64::NAN; e.batch * e.queries * e.positions * op.heads];
        for batch in 0..e.batch {
            let key_batch = batch * e.key_batch / e.batch;
            let existing =
                op.key_lengths_operand().map_or(e.keys, |operand| values[operand][key_batch] as usize);
            for (position, head, query) in (0..e.positions)
                .flat_map(|p| (0..op.heads).flat_map(move |h| (0..e.queries).map(move |q| (p, h, q))))
            {
                let mut scores = vec![f64::NEG_INFINITY; e.keys];
                for (key, score) in scores.iter_mut().enumerate().take(existing) {
                    let dot: f64 = (head * op.head_dim..(head + 1) * op.head_dim)
                        .map(|c| {
                            at(0, e.queries, batch, query, position, c)
                                * at(1, e.keys, key_batch, key, position, c)
                        })
                        .sum();
                    let masked = |operand: usize| {
                        let shape = self.inputs[operand].shape();
                        let (batch, head) = (batch.min(shape[0] - 1), head.min(shape[1] - 1));
                        values[operand][((batch * shape[1] + head) * e.queries + query) * e.keys + key] as f64
                    };
                    let dot = dot * op.scale as f64;
                    *score = match op.mask {
                        Mask::None => dot,
                        Mask::Causal { diagonal } if key as i128 <= query as i128 + diagonal as i128 => dot,
                        Mask::SlidingWindow { diagonal, window }
                            if (0..window as i128)
                                .contains(&(query as i128 + diagonal as i128 - key as i128)) =>
                        {
                            dot
                        }
                        Mask::Boolean if masked(3) != 0.0 => dot,
                        Mask::Additive if masked(3) != f64::NEG_INFINITY => dot + masked(3),
                        _ => f64::NEG_INFINITY,
                    };
                }
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores
                    .iter()
                    .map(|s| if largest == f64::NEG_INFINITY { 0.0 } else { (s - largest).exp() })
                    .collect();
                let total: f64 = weights.iter().sum();
                let row = match op.axis {
                    SequenceAxis::Positions => batch * e.queries + query,
                    SequenceAxis::Frames { .. } => (batch * e.queries + query) * e.positions + position,
                };
                sums[row * op.heads + head] = largest + total.ln();
                for channel in head * op.head_dim..(head + 1) * op.head_dim {
                    let (mut sum, mut magnitude) = (0.0, 0.0);
                    for (key, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                        let value = at(2, e.keys, key_batch, key, position, channel);
                        sum += weight / total * value;
                        magnitude += weight / total * value.abs();
                    }
                    result[row * width + channel] = (sum, magnitude);
                }
            }
        }
        (result, sums)
    }

    /// Compares with the definition, the result stored as `dtype`.
    fn check_as(&self, dtype: DType) {
        let (exact, exact_sums) = self.exact();
        // Half a unit in the last place of the storage type, beside the error of the arithmetic.
        let rounding = match dtype {
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            _ => 0.0,
        };
        for isa in Isa::available() {
            let [result, sums] = self.run(isa, dtype).map(|tensor| tensor.to_f32());
            assert_eq!((result.len(), sums.len()), (exact.len(), exact_sums.len()));
            for (index, (&got, &exact)) in sums.iter().zip(&exact_sums).enumerate() {
                let same = got as f64 == exact || got.is_nan() && exact.is_nan();
                let close = (got as f64 - exact).abs() <= 1e-5 * (exact.abs() + 1.0);
                assert!(same || close, "{isa:?} {:?}: sum {index} is {got}, not {exact}", self.op);
            }
            for (index, (&got, &(exact, magnitude))) in result.iter().zip(&exact).enumerate() {
                let allowed = 1e-5 * magnitude + rounding * (exact.abs() + 1e-4);
                let same = got as f64 == exact || got.is_nan() && exact.is_nan();
                assert!(
                    same || (got as f64 - exact).abs() <= allowed && exact.is_finite(),
                    "{isa:?} {:?}: [{index}] is {got}, not {exact}",
                    self.op
                );
            }
        }
    }

    fn check(&self) {
        self.check_as(DType::F32);
    }
}

const MASKS: [Mask; 9] = [
    Mask::None,
    Mask::Causal { diagonal: 0 },
    Mask::Causal { diagonal: 127 },
    Mask::Causal { diagonal: -100 },
    Mask::SlidingWindow { diagonal: 0, window: 1 },
    Mask::SlidingWindow { diagonal: 5, window: 40 },
    Mask::SlidingWindow { diagonal: -20, window: 300 },
    Mask::Boolean,
    Mask::Additive,
];

#[test]
fn every_head_size() {
    for head_dim in [1, 7, 8, 33, 40, 64, 80, 160] {
        Case::new(Attention::over_positions(2, head_dim), [2, 65], [2, 130], 1).check();
    }
}

#[test]
fn every_length() {
    for queries in [1, 7, 63, 65, 130, 257] {
        for keys in [1, 7, 63, 65, 77, 130, 257] {
            Case::new(Attention::over_positions(1, 40), [1, queries], [1, keys], 1).check();
        }
    }
}

#[test]
fn every_mask_with_and_without_key_lengths() {
    for mask in MASKS {
        for key_lengths in [false, true] {
            let op = Attention { mask, key_lengths, ..Attention::over_positions(2, 16) };
            Case::new(op.clone(), [4, 130], [2, 257], 1).check();
            Case::self_attention(op, 2, 200).check();
        }
    }
}

#[test]
fn extreme_diagonals() {
    for diagonal in [i64::MIN, -1000, 1000, i64::MAX] {
        let windows = [1, 1050, i64::MAX as usize, usize::MAX];
        let windows = windows.map(|window| Mask::SlidingWindow { diagonal, window });
        for mask in [&[Mask::Causal { diagonal }], &windows[..]].concat() {
            Case::self_attention(Attention { mask, ..Attention::over_positions(1, 8) }, 1, 150).check();
        }
    }
}

#[test]
fn a_window_leaves_out_whole_blocks_of_keys() {
    for (diagonal, window) in [(0, 70), (-300, 300), (400, 100), (0, 1), (-2000, 5)] {
        let mask = Mask::SlidingWindow { diagonal, window };
        Case::self_attention(Attention { mask, ..Attention::over_positions(1, 16) }, 1, 1100).check();
    }
}

#[test]
fn a_mask_may_serve_all_batches_and_heads() {
    for mask in [Mask::Boolean, Mask::Additive] {
        for (batch, heads) in [(1, 1), (3, 1), (1, 2)] {
            let op = Attention { mask, ..Attention::over_positions(2, 24) };
            let mut case = Case::self_attention(op, 3, 50);
            let values = case.inputs[3].to_f32();
            let values = &values[..batch * heads * 50 * 50];
            let dtype = if mask == Mask::Boolean { DType::U8 } else { DType::F16 };
            case.inputs[3] = Tensor::from_f32(dtype, [batch, heads, 50, 50], values).unwrap();
            case.check();
        }
    }
}

#[test]
fn one_context_serves_consecutive_queries() {
    for (batch, key_batch) in [(6, 1), (6, 2), (6, 3)] {
        Case::new(Attention::over_positions(2, 40), [batch, 33], [key_batch, 77], 1).check();
    }
}

#[test]
fn queries_keys_and_values_in_one_packed_tensor() {
    let mut random = Random::new(5);
    let (heads, head_dim) = (3, 20);
    let width = heads * head_dim;
    let packed = random.tensor(DType::F32, &[2, 70, 3 * width + 9], 2.0);
    for offsets in [[0, width, 2 * width], [2 * width + 9, 3, width + 1]] {
        let op = Attention { offsets, ..Attention::over_positions(heads, head_dim) };
        Case { op, inputs: vec![packed.clone(); 3] }.check();
        let axis = SequenceAxis::Frames { frames: 2 };
        let op = Attention { offsets, axis, ..Attention::over_positions(heads, head_dim) };
        Case { op, inputs: vec![packed.clone(); 3] }.check();
    }
}

#[test]
fn each_operand_has_its_own_storage_type() {
    use DType::{BF16, F16, F32};
    for dtypes in [[F16; 4], [BF16; 4], [F32, F16, BF16, F16], [BF16, F32, F16, F32], [F16, BF16, F32, BF16]]
    {
        for op in [
            Attention::over_positions(2, 40),
            Attention::over_frames(2, 40, 9),
            Attention::over_frames(1, 13, 9),
        ] {
            let mut case = Case::new(op, [2, 9], [2, 12], 5);
            for (input, dtype) in case.inputs.iter_mut().zip(dtypes) {
                *input = input.cast(dtype);
            }
            case.check_as(dtypes[3]);
        }
    }
}

/// Products of ±1e4 over 16 channels are multiples of 1e8 that f32 holds exactly, so that even such scores have one
/// right answer.
#[test]
fn huge_scores_stay_finite_and_exact() {
    for op in [Attention::over_positions(2, 16), Attention::over_frames(2, 16, 30)] {
        let mut case = Case::new(op, [2, 30], [2, 30], 3);
        for (index, input) in case.inputs.iter_mut().enumerate() {
            let extreme: Vec<f32> = input.to_f32().iter().map(|x| x.signum() * 1e4).collect();
            let values = if index < 2 { extreme } else { input.to_f32() };
            *input = Tensor::from_f32(DType::F16, input.shape().clone(), &values).unwrap();
        }
        case.check_as(DType::F16);
    }
}

#[test]
fn a_query_that_sees_no_key_gives_zeros() {
    for (mask, hidden) in [(Mask::Boolean, 0.0), (Mask::Additive, f32::NEG_INFINITY)] {
        for op in [Attention::over_positions(2, 24), Attention::over_frames(2, 24, 20)] {
            let mut case = Case::new(Attention { mask, ..op }, [2, 20], [2, 20], 3);
            let mut values = case.inputs[3].to_f32();
            for row in values.chunks_exact_mut(20).step_by(3) {
                row.fill(hidden);
            }
            case.inputs[3] =
                Tensor::from_f32(case.inputs[3].dtype(), case.inputs[3].shape().clone(), &values).unwrap();
            case.check();
            let width = case.op.heads * case.op.head_dim;
            let first = case.run(Isa::detect(), DType::F32)[0].to_f32()[..24].to_vec();
            assert!(width == 48 && first.iter().all(|&x| x == 0.0));
        }
    }
}

/// The most negative finite mask hides nothing by itself: if all keys have it, they count alike.
#[test]
fn a_row_of_lowest_finite_masks_is_a_plain_mean() {
    let op = Attention { mask: Mask::Additive, ..Attention::over_positions(1, 8) };
    let mut case = Case::self_attention(op, 1, 40);
    case.inputs[3] = Tensor::from_slice([1, 1, 40, 40], &[f32::MIN; 1600]).unwrap();
    case.check();
}

/// What hides a key from all queries, and what else hides some of them from some queries.
fn hide(case: &mut Case, keys: usize, hidden: &[usize]) {
    match case.op.mask {
        Mask::Boolean | Mask::Additive => {
            let value = if case.op.mask == Mask::Boolean { 0.0 } else { f32::NEG_INFINITY };
            let mut mask = case.inputs[3].to_f32();
            for row in mask.chunks_exact_mut(keys) {
                hidden.iter().for_each(|&key| row[key] = value);
            }
            let (dtype, shape) = (case.inputs[3].dtype(), case.inputs[3].shape().clone());
            case.inputs[3] = Tensor::from_f32(dtype, shape, &mask).unwrap();
        }
        // These hide the last keys by themselves.
        Mask::None | Mask::Causal { .. } | Mask::SlidingWindow { .. } => {}
    }
}

/// NaNs and infinities in the keys or the values of two hidden keys, and in a value that some queries see.
#[test]
fn hidden_keys_may_hold_anything() {
    // Over positions there are two blocks of keys, and two of queries.
    let shapes = [
        (Attention::over_positions(2, 24), [2, 60], [2, 300], 1, [270, 299], 40),
        (Attention::over_frames(2, 24, 9), [2, 9], [2, 16], 3, [12, 15], 4),
    ];
    let masks = [
        Mask::None,
        Mask::Causal { diagonal: 1 },
        Mask::SlidingWindow { diagonal: 1, window: 50 },
        Mask::Boolean,
        Mask::Additive,
    ];
    for (op, queries, keys, positions, hidden, partly) in shapes {
        for mask in masks {
            let op = Attention { mask, key_lengths: mask == Mask::None, ..op.clone() };
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for (operand, bad_keys) in [(1, hidden.to_vec()), (2, hidden.to_vec()), (2, vec![partly])] {
                    let mut case = Case::new(op.clone(), queries, keys, positions);
                    if op.key_lengths {
                        let length = if bad_keys == [partly] { partly } else { hidden[0] } as i32;
                        case.inputs[3] = Tensor::from_slice([2], &[length; 2]).unwrap();
                    } else if bad_keys == hidden {
                        hide(&mut case, keys[1], &hidden);
                    }
                    let mut values = case.inputs[operand].to_f32();
                    let sequence = positions * 48;
                    for (row, values) in values.chunks_exact_mut(sequence).enumerate() {
                        if bad_keys.contains(&(row % keys[1])) {
                            values.fill(bad);
                        }
                    }
                    let shape = case.inputs[operand].shape().clone();
                    case.inputs[operand] = Tensor::from_slice(shape, &values).unwrap();
                    case.check();
                    let finite = case.run(Isa::detect(), DType::F32)[0].first_non_finite().is_none();
                    // A value that is not hidden does show.
                    assert_eq!(finite, bad_keys == hidden || op.key_lengths, "{op:?} {bad} {operand}");
                }
            }
        }
    }
}

#[test]
fn nothing_to_attend_to_and_nothing_to_compute() {
    Case::new(Attention::over_positions(2, 24), [2, 20], [2, 0], 1).check();
    Case::new(Attention::over_positions(2, 24), [0, 20], [0, 20], 1).check();
    Case::new(Attention::over_positions(2, 24), [2, 0], [2, 20], 1).check();
    Case::new(Attention::over_frames(2, 24, 5), [2, 5], [2, 0], 7).check();
    Case::new(Attention::over_frames(2, 24, 5), [0, 5], [0, 5], 7).check();
    Case::new(Attention::over_frames(2, 24, 5), [2, 5], [2, 5], 0).check();
    for op in [Attention::over_positions(2, 24), Attention::over_frames(2, 24, 5)] {
        let mut case = Case::new(Attention { key_lengths: true, ..op }, [2, 5], [2, 6], 3);
        case.inputs[3] = Tensor::from_slice([2], &[0i32, 4]).unwrap();
        case.check();
    }
}

#[test]
fn over_frames() {
    for (frames, key_frames) in
        [(1, 1), (1, 5), (2, 3), (3, 2), (14, 14), (5, 9), (25, 25), (33, 64), (70, 3), (3, 70)]
    {
        for (head_dim, positions) in [(64, 1), (40, 10), (7, 9)] {
            let op = Attention::over_frames(2, head_dim, frames);
            Case::new(op, [2, frames], [2, key_frames], positions).check();
        }
    }
}

#[test]
fn over_frames_with_every_mask() {
    for mask in [
        Mask::None,
        Mask::Causal { diagonal: 0 },
        Mask::Causal { diagonal: -3 },
        Mask::SlidingWindow { diagonal: 1, window: 3 },
        Mask::Boolean,
        Mask::Additive,
    ] {
        for key_lengths in [false, true] {
            let op = Attention { mask, key_lengths, ..Attention::over_frames(2, 24, 9) };
            Case::new(op, [3, 9], [3, 11], 4).check();
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let causal = Attention { mask: Mask::Causal { diagonal: 5 }, ..Attention::over_positions(1, 40) };
    let cases = [
        Case::new(Attention::over_positions(1, 40), [1, 2100], [1, 300], 1),
        Case::self_attention(causal, 1, 1100),
        Case::new(Attention::over_frames(2, 40, 7), [2, 7], [2, 7], 50),
    ];
    for case in cases {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| case.run(Isa::detect(), DType::F32)[0].clone())
        };
        let alone = run(1);
        assert_eq!(alone.first_non_finite(), None);
        for threads in [2, 5] {
            assert!(run(threads).bytes() == alone.bytes(), "{threads} threads, {:?}", case.op);
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit_of_gradients() {
    let causal = Attention { mask: Mask::Causal { diagonal: 5 }, ..Attention::over_positions(1, 40) };
    let cases = [
        Case::new(Attention::over_positions(1, 40), [2, 700], [1, 300], 1),
        Case::self_attention(causal, 1, 900),
        Case::new(Attention::over_frames(2, 40, 7), [2, 7], [2, 7], 50),
    ];
    for case in cases {
        let [y, sums] = case.run(Isa::detect(), DType::F32);
        let dy = Random::new(5).tensor(DType::F32, y.shape(), 1.0);
        let forward = Attention { log_sum_exp: true, ..case.op.clone() };
        let op = Op::AttentionBackward(AttentionBackward { forward });
        let operands: Vec<&Tensor> = case.inputs.iter().chain([&y, &sums, &dy]).collect();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run_on_tensors(Isa::detect(), "backward", &op, &operands).unwrap())
        };
        let alone = run(1);
        assert!(alone.iter().all(|gradient| gradient.first_non_finite().is_none()));
        for threads in [2, 5] {
            let same = run(threads).iter().zip(&alone).all(|(x, alone)| x.bytes() == alone.bytes());
            assert!(same, "{threads} threads, {op}");
        }
    }
}
