//! What ops accept and give, and what they say of what they refuse.

mod matrix;
mod pointwise;
mod random;
mod shaping;

use super::*;

/// Types written as `f32[2,3] i32[1]`.
fn types(text: &str) -> Vec<TensorType> {
    let one = |word: &str| {
        let (dtype, rest) = word.split_once('[').unwrap();
        let dtype = [DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::U8, DType::I32]
            .into_iter()
            .find(|d| d.to_string() == dtype)
            .unwrap();
        let extents = rest.strip_suffix(']').unwrap();
        let extents: Vec<usize> =
            extents.split(',').filter(|e| !e.is_empty()).map(|e| e.parse().unwrap()).collect();
        TensorType::new(dtype, extents)
    };
    text.split_whitespace().map(one).collect()
}

fn infer(op: &Op, operands: &str) -> Result<Vec<TensorType>, OpError> {
    let operands = types(operands);
    op.infer(&operands.iter().collect::<Vec<_>>())
}

/// Checks rows of an op, its operands and its results.
fn accept(rows: &[(Op, &str, &str)]) {
    for (op, operands, results) in rows {
        assert_eq!(infer(op, operands), Ok(types(results)), "{op} of {operands}");
    }
}

/// Checks rows of an op, its operands and the exact message of the refusal.
fn refuse(rows: &[(Op, &str, &str)]) {
    for (op, operands, message) in rows {
        match infer(op, operands) {
            Err(error) => assert_eq!(error.to_string(), *message, "{op} of {operands}"),
            Ok(results) => panic!("{op} of {operands} gives {results:?}, not: {message}"),
        }
    }
}

/// The same message for some operands of one op.
fn rows<'a>(op: &Op, cases: &[(&'a str, &'a str)]) -> Vec<(Op, &'a str, &'a str)> {
    cases.iter().map(|&(operands, message)| (op.clone(), operands, message)).collect()
}

#[test]
fn figures_of_huge_ops_saturate() {
    let huge = types("f32[1073741824,1073741824]");
    let flops = |op: Op, operands: &[&TensorType]| {
        let results = op.infer(operands).unwrap();
        op.flops(operands, &results.iter().collect::<Vec<_>>())
    };
    assert_eq!(flops(Op::MatMul(MatMul::default()), &[&huge[0], &huge[0]]), u64::MAX);
    assert_eq!(flops(Op::Linear(Linear::default()), &[&huge[0], &huge[0]]), u64::MAX);
    let operands = types("f32[1,1073741824,536870912,1] f32[1,1,1048576,1048576,1]");
    let conv = Op::Conv(Conv::spatial([1 << 20, 1 << 20], 1, 0));
    assert_eq!(flops(conv, &[&operands[0], &operands[1]]), u64::MAX);
    let sequence = &types("f16[1,1152921504606846976,1]")[0];
    assert_eq!(flops(Op::Attention(Attention::over_positions(1, 1)), &[sequence; 3]), u64::MAX);
    // Five products of 2 heads, 3 queries, 4 keys and 8 channels.
    let forward = Attention { log_sum_exp: true, ..Attention::over_positions(2, 8) };
    let backward = Op::AttentionBackward(AttentionBackward { forward });
    let [q, k, sums] = &types("f16[1,3,16] f16[1,4,16] f32[1,3,2]")[..] else { panic!("three types") };
    assert_eq!(flops(backward, &[q, k, k, q, sums, q]), 5 * 2 * 2 * 3 * 4 * 8);
    // 2 · 3 · 4 · 5 and an empty one, exactly.
    let small = types("f32[3,4] f32[5,4] f32[0,4]");
    assert_eq!(flops(Op::Linear(Linear::default()), &[&small[0], &small[1]]), 120);
    assert_eq!(flops(Op::Linear(Linear::default()), &[&small[2], &small[1]]), 0);
}

#[test]
fn text_of_an_unchecked_op_does_not_overflow() {
    let slice = Op::Slice(Slice { axis: 0, start: usize::MAX, len: 2 });
    assert_eq!(slice.to_string(), "slice axis 0 18446744073709551615..18446744073709551615");
}

#[test]
fn gradients_are_named_after_their_attention() {
    let forward = Attention { log_sum_exp: true, ..Attention::over_positions(2, 4) };
    let op = Op::AttentionBackward(AttentionBackward { forward });
    assert_eq!(op.to_string(), "gradients of attention 2×4 log-sum-exp");
    assert_eq!(op.kind(), "attention_backward");
    let json = serde_json::to_string(&op).unwrap();
    assert!(json.starts_with(r#"{"attention_backward":{"forward":{"heads":2,"#), "{json}");
    assert_eq!(serde_json::from_str::<Op>(&json).unwrap(), op);
}
