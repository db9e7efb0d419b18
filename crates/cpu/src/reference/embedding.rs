//! Numbers and tokens as vectors.

use kinora_graph::{Tensor, TensorType, op::TimestepEmbedding};

use super::{elements, integers, rounded};
use kinora_runtime::RunError;

/// A sinusoidal embedding of numbers: diffusers' `get_timestep_embedding`, in f64 where that computes in f32.
pub(super) fn timestep_embedding(op: TimestepEmbedding, t: &Tensor, result: &TensorType) -> Tensor {
    let half = op.width / 2;
    let divisor = half as f64 - f64::from(op.frequency_shift);
    let mut y = Vec::with_capacity(result.elements());
    for t in elements(t) {
        let angles = (0..half).map(|i| {
            let exponent = -f64::from(op.max_period).ln() * i as f64 / divisor;
            f64::from(op.scale) * t * exponent.exp()
        });
        let (sines, cosines) = (angles.clone().map(f64::sin), angles.map(f64::cos));
        if op.cosine_first {
            y.extend(cosines.chain(sines));
        } else {
            y.extend(sines.chain(cosines));
        }
        if op.width % 2 == 1 {
            y.push(0.0);
        }
    }
    rounded(result, &y)
}

/// Rows of a table.
pub(super) fn embedding(layer: &str, inputs: &[&Tensor], result: &TensorType) -> Result<Tensor, RunError> {
    let (table, ids) = (inputs[0], integers(inputs[1]));
    let rows = table.shape()[0];
    let row_bytes = table.shape()[1] * table.dtype().size();
    let mut bytes = Vec::with_capacity(result.bytes());
    for &id in ids {
        let row = usize::try_from(id).ok().filter(|&row| row < rows);
        let row = row.ok_or_else(|| RunError::Token { layer: layer.to_owned(), id, rows })?;
        bytes.extend_from_slice(&table.bytes()[row * row_bytes..][..row_bytes]);
    }
    let mut tensor = Tensor::zeros(result.clone());
    tensor.bytes_mut().copy_from_slice(&bytes);
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, Op};

    use super::{
        super::{run, testing::*},
        *,
    };

    fn embed(op: TimestepEmbedding, t: &[f32]) -> Vec<f32> {
        values(Op::TimestepEmbedding(op), &[&floats(&[t.len()], t)])
    }

    #[test]
    fn sines_and_cosines_of_falling_frequencies() {
        // Two frequencies, 1 and 100^(−1/2) = 0.1.
        let op = TimestepEmbedding {
            width: 4,
            cosine_first: false,
            frequency_shift: 0.0,
            max_period: 100.0,
            scale: 1.0,
        };
        let (sin, cos) = ([2f64.sin(), 0.2f64.sin()], [2f64.cos(), 0.2f64.cos()]);
        let expected = [0.0, 0.0, 1.0, 1.0, sin[0], sin[1], cos[0], cos[1]];
        assert_close(&embed(op, &[0.0, 2.0]), &expected);
        let swapped = TimestepEmbedding { cosine_first: true, ..op };
        assert_close(&embed(swapped, &[2.0]), &[cos[0], cos[1], sin[0], sin[1]]);
        // A shift of 1 leaves one step in the exponent: frequencies 1 and 0.01. Three times the angle.
        let shifted = TimestepEmbedding { frequency_shift: 1.0, scale: 3.0, ..op };
        let expected = [6f64.sin(), 0.06f64.sin(), 6f64.cos(), 0.06f64.cos()];
        assert_close(&embed(shifted, &[2.0]), &expected);
        // An odd width ends in a zero.
        let odd = TimestepEmbedding { width: 5, ..op };
        assert_close(&embed(odd, &[2.0]), &[sin[0], sin[1], cos[0], cos[1], 0.0]);
    }

    #[test]
    fn the_embedding_of_half_precision_numbers_is_f32() {
        let op = TimestepEmbedding {
            width: 2,
            cosine_first: false,
            frequency_shift: 0.0,
            max_period: 10_000.0,
            scale: 1.0,
        };
        let t = floats(&[1], &[2.0]).cast(DType::BF16);
        assert_close(&values(Op::TimestepEmbedding(op), &[&t]), &[2f64.sin(), 2f64.cos()]);
    }

    #[test]
    fn rows_of_the_table_by_id() {
        let table = counting(&[3, 2]).cast(DType::F16);
        let y = run_one(Op::Embedding, &[&table, &ints(&[1, 3], &[2, 0, 2])]);
        assert_eq!(y.ty(), &TensorType::new(DType::F16, [1, 3, 2]));
        assert_eq!(y.to_f32(), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
    }

    #[test]
    fn an_id_outside_the_table_is_an_error() {
        for id in [-1, 3, i32::MAX, i32::MIN] {
            let error =
                run("tokens", &Op::Embedding, &[&counting(&[3, 2]), &ints(&[2], &[0, id])]).unwrap_err();
            assert_eq!(error, RunError::Token { layer: "tokens".into(), id, rows: 3 });
        }
        // Even where a row has no channels.
        assert!(run("tokens", &Op::Embedding, &[&floats(&[3, 0], &[]), &ints(&[1], &[3])]).is_err());
    }
}
