//! Loads of neighbouring words of shared memory, which the assembler makes one wide load of: compilers leave `s[i]`, `s[i + 1]` … of
//! an unrolled loop as loads of four bytes, and the machine code has `LDS.64` and `LDS.128` in their place.

use std::collections::HashSet;

use crate::isa::{Access, Memory, Op, Operand, Program};

/// What becomes of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// It stays as it is.
    Own,
    /// It is a part of a load of so many bytes, that many bytes after its start, which is done by instruction `first`.
    Part { bytes: u8, after: u8, first: u32 },
}

/// A load that may become a part of a wide one.
#[derive(Clone, Copy)]
struct Candidate {
    pc: usize,
    base: Operand,
    offset: i64,
}

/// What becomes of every load.
pub(super) fn widths(program: &Program) -> Vec<Width> {
    let mut widths = vec![Width::Own; program.instructions.len()];
    let mut targets: HashSet<u32> = program.tables.iter().flatten().copied().collect();
    targets.extend(program.instructions.iter().filter_map(|instruction| match instruction.op {
        Op::Branch { target } => Some(target),
        _ => None,
    }));
    let mut open: Vec<Candidate> = Vec::new();
    for (pc, instruction) in program.instructions.iter().enumerate() {
        if targets.contains(&(pc as u32)) {
            join(std::mem::take(&mut open), &mut widths);
        }
        let operands = program.operands_of(instruction);
        match instruction.op {
            Op::Load(Access { memory: Memory::Shared, kind, lanes: 1, offset, strong: false, .. })
                if kind.bytes() == 4 && instruction.guard.is_none() =>
            {
                if let Some(&base) = operands.get(1) {
                    open.push(Candidate { pc, base, offset });
                }
            }
            Op::Alu(_) | Op::Load(_) | Op::SetPredicate { .. } | Op::Predicate(_) | Op::Special(_) => {}
            // What may write shared memory, wait for others or go elsewhere.
            _ => join(std::mem::take(&mut open), &mut widths),
        }
        // A new value of a base.
        let results = &operands[..instruction.results as usize];
        let (over, kept): (Vec<Candidate>, Vec<Candidate>) =
            open.into_iter().partition(|candidate| results.contains(&candidate.base));
        open = kept;
        join(over, &mut widths);
    }
    join(open, &mut widths);
    widths
}

/// An order of bases.
fn key(base: Operand) -> (bool, u8, usize) {
    (base.is_constant(), base.class() as u8, base.index())
}

/// Joins loads of neighbouring words: four whose first is at a multiple of 16 bytes from the base, or else two.
fn join(mut open: Vec<Candidate>, widths: &mut [Width]) {
    let group = |candidate: &Candidate, bytes: i64| (candidate.base, candidate.offset.div_euclid(bytes));
    for bytes in [16, 8] {
        let mut at = 0;
        open.sort_by_key(|candidate| (key(candidate.base), candidate.offset, candidate.pc));
        open.dedup_by_key(|candidate| (candidate.base, candidate.offset));
        while at < open.len() {
            let wanted = group(&open[at], bytes);
            let end =
                at + open[at..].iter().take_while(|candidate| group(candidate, bytes) == wanted).count();
            let aligned = open[at..end].iter().all(|candidate| candidate.offset % 4 == 0);
            if (end - at) as i64 * 4 == bytes && aligned {
                let parts: Vec<Candidate> = open.drain(at..end).collect();
                let first = parts.iter().map(|part| part.pc).min().unwrap_or(0) as u32;
                for part in parts {
                    let after = part.offset.rem_euclid(bytes) as u8;
                    widths[part.pc] = Width::Part { bytes: bytes as u8, after, first };
                }
            } else {
                at = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChipSpec, Module, Simulator};

    /// The bytes of the load that each load of four bytes becomes a part of.
    fn bytes(body: &str) -> Vec<u8> {
        let ptx = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n.reg .b32 %r<9>;\n.reg .b32 %a;\n\
             .shared .align 16 .b8 s[1024];\nmov.u32 %a, %tid.x;\nshl.b32 %a, %a, 4;\n{body}\n\
             add.u32 %r8, %r1, %r2;\nadd.u32 %r8, %r8, %r3;\nadd.u32 %r8, %r8, %r4;\nst.shared.u32 [%a], %r8;\nret;\n}}\n"
        );
        let mut simulator = Simulator::new(ChipSpec::a100());
        let module = Module::load(&mut simulator, &ptx).unwrap();
        let program = &module.kernel("k").unwrap().program;
        let loads = widths(program).into_iter().zip(&program.instructions);
        let loads = loads.filter(|(_, instruction)| matches!(instruction.op, Op::Load(_)));
        loads.map(|(width, _)| if let Width::Part { bytes, .. } = width { bytes } else { 4 }).collect()
    }

    #[test]
    fn neighbours_become_wide_loads() {
        let load = |result: u32, offset: i32| format!("ld.shared.u32 %r{result}, [%a+{offset}];\n");
        let four = |offsets: [i32; 4]| -> String { (1..).zip(offsets).map(|(i, at)| load(i, at)).collect() };
        assert_eq!(bytes(&four([16, 20, 24, 28])), [16; 4]);
        assert_eq!(bytes(&four([28, 16, 24, 20])), [16; 4]);
        // Not at a multiple of their size, or with a gap.
        assert_eq!(bytes(&four([8, 12, 16, 20])), [8; 4]);
        assert_eq!(bytes(&four([4, 8, 12, 16])), [4, 8, 8, 4]);
        assert_eq!(bytes(&four([0, 8, 16, 24])), [4; 4]);
        // Something in between that may write what is read, or another base.
        let between = |what: &str| load(1, 0) + what + &load(2, 4) + &load(3, 32) + &load(4, 36);
        assert_eq!(bytes(&between("")), [8; 4]);
        for what in ["st.shared.u32 [%a], %a;\n", "bar.sync 0;\n", "add.u32 %a, %a, 64;\n", "L: bra M;\nM:\n"]
        {
            assert_eq!(bytes(&between(what)), [4, 4, 8, 8], "{what}");
        }
    }
}
