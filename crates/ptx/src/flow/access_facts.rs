//! What the checks have to know of memory accesses, from the data flow between registers.

use crate::isa::{Access, AccessFacts, Op, Operand, Program};

/// The facts of every instruction, while each register of the PTX still has its own number.
pub(super) fn of(program: &Program) -> Vec<AccessFacts> {
    let mut facts = vec![AccessFacts::default(); program.instructions.len()];
    let volatile = |op: &Op| {
        matches!(op, Op::Load(Access { volatile: true, .. }) | Op::Store(Access { volatile: true, .. }))
    };
    if program.instructions.iter().any(|instruction| volatile(&instruction.op)) {
        let readers = Readers::new(program);
        for (facts, instruction) in facts.iter_mut().zip(&program.instructions) {
            let first = instruction.first as usize;
            let results = &program.operands[first..first + instruction.results as usize];
            facts.volatile_data = volatile(&instruction.op) && !readers.decide_branches(program, results);
        }
    }
    facts
}

/// The number of a register among those of all classes.
fn number(program: &Program, operand: Operand) -> usize {
    let starts = [0, program.word_count, program.word_count + program.long_count];
    starts[operand.class() as usize] + operand.index()
}

/// The instructions that read each register.
struct Readers(Vec<Vec<u32>>);

impl Readers {
    fn new(program: &Program) -> Readers {
        let mut readers = vec![Vec::new(); program.word_count + program.long_count + program.predicate_count];
        for (instruction, pc) in program.instructions.iter().zip(0..) {
            let first = instruction.first as usize + instruction.results as usize;
            let operands = &program.operands[first..first + instruction.operands as usize];
            for &operand in
                operands.iter().chain([&instruction.guard]).filter(|operand| operand.is_register())
            {
                readers[number(program, operand)].push(pc);
            }
        }
        Readers(readers)
    }

    /// Whether any branch depends on one of these registers.
    fn decide_branches(&self, program: &Program, registers: &[Operand]) -> bool {
        let mut seen = vec![false; self.0.len()];
        let mut open: Vec<Operand> = registers.to_vec();
        while let Some(register) = open.pop() {
            if !register.is_register() || std::mem::replace(&mut seen[number(program, register)], true) {
                continue;
            }
            for &pc in &self.0[number(program, register)] {
                let instruction = &program.instructions[pc as usize];
                match instruction.op {
                    Op::Branch { .. } | Op::BranchIndexed { .. } | Op::Exit => return true,
                    // What passes through memory is data.
                    Op::Load(_) | Op::Store(_) | Op::Atomic { .. } => {}
                    _ => {
                        let first = instruction.first as usize;
                        open.extend(&program.operands[first..first + instruction.results as usize]);
                    }
                }
            }
        }
        false
    }
}
