//! Matrix products, and the gate.

use kinora_graph::{
    Tensor, TensorType,
    op::{Gate, Linear, MatMul},
};

use super::{activation::activate, elements, epilogue, norm::normalise, rounded};

/// A learned product over the channels, with its prologue, gate and epilogue.
pub(super) fn linear(op: &Linear, inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let args = op.operands(inputs);
    let x = match &op.prologue {
        Some(norm) => normalise(norm, args.x, args.prologue, None),
        None => elements(args.x),
    };
    let weight = elements(args.weight);
    let scale = args.scale.map(|scale| elements(scale));
    let bias = args.bias.map(|bias| elements(bias));
    let [columns, channels] = [args.weight.shape()[0], args.weight.shape()[1]];

    let product = |row: usize, column: usize| {
        let mut sum = 0.0;
        for i in 0..channels {
            sum += x[row * channels + i] * weight[column * channels + i];
        }
        sum * scale.as_ref().map_or(1.0, |scale| scale[column])
            + bias.as_ref().map_or(0.0, |bias| bias[column])
    };
    let mut y = Vec::with_capacity(result.elements());
    for row in 0..result.shape.rows() {
        for column in 0..result.shape.channels() {
            y.push(match op.gate {
                Some(gate) => product(row, column) * activate(gate, product(row, columns / 2 + column)),
                None => product(row, column),
            });
        }
    }
    epilogue::apply(&op.epilogue, args.epilogue, &result.shape, &mut y);
    rounded(result, &y)
}

/// A batched product of two activations.
pub(super) fn matmul(op: MatMul, inputs: &[&Tensor], result: &TensorType) -> Tensor {
    let (a, b) = (elements(inputs[0]), elements(inputs[1]));
    let rank = result.shape.len();
    let [rows, columns] = [result.shape[rank - 2], result.shape[rank - 1]];
    let inner = inputs[0].shape()[if op.transpose_a { rank - 2 } else { rank - 1 }];
    let b_is_shared = inputs[1].shape().len() == 2;

    let mut y = Vec::with_capacity(result.elements());
    for batch in 0..result.elements() / (rows * columns) {
        let first_a = batch * rows * inner;
        let first_b = if b_is_shared { 0 } else { batch * inner * columns };
        for row in 0..rows {
            for column in 0..columns {
                let mut sum = 0.0;
                for k in 0..inner {
                    let from_a = if op.transpose_a { k * rows + row } else { row * inner + k };
                    let from_b = if op.transpose_b { column * inner + k } else { k * columns + column };
                    sum += a[first_a + from_a] * b[first_b + from_b];
                }
                y.push(sum);
            }
        }
    }
    rounded(result, &y)
}

