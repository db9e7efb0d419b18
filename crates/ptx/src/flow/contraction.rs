//! Contraction as the assembler may do it: PTX lets a `mul` and an `add` or `sub` without a rounding modifier become one fused
//! multiply-add, which rounds once.
//!
//! It is not published which of them an assembler contracts. Here it is every sum with a product as an operand, if both are in one basic
//! block and the factors are still in their registers. If both operands are products, the first is contracted. The product itself is
//! still computed, as on a chip where something else reads it.

use std::collections::HashMap;

use super::graph::Graph;
use crate::{
    counters::InstructionClass,
    isa::{Alu, Float, Instruction, Mode, Op, Operand, Program},
};

/// Contracts what may be contracted.
pub(super) fn contract(program: &mut Program) {
    for block in &Graph::new(program).blocks {
        // Where the registers were written last, in this block.
        let mut written = HashMap::new();
        for pc in block.first..block.end {
            if let Some((op, factors, addend)) = fused(program, &written, pc) {
                let first = program.operands.len() as u32;
                let result = program.operands[program.instructions[pc].first as usize];
                program.operands.extend([result, factors[0], factors[1], addend]);
                let instruction = &mut program.instructions[pc];
                *instruction = Instruction { op, first, operands: 3, ..*instruction };
                instruction.class = InstructionClass::of(&op);
                program.contracted.push(pc as u32);
            }
            let instruction = program.instructions[pc];
            // Until the wait, its operands must not be read, and contraction reads factors later than the code does.
            if matches!(instruction.op, Op::Wgmma(_)) {
                written.clear();
            }
            let (results, _) = program.results_and_operands(&instruction);
            for &result in results.iter().filter(|result| result.is_register()) {
                written.insert(result, pc);
            }
        }
    }
}

/// What a sum becomes, if it may be contracted: the operation, the factors and the addend.
fn fused(
    program: &Program,
    written: &HashMap<Operand, usize>,
    pc: usize,
) -> Option<(Op, [Operand; 2], Operand)> {
    let instruction = &program.instructions[pc];
    let Op::Alu(alu) = instruction.op else { return None };
    let (operation, mode) = parts(alu).filter(|(_, mode)| mode.contractible)?;
    let &[left, right] = program.results_and_operands(instruction).1 else { return None };
    let (first, second) = match operation {
        Float::Add => (Float::Fma, Float::Fma),
        Float::Sub => (Float::MulSub, Float::NegMulAdd),
        _ => return None,
    };
    [(first, left, right), (second, right, left)].into_iter().find_map(|(operation, product, addend)| {
        let &at = written.get(&product)?;
        let multiplication = &program.instructions[at];
        let Op::Alu(other) = multiplication.op else { return None };
        let (_, other_mode) = parts(other)
            .filter(|&(operation, mode)| operation == Float::Mul && mode.contractible && !mode.saturate)?;
        let &[a, b] = program.results_and_operands(multiplication).1 else { return None };
        // A guard may be a negated predicate.
        let register = |guard: Operand| {
            if !guard.is_none() && guard.is_negated() { guard.negated() } else { guard }
        };
        let read = [a, b, register(multiplication.guard)];
        let unchanged = read.iter().all(|operand| written.get(operand).is_none_or(|&since| since < at));
        let alike = with(other, operation, mode) == with(alu, operation, mode)
            && other_mode.flush == mode.flush
            && multiplication.guard == instruction.guard;
        (unchanged && alike).then(|| (Op::Alu(with(alu, operation, mode)), [a, b], addend))
    })
}

/// A floating-point operation and its mode.
fn parts(alu: Alu) -> Option<(Float, Mode)> {
    match alu {
        Alu::F32(operation, mode) | Alu::F64(operation, mode) | Alu::Half { op: operation, mode, .. } => {
            Some((operation, mode))
        }
        _ => None,
    }
}

/// Another operation on numbers of the same type.
fn with(alu: Alu, op: Float, mode: Mode) -> Alu {
    match alu {
        Alu::F32(..) => Alu::F32(op, mode),
        Alu::F64(..) => Alu::F64(op, mode),
        Alu::Half { bf16, pair, .. } => Alu::Half { op, mode, bf16, pair },
        other => other,
    }
}
