//! Registers that are read before they were written: whether a kernel's result depends on them.

use super::{
    access::{SharedPlace, WarpAccess, for_lanes},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    flow,
    isa::{Access, Alu, Memory, Op, TrackedRegisters},
};

impl Unit<'_> {
    /// Reports lanes whose branch, address or stored value is undefined, and notes what an instruction leaves undefined. `mask` are the
    /// lanes that reach the instruction, those of the step execute it.
    #[inline(never)]
    pub(super) fn track_undefined(&mut self, warp: &mut Warp, step: Step<'_>, mask: u32) {
        let Some(TrackedRegisters { guard, results, operands }) = self.launched.program.tracked_at(step.pc)
        else {
            return;
        };
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
                // What is stored there counts when it is used.
                Op::Store(Access { memory: Memory::Shared | Memory::SharedCluster, .. }) => continue,
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

    /// A lane has loaded a variable that has no value, into a register that is tracked.
    pub(super) fn note_without_value(&self, warp: &mut Warp, pc: u32, lane: usize) {
        if let Some(&Some(register)) =
            self.launched.program.tracked_at(pc).and_then(|tracked| tracked.results.first())
        {
            warp.defined[usize::from(register)] &= !(1 << lane);
        }
    }

    /// Lanes have stored to shared memory what may be undefined.
    #[inline(never)]
    pub(super) fn store_without_value(
        &mut self,
        warp: &Warp,
        access: &WarpAccess<'_>,
        element: usize,
        mask: u32,
        places: &[SharedPlace; 32],
    ) {
        let Some(tracked) = self.launched.program.tracked_at(access.pc) else { return };
        for (i, register) in tracked.operands.iter().skip(1).enumerate() {
            let Some(register) = *register else { continue };
            for_lanes(mask & !warp.defined[usize::from(register)], |lane| {
                let (block, offset) = places[lane];
                let shared = &mut self.blocks[block].shared;
                (0..element).for_each(|byte| shared.mark_without_value(offset + i * element + byte));
            });
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
