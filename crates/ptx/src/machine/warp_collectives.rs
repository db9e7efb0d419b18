//! Warp-synchronous instructions: shuffles, votes, matches, reductions, `bar.warp.sync`.
//!
//! Every lane names a member mask. The lanes that name the same mask at one instruction are a group, and each group is a collective of
//! its own: it executes once all lanes of its mask that have not exited are there. So tiles of 16 or 8 lanes and labelled partitions
//! proceed independently. As the PTX ISA has it, a lane must be in its own mask. The lanes that it names must name the same mask, so
//! two masks at one instruction are equal or disjoint.

use super::{
    step::{Next, Step},
    unit::Unit,
    warp::Warp,
    warp_splits::{Wait, WarpSplit},
};
use crate::{
    check::FindingKind,
    isa::{Atomic, Op, Operand, Shuffle, Vote},
};

/// The lanes that name the same member mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    members: u32,
    lanes: u32,
}

impl Unit<'_> {
    /// The member mask that each lane names: the instruction's last operand.
    fn members<'w>(&'w self, warp: &'w Warp, operands: &[Operand]) -> &'w [u32; 32] {
        let mask = operands.last().copied().unwrap_or(Operand::NONE);
        warp.registers.word(&self.launched.constants, mask)
    }

    /// A warp-synchronous instruction executes once all lanes of its member mask are there.
    pub(super) fn warp_collective(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        let members = self.members(warp, step.operands);
        let first = members[step.mask.trailing_zeros() as usize & 31];
        if (0..32).any(|lane| step.mask >> lane & 1 == 1 && members[lane] != first) {
            let members = *members;
            return self.grouped_collective(warp, step, &members);
        }
        self.check_membership(warp, step.pc, Group { members: first, lanes: step.mask });
        if first & warp.splits.live & !step.mask != 0 {
            // Lanes that the guard switches off do not wait.
            warp.splits.split_off(step.mask, step.pc + 1);
            return Next::Again(Wait::Lanes { mask: first, active: step.mask });
        }
        self.collective(warp, step);
        Next::On
    }

    /// The lanes that execute an instruction together name several member masks. Complete groups execute and go on; each of the others
    /// becomes a split that waits.
    fn grouped_collective(&mut self, warp: &mut Warp, step: Step<'_>, members: &[u32; 32]) -> Next {
        let mut waiting = Vec::new();
        let mut rest = step.mask;
        while rest != 0 {
            let named = members[rest.trailing_zeros() as usize];
            let same = |lane: &usize| rest >> lane & 1 == 1 && members[*lane] == named;
            let lanes = (0..32).filter(same).fold(0u32, |all, lane| all | 1 << lane);
            rest &= !lanes;
            let group = Group { members: named, lanes };
            self.check_membership(warp, step.pc, group);
            let elsewhere = named & step.mask & !lanes;
            if elsewhere != 0 {
                let other = members[elsewhere.trailing_zeros() as usize];
                self.report(warp, FindingKind::WarpSyncMismatch, step.pc, lanes.trailing_zeros(), None, || {
                    format!(
                        "lanes {lanes:#010x} name the member mask {named:#010x}, but lanes {elsewhere:#010x} of it name \
                         {other:#010x} at the same instruction"
                    )
                });
            }
            // Lanes that have just executed it with another mask will not come again.
            if named & warp.splits.live & !step.mask == 0 {
                self.collective(warp, Step { mask: lanes, ..step });
            } else {
                waiting.push((lanes, Wait::Lanes { mask: named, active: lanes }));
            }
        }
        let Some((first, others)) = waiting.split_first() else { return Next::On };
        let all = waiting.iter().fold(0, |all, group| all | group.0);
        warp.splits.split_off(all, step.pc + 1);
        for &(lanes, wait) in others {
            warp.splits.part(lanes, step.pc, wait);
        }
        Next::Again(first.1)
    }

    /// Reports lanes whose own member mask does not include them.
    fn check_membership(&mut self, warp: &Warp, pc: u32, group: Group) {
        let Group { members, lanes } = group;
        if lanes & !members != 0 {
            let lane = (lanes & !members).trailing_zeros();
            self.report(warp, FindingKind::WarpSyncMismatch, pc, lane, None, || {
                format!("runs a warp-synchronous instruction whose member mask {members:#010x} does not include it")
            });
        }
    }

    /// Lets lanes go on that waited for each other. Returns whether any did.
    pub(super) fn release_collectives(&mut self, warp: &mut Warp) -> bool {
        let waiting = |split: &WarpSplit| matches!(split.wait, Wait::Lanes { .. });
        if !warp.splits.all.iter().any(waiting) {
            return false;
        }
        for place in 0..warp.splits.all.len() {
            let WarpSplit { pc, wait: Wait::Lanes { mask, .. }, .. } = warp.splits.all[place] else {
                continue;
            };
            let here = self.with(warp, pc, mask);
            if mask & warp.splits.live & !here == 0 {
                self.release_group(warp, pc, mask, here);
                return true;
            }
        }
        // Lanes at a reconvergence point may be the ones that are waited for.
        if !warp.splits.all.iter().all(waiting) {
            return false;
        }
        warp.splits.break_reconvergence() || self.release_mismatched_lanes(warp)
    }

    /// Whether two instructions are one place for lanes to meet. `bar.warp.sync` may be at several places; everything else must be the
    /// same instruction.
    fn is_same_place(&self, a: u32, b: u32) -> bool {
        let barrier = |pc: u32| self.launched.program.instructions[pc as usize].op == Op::WarpBarrier;
        a == b || barrier(a) && barrier(b)
    }

    /// The lanes that wait at an instruction with a member mask.
    fn with(&self, warp: &Warp, pc: u32, mask: u32) -> u32 {
        let lanes = |split: &WarpSplit| match split.wait {
            Wait::Lanes { mask: theirs, active } if theirs == mask && self.is_same_place(split.pc, pc) => {
                active
            }
            _ => 0,
        };
        warp.splits.all.iter().map(lanes).fold(0, |all, lanes| all | lanes)
    }

    /// Executes the collective of lanes that waited for each other, and lets them go on.
    fn release_group(&mut self, warp: &mut Warp, pc: u32, mask: u32, here: u32) {
        let program = self.launched.program;
        let instruction = &program.instructions[pc as usize];
        let operands = program.operands_of(instruction);
        self.collective(warp, Step { instruction, operands, pc, mask: here });
        for place in 0..warp.splits.all.len() {
            let WarpSplit { pc: at, wait, .. } = warp.splits.all[place];
            if matches!(wait, Wait::Lanes { mask: theirs, .. } if theirs == mask)
                && self.is_same_place(at, pc)
            {
                warp.splits.suspend(place, at + 1, Wait::Nothing);
            }
        }
        warp.splits.merge();
    }

    /// All lanes of a warp wait for lanes that wait elsewhere. Reports it for the first of them, and lets these go on without the others,
    /// so that the rest of the kernel is checked too.
    fn release_mismatched_lanes(&mut self, warp: &mut Warp) -> bool {
        let Some(&WarpSplit { pc, wait: Wait::Lanes { mask, .. }, .. }) = warp.splits.all.first() else {
            return false;
        };
        let here = self.with(warp, pc, mask);
        self.report(warp, FindingKind::WarpSyncMismatch, pc, here.trailing_zeros(), None, || {
            let missing = mask & warp.splits.live & !here;
            let with_another_mask = warp.splits.all.iter().filter(|split| split.pc == pc);
            let other = missing & with_another_mask.fold(0, |all, split| all | split.mask);
            let at = match other {
                0 => "at another instruction".to_owned(),
                _ if other == missing => "there with another member mask".to_owned(),
                _ => format!("at another instruction, or there with another member mask (lanes {other:#010x})"),
            };
            format!("lanes {here:#010x} wait for lanes {missing:#010x} of their member mask {mask:#010x}, which wait {at}")
        });
        self.release_group(warp, pc, mask, here);
        true
    }

    /// What lanes of a member mask wait for, for a deadlock: the lanes of the mask that have not come.
    pub(super) fn describe_missing_lanes(&self, warp: &Warp, pc: u32, mask: u32) -> String {
        let missing = mask & warp.splits.live & !self.with(warp, pc, mask);
        let barrier = warp.splits.all.iter().filter(|split| matches!(split.wait, Wait::Barrier(_)));
        let there = missing & barrier.fold(0, |all, split| all | split.mask);
        let but =
            if there == 0 { String::new() } else { format!(", of which {there:#010x} wait at a barrier") };
        format!("for lanes {missing:#010x} of its warp{but}")
    }

    fn collective(&mut self, warp: &mut Warp, step: Step<'_>) {
        let operands = step.operands;
        let constants = &self.launched.constants;
        let registers = &mut warp.registers;
        match step.instruction.op {
            Op::WarpBarrier => {
                let now = self.clocks.advance();
                warp.synchronise_lanes(step.mask, now);
                self.update_floor(warp);
            }
            Op::Shuffle(mode) => {
                let source = *registers.word(constants, operands[2]);
                let (by, clamp) =
                    (*registers.word(constants, operands[3]), *registers.word(constants, operands[4]));
                let mut inside = 0;
                let mut out = [0; 32];
                for (lane, out) in out.iter_mut().enumerate() {
                    let (from, valid) = shuffle_source(mode, lane as u32, by[lane], clamp[lane]);
                    inside |= u32::from(valid) << lane;
                    *out = source[from as usize];
                }
                if !operands[0].is_none() {
                    registers.set_word(operands[0], &out, step.mask);
                }
                registers.set_predicate(operands[1], inside, step.mask);
                self.check_shuffle(warp, step, mode, &by, &clamp);
            }
            Op::Vote(vote) => {
                let holds = registers.predicate(operands[1]) & step.mask;
                let answer = match vote {
                    Vote::All => holds == step.mask,
                    Vote::Any => holds != 0,
                    Vote::Uniform => holds == step.mask || holds == 0,
                    Vote::Ballot => return registers.set_word(operands[0], &[holds; 32], step.mask),
                };
                registers.set_predicate(operands[0], if answer { u32::MAX } else { 0 }, step.mask);
            }
            Op::MatchAny { wide } | Op::MatchAll { wide } => {
                let value = |lane: usize| {
                    if wide {
                        registers.long(constants, operands[2])[lane]
                    } else {
                        u64::from(registers.word(constants, operands[2])[lane])
                    }
                };
                let same = |lane: usize| {
                    (0..32)
                        .filter(|&other| step.mask >> other & 1 == 1 && value(other) == value(lane))
                        .fold(0, |all, other| all | 1 << other)
                };
                let all: [u32; 32] = std::array::from_fn(same);
                if matches!(step.instruction.op, Op::MatchAny { .. }) {
                    return registers.set_word(operands[0], &all, step.mask);
                }
                let agree = all[step.mask.trailing_zeros() as usize & 31] == step.mask;
                if !operands[0].is_none() {
                    registers.set_word(operands[0], &[if agree { step.mask } else { 0 }; 32], step.mask);
                }
                registers.set_predicate(operands[1], if agree { u32::MAX } else { 0 }, step.mask);
            }
            Op::Elect => {
                let leader = step.mask.trailing_zeros();
                if !operands[0].is_none() {
                    registers.set_word(operands[0], &[leader; 32], step.mask);
                }
                registers.set_predicate(operands[1], 1 << leader, step.mask);
            }
            Op::ReduceWarp { op, signed } => {
                let values = registers.word(constants, operands[1]);
                let lanes = (0..32).filter(|lane| step.mask >> lane & 1 == 1).map(|lane| values[lane]);
                let combine = |a: u32, b: u32| match op {
                    Atomic::Add => a.wrapping_add(b),
                    Atomic::Min if signed => (a as i32).min(b as i32) as u32,
                    Atomic::Max if signed => (a as i32).max(b as i32) as u32,
                    Atomic::Min => a.min(b),
                    Atomic::Max => a.max(b),
                    Atomic::And => a & b,
                    Atomic::Or => a | b,
                    _ => a ^ b,
                };
                let result = lanes.reduce(combine).unwrap_or(0);
                registers.set_word(operands[0], &[result; 32], step.mask);
            }
            _ => {}
        }
    }

    /// Reports lanes that shuffle in the undefined value of a lane that does not take part.
    fn check_shuffle(
        &mut self,
        warp: &Warp,
        step: Step<'_>,
        mode: Shuffle,
        by: &[u32; 32],
        clamp: &[u32; 32],
    ) {
        if step.mask == u32::MAX {
            return;
        }
        for lane in (0..32u32).filter(|lane| step.mask >> lane & 1 == 1) {
            let (from, valid) = shuffle_source(mode, lane, by[lane as usize], clamp[lane as usize]);
            if valid && step.mask >> from & 1 == 0 {
                self.report(warp, FindingKind::WarpSyncMismatch, step.pc, lane, None, || {
                    format!("shuffles in the value of lane {from}, which does not execute the shuffle")
                });
            }
        }
    }
}

/// The source lane of a shuffle, and whether it is within the segment; if not, the source is the lane itself.
#[inline(always)]
fn shuffle_source(mode: Shuffle, lane: u32, by: u32, clamp: u32) -> (u32, bool) {
    let by = by & 0x1f;
    let (limit, segment) = (clamp & 0x1f, clamp >> 8 & 0x1f);
    let highest = lane & segment | limit & !segment;
    let lowest = lane & segment;
    let (from, valid) = match mode {
        Shuffle::Up => (lane.wrapping_sub(by), lane as i32 - by as i32 >= highest as i32),
        Shuffle::Down => (lane + by, lane + by <= highest),
        Shuffle::Butterfly => (lane ^ by, (lane ^ by) <= highest),
        Shuffle::Index => {
            let from = lowest | by & !segment;
            (from, from <= highest)
        }
    };
    if valid { (from & 31, true) } else { (lane, false) }
}
