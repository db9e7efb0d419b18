//! Which shared variable an address is derived from: the constant address of the variable, plus or minus an index.
//!
//! PTX names a variable where its address is taken, and compilers do not derive one variable's address from another's. Only what such
//! sums, copies and conversions show counts: an address that went through memory, a selection between variables, or any other
//! arithmetic belongs to no variable, and is checked against all of the block's memory alone.

use super::access_facts::Numbers;
use crate::isa::{Alu, Int, Op, Operand, Program};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// Not known yet.
    #[default]
    Unset,
    /// Not derived from a variable's address.
    Plain,
    /// The address of a variable, plus an index.
    Variable(u16),
    /// Anything that involves an address in another way.
    Mixed,
}

use Origin::{Mixed, Plain, Unset, Variable};

impl Origin {
    /// Either of two.
    fn or(self, other: Origin) -> Origin {
        match (self, other) {
            (Unset, other) => other,
            (mine, Unset) => mine,
            (mine, other) if mine == other => mine,
            _ => Mixed,
        }
    }

    fn plus(self, other: Origin) -> Origin {
        match (self, other) {
            (Unset, _) | (_, Unset) => Unset,
            (mine, Plain) => mine,
            (Plain, other) => other,
            _ => Mixed,
        }
    }

    fn minus(self, other: Origin) -> Origin {
        match (self, other) {
            (Unset, _) | (_, Unset) => Unset,
            (mine, Plain) => mine,
            (Variable(mine), Variable(other)) if mine == other => Plain,
            _ => Mixed,
        }
    }

    /// In an operation that does not keep an address.
    fn spoiled(self) -> Origin {
        match self {
            Variable(_) => Mixed,
            other => other,
        }
    }
}

/// The shared variable, plus one, that each instruction's shared address is derived from; 0 if that is unknown.
pub(super) fn variables(program: &Program, numbers: &Numbers) -> Vec<u16> {
    let mut found = vec![0; program.instructions.len()];
    if program.address_constants.is_empty() {
        return found;
    }
    let mut origins = vec![Unset; numbers.count];
    let origin = |origins: &[Origin], operand: Operand| match numbers.of(operand) {
        Some(register) => origins[register],
        None => {
            let constant = program.address_constants.iter().find(|known| known.0 == operand);
            constant.map_or(Plain, |&(_, variable)| Variable(variable))
        }
    };
    let mut changed = true;
    while changed {
        changed = false;
        for instruction in &program.instructions {
            let (results, operands) = program.results_and_operands(instruction);
            if results.is_empty() {
                continue;
            }
            let of = |i: usize| operands.get(i).map_or(Plain, |&operand| origin(&origins, operand));
            let result = match instruction.op {
                Op::Alu(Alu::Move32 | Alu::Move64 | Alu::Convert(_))
                | Op::ToGeneric(_)
                | Op::FromGeneric(_) => of(0),
                Op::Alu(Alu::I32(Int::Add) | Alu::I64(Int::Add)) => of(0).plus(of(1)),
                // Compilers add to an aligned address so.
                Op::Alu(Alu::I32(Int::Or) | Alu::I64(Int::Or)) => of(0).plus(of(1)),
                Op::Alu(Alu::I32(Int::Sub) | Alu::I64(Int::Sub)) => of(0).minus(of(1)),
                Op::Alu(
                    Alu::I32(Int::Mad) | Alu::I64(Int::Mad) | Alu::Wide32(_, true) | Alu::Wide16(_, true),
                ) => of(0).plus(of(1)).spoiled().plus(of(2)),
                Op::Alu(Alu::Select32 | Alu::Select64) => of(0).or(of(1)),
                Op::Load(_) | Op::Special(_) | Op::Atomic { .. } => Plain,
                _ => (0..operands.len()).map(of).map(Origin::spoiled).fold(Plain, Origin::or),
            };
            for register in results.iter().filter_map(|&operand| numbers.of(operand)) {
                let joined = origins[register].or(result);
                changed |= joined != origins[register];
                origins[register] = joined;
            }
        }
    }
    for (found, instruction) in found.iter_mut().zip(&program.instructions) {
        let accesses = matches!(
            instruction.op,
            Op::Load(_)
                | Op::Store(_)
                | Op::Atomic { .. }
                | Op::LoadMatrix { .. }
                | Op::StoreMatrix { .. }
                | Op::AsyncCopy { .. }
        );
        let (_, operands) = program.results_and_operands(instruction);
        if accesses
            && let Some(&address) = operands.first()
            && let Variable(variable) = origin(&origins, address)
        {
            *found = variable + 1;
        }
    }
    found
}
