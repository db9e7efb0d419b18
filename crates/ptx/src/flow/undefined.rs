//! Registers that a kernel may read before it writes them: what compilers make of a local variable without a value.
//!
//! Compilers also leave registers undefined whose values are never used, which is harmless. So the registers that may be undefined are
//! tracked together with all registers that are computed from them, and the interpreter knows for each lane whether they have a value.
//! For the same reason a branch counts only if it decides more than the values of registers.

use std::collections::{HashMap, HashSet};

use super::access_facts::Numbers;
use crate::isa::{Access, Alu, Memory, Op, Program, TrackedRegisters};

/// Beyond this many registers none are tracked, because that would take too long.
const MOST: usize = 64;

/// Notes which instructions read or write a register that may be undefined, or was computed from one. `read_first` are the registers that
/// may be read before they are written.
pub(super) fn mark(program: &mut Program, read_first: impl Iterator<Item = usize>) {
    let numbers = Numbers::new(program);
    let read_first: Vec<usize> = read_first.collect();
    let chosen = chosen_from(program, &numbers);
    if !chosen.is_empty() && track(program, &numbers, read_first.iter().chain(&chosen).copied()) {
        for pc in 0..program.instructions.len() {
            let (results, _) = program.results_and_operands(&program.instructions[pc]);
            let register = results.first().and_then(|&result| numbers.of(result));
            program.access_facts[pc].chosen = register.is_some_and(|register| chosen.contains(&register));
        }
    } else {
        track(program, &numbers, read_first.into_iter());
    }
}

/// Registers that are loaded from local memory and that only selections read. Compilers load a variable before they know whether it has a
/// value, and drop what they loaded if it has none.
fn chosen_from(program: &Program, numbers: &Numbers) -> HashSet<usize> {
    let mut loaded = HashSet::new();
    let mut otherwise = HashSet::new();
    for instruction in &program.instructions {
        let (results, operands) = program.results_and_operands(instruction);
        let is_load =
            matches!(instruction.op, Op::Load(Access { memory: Memory::Local, lanes: 1, strong: false, .. }));
        let into = if is_load { &mut loaded } else { &mut otherwise };
        into.extend(results.iter().filter_map(|&operand| numbers.of(operand)));
        let data = if matches!(instruction.op, Op::Alu(Alu::Select32 | Alu::Select64)) { 2 } else { 0 };
        let read = operands.iter().skip(data).chain([&instruction.guard]);
        otherwise.extend(read.filter_map(|&operand| numbers.of(operand)));
    }
    loaded.retain(|register| !otherwise.contains(register));
    loaded
}

/// Tracks some registers, and all that are computed from them. Returns whether they are few enough.
fn track(program: &mut Program, numbers: &Numbers, first: impl Iterator<Item = usize>) -> bool {
    let mut tracked: HashMap<usize, u16> = HashMap::new();
    for register in first {
        let next = tracked.len() as u16;
        tracked.entry(register).or_insert(next);
        if tracked.len() > MOST {
            return false;
        }
    }
    if tracked.is_empty() {
        return true;
    }
    let mut grown = true;
    while grown {
        grown = false;
        for instruction in program.instructions.iter().filter(|instruction| computes(&instruction.op)) {
            let (results, operands) = program.results_and_operands(instruction);
            let reads = operands.iter().filter_map(|&operand| numbers.of(operand));
            if reads.into_iter().any(|register| tracked.contains_key(&register)) {
                for register in results.iter().filter_map(|&operand| numbers.of(operand)) {
                    let next = tracked.len() as u16;
                    grown |= next == *tracked.entry(register).or_insert(next);
                }
            }
        }
        if tracked.len() > MOST {
            return false;
        }
    }
    let number = |operand| numbers.of(operand).and_then(|register| tracked.get(&register).copied());
    let mut all = Vec::new();
    for pc in 0..program.instructions.len() {
        let instruction = &program.instructions[pc];
        let (results, operands) = program.results_and_operands(instruction);
        let registers = TrackedRegisters {
            guard: number(instruction.guard).filter(|_| decides_effects(program, pc)),
            results: results.iter().map(|&operand| number(operand)).collect(),
            operands: operands.iter().map(|&operand| number(operand)).collect(),
        };
        let any = registers
            .results
            .iter()
            .chain(&registers.operands)
            .chain([&registers.guard])
            .any(Option::is_some);
        if any {
            program.instructions[pc].watched = true;
            all.push((pc as u32, registers));
        }
    }
    program.tracked = all;
    program.tracked_count = tracked.len();
    true
}

/// Whether anything but registers depends on which way a branch goes: on its way to the point where its lanes reconverge, there is a store,
/// a synchronisation or an exit.
fn decides_effects(program: &Program, pc: usize) -> bool {
    let end = program.reconvergence[pc];
    let mut seen = HashSet::new();
    let targets = |pc: u32| {
        let mut all = Vec::new();
        let instruction = &program.instructions[pc as usize];
        match instruction.op {
            Op::Branch { target } if instruction.guard.is_none() => return vec![target],
            Op::Branch { target } => all.push(target),
            Op::BranchIndexed { table } => all.extend(&program.tables[table as usize]),
            _ => {}
        }
        all.push(pc + 1);
        all
    };
    let mut open = targets(pc as u32);
    while let Some(pc) = open.pop() {
        if pc == end || !seen.insert(pc) {
            continue;
        }
        let Some(instruction) = program.instructions.get(pc as usize) else { return true };
        let pure = matches!(
            instruction.op,
            Op::Load(_)
                | Op::Special(_)
                | Op::Branch { .. }
                | Op::BranchIndexed { .. }
                | Op::Prefetch
                | Op::Nothing
        );
        if !pure && !computes(&instruction.op) {
            return true;
        }
        open.extend(targets(pc));
    }
    false
}

/// Whether an instruction computes each lane's results from the same lane's operands, and nothing else.
pub(crate) fn computes(op: &Op) -> bool {
    matches!(
        op,
        Op::Alu(_)
            | Op::Carry(_)
            | Op::SetPredicate { .. }
            | Op::SetValue { .. }
            | Op::TestNumber { .. }
            | Op::Predicate(_)
            | Op::ToGeneric(_)
            | Op::FromGeneric(_)
    )
}