/// The first half of the channels times an activation of the second.
pub(super) fn gate(op: Gate, x: &Tensor, result: &TensorType) -> Tensor {
    let values = elements(x);
    let half = result.shape.channels();
    let mut y = Vec::with_capacity(result.elements());
    for row in 0..result.shape.rows() {
        for column in 0..half {
            let first = values[row * 2 * half + column];
            let second = values[row * 2 * half + half + column];
            y.push(first * activate(op.activation, second));
        }
    }
    rounded(result, &y)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        DType, Op,
        op::{Activation, Affine, Norm, NormKind, Stage},
    };

    use super::{super::testing::*, *};

    #[test]
    fn rows_times_the_transposed_weight_plus_bias() {
        let x = counting(&[2, 3]);
        let weight = floats(&[2, 3], &[1.0, 0.0, -1.0, 1.0, 10.0, 100.0]);
        let bias = floats(&[2], &[0.5, 0.25]);
        let op = Linear { bias: true, ..Linear::default() };
        assert_eq!(values(Op::Linear(op.clone()), &[&x, &weight, &bias]), [-1.5, 321.25, -1.5, 654.25]);
        // One vector, and no rows.
        let x = counting(&[3]);
        assert_eq!(values(Op::Linear(op.clone()), &[&x, &weight, &bias]), [-1.5, 321.25]);
        let y = run_one(Op::Linear(op), &[&floats(&[0, 5, 3], &[]), &weight, &bias]);
        assert_eq!(y.shape()[..], [0, 5, 2]);
    }

    #[test]
    fn a_product_over_no_channels_is_the_bias() {
        let op = Linear { bias: true, ..Linear::default() };
        let inputs = [&floats(&[2, 0], &[]), &floats(&[1, 0], &[]), &floats(&[1], &[3.0])];
        assert_eq!(values(Op::Linear(op), &inputs), [3.0, 3.0]);
    }

    #[test]
    fn sums_are_wider_than_f32() {
        let x = floats(&[3], &[1e8, 1.0, -1e8]);
        assert_eq!(values(Op::Linear(Linear::default()), &[&x, &floats(&[1, 3], &[1.0; 3])]), [1.0]);
    }

    #[test]
    fn the_gate_follows_the_bias_and_precedes_the_epilogue() {
        // Columns 2x, 3x, −x, x+1: the gated ones are 2·relu(−1) and 3·relu(2).
        let weight = floats(&[4, 1], &[2.0, 3.0, -1.0, 1.0]);
        let bias = floats(&[4], &[0.0, 0.0, 0.0, 1.0]);
        let op = Linear {
            bias: true,
            gate: Some(Activation::Relu),
            epilogue: vec![Stage::Scale(0.5), Stage::Add],
            ..Linear::default()
        };
        let residual = floats(&[1, 2], &[100.0, 200.0]);
        let inputs = [&floats(&[1, 1], &[1.0]), &weight, &bias, &residual];
        assert_eq!(values(Op::Linear(op), &inputs), [100.0, 203.0]);
    }

    #[test]
    fn a_prologue_norm_comes_first() {
        // The layer norm of (1, 3) is (−1, 1), scaled to (−2, 2); relu leaves (0, 2).
        let norm = Norm {
            kind: NormKind::Layer,
            epsilon: 1e-9,
            affine: Affine::Scale,
            activation: Some(Activation::Relu),
            quantise: None,
            measured: false,
        };
        let op = Linear { prologue: Some(norm), ..Linear::default() };
        let inputs =
            [&floats(&[1, 2], &[1.0, 3.0]), &floats(&[1, 2], &[10.0, 1.0]), &floats(&[2], &[2.0, 2.0])];
        assert_close(&values(Op::Linear(op), &inputs), &[2.0]);
    }

    #[test]
    fn matmul_in_every_transposition() {
        let (a, a_t) = (counting(&[2, 3]), floats(&[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
        let (b, b_t) = (counting(&[3, 2]), floats(&[2, 3], &[1.0, 3.0, 5.0, 2.0, 4.0, 6.0]));
        for transpose_a in [false, true] {
            for transpose_b in [false, true] {
                let inputs = [if transpose_a { &a_t } else { &a }, if transpose_b { &b_t } else { &b }];
                let y = values(Op::MatMul(MatMul { transpose_a, transpose_b }), &inputs);
                assert_eq!(y, [22.0, 28.0, 49.0, 64.0]);
            }
        }
    }

    #[test]
    fn matmul_over_batches() {
        let a = counting(&[2, 1, 2]);
        let own = counting(&[2, 2, 1]);
        assert_eq!(values(Op::MatMul(MatMul::default()), &[&a, &own]), [5.0, 25.0]);
        let shared = floats(&[2, 1], &[1.0, 10.0]);
        assert_eq!(values(Op::MatMul(MatMul::default()), &[&a, &shared]), [21.0, 43.0]);
        let nothing = [&floats(&[1, 0], &[]), &floats(&[0, 2], &[])];
        assert_eq!(values(Op::MatMul(MatMul::default()), &nothing), [0.0, 0.0]);
    }

    #[test]
    fn a_gate_activates_the_second_half() {
        let x = floats(&[2, 4], &[2.0, 3.0, -1.0, 4.0, 5.0, 6.0, 1.0, 0.0]);
        let y = values(Op::Gate(Gate { activation: Activation::Relu }), &[&x]);
        assert_eq!(y, [0.0, 12.0, 5.0, 0.0]);
        let half = x.cast(DType::BF16);
        let y = run_one(Op::Gate(Gate { activation: Activation::Relu }), &[&half]);
        assert_eq!((y.dtype(), y.to_f32()), (DType::BF16, vec![0.0, 12.0, 5.0, 0.0]));
    }
}
