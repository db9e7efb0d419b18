//! Ops on single elements: activations, gates, sums, products, blends, casts and numbers in 8 bits.

mod cast;
mod elementwise;
mod filters;
mod moved;

use kinora_graph::{
    Op,
    op::{Gate, Quantise, Scale, TemporalBlend},
};

pub(crate) use elementwise::{ByElements, Elementwise, Operand};

use self::{cast::Cast, filters::Filters, moved::BlendUnlessMoved};
use super::{Call, Family, Implementation, KernelSet, names::activation_name};
use crate::Chip;

/// The family.
pub const FAMILY: Family = Family { offer: implementations, in_place };

/// The name of every implementation: with one element a thread, or with several.
const NAMES: [&str; 2] = ["elementwise-plain", "elementwise"];

/// Threads of a block, as the sources have them.
const THREADS: usize = 256;

/// The implementations of an op of this family, the one to choose first; none for another op.
fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let plain = set == KernelSet::Baseline;
    let function = |function: Elementwise| -> Box<dyn Implementation> {
        Box::new(ByElements { names: NAMES, plain, chip: chip.clone(), function })
    };
    let broadcast = |expression: &str, numbers: [f32; 2]| {
        function(Elementwise::broadcast(call, expression.to_owned(), numbers))
    };
    let implementation = match call.op {
        Op::Activate(activation) => {
            broadcast(&format!("{}(x[0])", activation_name(Some(*activation))), [0.0; 2])
        }
        Op::Add => broadcast("x[0] + x[1]", [0.0; 2]),
        Op::Mul => broadcast("x[0] * x[1]", [0.0; 2]),
        Op::Scale(Scale { factor, offset }) => broadcast("p * x[0] + q", [*factor, *offset]),
        Op::Blend => function(blend(call)),
        Op::TemporalBlend(TemporalBlend { threshold: None }) => {
            // Exact for strengths of 0 and 1.
            broadcast("fmaf(x[2], x[1], (1.0f - x[2]) * x[0])", [0.0; 2])
        }
        Op::TemporalBlend(TemporalBlend { threshold: Some(threshold) }) => {
            Box::new(BlendUnlessMoved::new(call, *threshold, plain))
        }
        Op::Gate(op) => function(gate(*op, call)),
        Op::Cast(_) => Box::new(Cast::new(call, chip, plain)),
        Op::Quantise(Quantise::Tensor { factor }) => broadcast("p * x[0]", [*factor, 0.0]),
        Op::Quantise(Quantise::Filters { blocks, activation }) => {
            Box::new(Filters::new(call, *blocks, *activation))
        }
        _ => return Vec::new(),
    };
    vec![implementation]
}

/// Whether an op's result may lie over one of its operands. Each thread reads all that it needs of an element before it
/// writes it, and no other thread reads it.
fn in_place(op: &Op, operand: usize) -> bool {
    match op {
        Op::Activate(_) | Op::Scale(_) | Op::Cast(_) => operand == 0,
        Op::Add | Op::Mul | Op::Blend | Op::TemporalBlend(_) => operand <= 1,
        _ => false,
    }
}

/// `α·a + (1−α)·b`: α is one number, or one for each coordinate of the first axis.
fn blend(call: &Call<'_>) -> Elementwise {
    let (result, alphas) = (call.outputs[0], call.inputs[2]);
    let mut function = Elementwise::broadcast(call, "x[2] * x[0] + (1.0f - x[2]) * x[1]".into(), [0.0; 2]);
    let mut strides = vec![0; result.shape.len()];
    strides[0] = usize::from(alphas.shape[0] > 1);
    function.operands[2].strides = strides;
    function
}

/// The first half of the channels times an activation of the second: one operand, read at two places.
fn gate(op: Gate, call: &Call<'_>) -> Elementwise {
    let (x, result) = (call.inputs[0], call.outputs[0]);
    let half = result.shape.channels();
    let operand = |offset| Operand { input: 0, offset, dtype: x.dtype, strides: vec![2 * half, 1] };
    Elementwise {
        expression: format!("x[0] * {}(x[1])", activation_name(Some(op.activation))),
        numbers: [0.0; 2],
        extents: vec![result.shape.rows(), half],
        operands: vec![operand(0), operand(half * x.dtype.size())],
        result: result.dtype,
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, TensorType, op::Activation};

    use super::*;
    use crate::{
        Architecture,
        kernels::{Argument, testing},
    };

    #[test]
    fn a_gate_reads_its_operand_at_two_places() {
        let x = TensorType::new(DType::F16, [3, 64]);
        let op = Op::Gate(Gate { activation: Activation::Gelu });
        let launches = testing::launches(implementations, &op, &[&x]).unwrap();
        assert_eq!(launches[0].arguments[2], Argument::I64(96));
        let at = testing::place(0).address();
        let words = testing::struct_words(&launches[0], "Operands");
        assert_eq!(words, [at, at + 64, 64, 8, 64, 8, 3, 4]);
    }

    #[test]
    fn every_op_of_the_family_has_launches_in_both_sets() {
        let x = TensorType::new(DType::BF16, [2, 3, 5, 6]);
        let (one, alphas) = (TensorType::new(DType::F32, [1]), TensorType::new(DType::F16, [2]));
        let cases: [(Op, Vec<&TensorType>); 9] = [
            (Op::Activate(Activation::Silu), vec![&x]),
            (Op::Gate(Gate { activation: Activation::Gelu }), vec![&x]),
            (Op::Add, vec![&x, &one]),
            (Op::Blend, vec![&x, &x, &alphas]),
            (Op::TemporalBlend(TemporalBlend { threshold: None }), vec![&x, &x, &one]),
            (Op::TemporalBlend(TemporalBlend { threshold: Some(0.5) }), vec![&x, &x, &one]),
            (Op::Cast(DType::U8), vec![&x]),
            (Op::Quantise(Quantise::Tensor { factor: 2.0 }), vec![&x]),
            (Op::Quantise(Quantise::Filters { blocks: 2, activation: 2.0 }), vec![&x]),
        ];
        for (op, inputs) in &cases {
            testing::launches(implementations, op, inputs).unwrap();
        }
    }

    #[test]
    fn other_ops_are_left_to_other_families() {
        let x = TensorType::new(DType::F16, [3, 64]);
        let call = Call { layer: "x", op: &Op::Softmax, inputs: &[&x], outputs: &[&x] };
        let chip = Chip::typical(Architecture::AMPERE);
        assert!(implementations(&call, &chip, KernelSet::Fused).is_empty());
    }
}
