//! Extended-precision arithmetic with the carry flag.

use super::registers::{Constants, Registers};
use crate::isa::{Carry, CarryOp, Operand};

/// Additions, subtractions and multiply-adds that read or write the carry flag.
pub(super) fn run(
    carry: Carry,
    operands: &[Operand],
    registers: &mut Registers,
    constants: &Constants,
    mask: u32,
) {
    let before = registers.carry;
    let mut after = 0;
    let (mut words, mut longs) = ([0; 32], [0; 32]);
    for lane in 0..32 {
        let value = |i: usize| {
            let operand = operands[i.min(operands.len() - 1)];
            if carry.wide {
                u128::from(registers.long(constants, operand)[lane])
            } else {
                u128::from(registers.word(constants, operand)[lane])
            }
        };
        let bits = if carry.wide { 64 } else { 32 };
        let ones = (1u128 << bits) - 1;
        let taken = u128::from(carry.takes && before >> lane & 1 == 1);
        let (a, b, c) = (value(1), value(2), value(3));
        let signed = |x: u128| (x << (128 - bits)) as i128 >> (128 - bits);
        let sum = match carry.op {
            CarryOp::Add => a + b + taken,
            // The borrow is the inverted carry, which is visible only to these instructions.
            CarryOp::Sub => a.wrapping_sub(b).wrapping_sub(taken),
            CarryOp::MadLow => ((a * b) & ones) + c + taken,
            CarryOp::MadHighU => ((a * b) >> bits) + c + taken,
            CarryOp::MadHighS => (((signed(a) * signed(b)) >> bits) as u128 & ones) + c + taken,
        };
        after |= u32::from(sum >> bits & 1 == 1) << lane;
        words[lane] = sum as u32;
        longs[lane] = sum as u64;
    }
    if carry.gives {
        registers.carry = before & !mask | after & mask;
    }
    if operands[0].is_none() {
        return;
    }
    if carry.wide {
        registers.set_long(operands[0], &longs, mask);
    } else {
        registers.set_word(operands[0], &words, mask);
    }
}
