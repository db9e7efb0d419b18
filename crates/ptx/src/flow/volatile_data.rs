//! Volatile accesses to data. A volatile load that decides about a branch is taken for a flag that is polled, which is how threads may
//! wait for each other; any other load is of data, which volatile does not order.

use super::access_facts::Numbers;
use crate::isa::{Access, AccessFacts, Op, Operand, Program};

/// Marks the volatile accesses to data.
pub(super) fn mark(program: &Program, numbers: &Numbers, facts: &mut [AccessFacts]) {
    let volatile = |op: &Op| {
        matches!(op, Op::Load(Access { volatile: true, .. }) | Op::Store(Access { volatile: true, .. }))
    };
    if !program.instructions.iter().any(|instruction| volatile(&instruction.op)) {
        return;
    }
    let readers = Readers::new(program, numbers);
    for (facts, instruction) in facts.iter_mut().zip(&program.instructions) {
        let (results, _) = program.results_and_operands(instruction);
        facts.volatile_data =
            volatile(&instruction.op) && !readers.decide_branches(program, numbers, results);
    }
}

/// The instructions that read each register.
struct Readers(Vec<Vec<u32>>);

impl Readers {
    fn new(program: &Program, numbers: &Numbers) -> Readers {
        let mut readers = vec![Vec::new(); numbers.count];
        for (instruction, pc) in program.instructions.iter().zip(0..) {
            let (_, operands) = program.results_and_operands(instruction);
            for register in operands.iter().chain([&instruction.guard]).filter_map(|&read| numbers.of(read)) {
                readers[register].push(pc);
            }
        }
        Readers(readers)
    }

    /// Whether any branch depends on one of these registers.
    fn decide_branches(&self, program: &Program, numbers: &Numbers, registers: &[Operand]) -> bool {
        let mut seen = vec![false; self.0.len()];
        let mut open: Vec<Operand> = registers.to_vec();
        while let Some(register) = open.pop() {
            let Some(register) = numbers.of(register) else { continue };
            if std::mem::replace(&mut seen[register], true) {
                continue;
            }
            for &pc in &self.0[register] {
                let instruction = &program.instructions[pc as usize];
                match instruction.op {
                    Op::Branch { .. } | Op::BranchIndexed { .. } | Op::Exit => return true,
                    // What passes through memory is data.
                    Op::Load(_) | Op::Store(_) | Op::Atomic { .. } => {}
                    _ => open.extend(program.results_and_operands(instruction).0),
                }
            }
        }
        false
    }
}
