//! Registers that are read before they were written: whether a kernel's result depends on them.

use super::{step::Step, unit::Unit, warp::Warp};
use crate::{
    check::FindingKind,
    flow,
    isa::{Access, Alu, Op, TrackedRegisters},
};

impl Unit<'_> {
    /// Reports lanes whose branch, address or stored value is undefined, and notes what an instruction leaves undefined. `mask` are the
    /// lanes that reach the instruction, those of the step execute it.
    #[inline(never)]
    pub(super) fn track_undefined(&mut self, warp: &mut Warp, step: Step<'_>, mask: u32) {
        let program = self.launched.program;
        let Ok(place) = program.tracked.binary_search_by_key(&step.pc, |known| known.0) else { return };
        let TrackedRegisters { guard, results, operands } = &program.tracked[place].1;
        let op = step.instruction.op;
        if let (Some(guard), Op::Branch { .. } | Op::Exit) = (*guard, op) {
            self.expect_defined(warp, step.pc, guard, mask, "a branch depends");
        }
        let address = usize::from(matches!(op, Op::AsyncCopy { .. }));
        for (i, register) in operands.iter().enumerate() {
            let Some(register) = *register else { continue };
            let what = match op {
                Op::Load(_) | Op::Store(_) | Op::Atomic { .. } | Op::AsyncCopy { .. } if i <= address => {
                    "an address depends"
                }
                // Compilers store vectors of which some parts are not needed.
                Op::Store(Access { lanes: 1, .. }) => "a stored value depends",
                Op::Atomic { .. } => "the value of an atomic depends",
                Op::BranchIndexed { .. } => "a branch depends",
                _ => continue,
            };
            self.expect_defined(warp, step.pc, register, step.mask, what);
        }
        let of = |warp: &Warp, i: usize| {
            operands
                .get(i)
                .copied()
                .flatten()
                .map_or(u32::MAX, |register| warp.defined[usize::from(register)])
        };
        let defined = match op {
            Op::Alu(Alu::Select32 | Alu::Select64) => {
                let chosen = step.operands.get(results.len() + 2).map_or(0, |&p| warp.registers.predicate(p));
                (of(warp, 0) & chosen | of(warp, 1) & !chosen) & of(warp, 2)
            }
            _ if flow::computes(&op) => (0..operands.len()).fold(u32::MAX, |all, i| all & of(warp, i)),
            _ => u32::MAX,
        };
        for register in results.iter().flatten() {
            let known = &mut warp.defined[usize::from(*register)];
            *known = *known & !step.mask | defined & step.mask;
        }
    }

    /// Reports lanes in which a register is undefined, once: from then on it counts as defined.
    fn expect_defined(&mut self, warp: &mut Warp, pc: u32, register: u16, mask: u32, what: &str) {
        let undefined = mask & !warp.defined[usize::from(register)];
        if undefined == 0 {
            return;
        }
        warp.defined[usize::from(register)] |= undefined;
        self.report(warp, FindingKind::Uninitialised, pc, undefined.trailing_zeros(), None, || {
            format!("{what} on a local variable that has no value on this path")
        });
    }
}
