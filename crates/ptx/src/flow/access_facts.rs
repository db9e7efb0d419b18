//! What the checks have to know of memory accesses, from the data flow between registers. It is gathered while each register of the PTX
//! still has its own number.

use super::{demand::Demand, provenance, volatile_data};
use crate::isa::{Access, AccessFacts, Op, Operand, Program};

/// Fills in the facts of every instruction.
pub(super) fn gather(program: &mut Program) {
    let mut facts = vec![AccessFacts::default(); program.instructions.len()];
    let numbers = Numbers::new(program);
    for (facts, variable) in facts.iter_mut().zip(provenance::variables(program, &numbers)) {
        facts.variable = variable;
    }
    volatile_data::mark(program, &numbers, &mut facts);
    let demand = Demand::of(program, &numbers);
    demand.mark(program, &numbers, &mut facts);
    program.read_only_writes = [
        program.instructions.iter().any(|i| matches!(i.op, Op::Load(Access { non_coherent: true, .. }))),
        program.instructions.iter().any(|i| matches!(i.op, Op::Store(_) | Op::Atomic { .. })),
    ] == [true; 2];
    program.access_facts = facts;
}

/// Numbers the registers of all classes.
pub(super) struct Numbers {
    starts: [usize; 3],
    pub count: usize,
}

impl Numbers {
    fn new(program: &Program) -> Numbers {
        let starts = [0, program.word_count, program.word_count + program.long_count];
        Numbers { starts, count: starts[2] + program.predicate_count }
    }

    /// The number of a register; `None` for a constant or nothing.
    pub fn of(&self, operand: Operand) -> Option<usize> {
        operand.is_register().then(|| self.starts[operand.class() as usize] + operand.index())
    }
}
