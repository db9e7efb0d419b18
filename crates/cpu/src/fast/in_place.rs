//! Which results may overwrite which operands.

use kinora_graph::Op;

/// Whether the memory-bound kernels here work if the result has exactly the operand's memory.
///
/// They do if each element of the result is computed from the operand's element in the same place, and no other result
/// reads that element afterwards. The operand has as many elements as the result, of the same size but of whatever
/// type: a kernel reads every element of a block before it writes one of them, so an f16 may overwrite a bf16. No other
/// operand is in that memory unless it is the same value.
pub(crate) fn in_place(op: &Op, operand: usize) -> bool {
    match op {
        Op::Norm(_) | Op::BatchNorm(_) | Op::Activate(_) | Op::Softmax | Op::Scale(_) | Op::Cast(_) => {
            operand == 0
        }
        Op::Add | Op::Mul | Op::Blend | Op::TemporalBlend(_) => operand <= 1,
        _ => false,
    }
}
