//! Warp-synchronous instructions: shuffles, votes, matches, reductions.

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

impl Unit<'_> {
    /// The member mask of an instruction: its last operand.
    fn members(&self, warp: &Warp, operands: &[Operand], active: u32) -> u32 {
        let mask = operands.last().copied().unwrap_or(Operand::NONE);
        warp.registers.word(&self.launched.constants, mask)[active.trailing_zeros() as usize & 31]
    }

    /// A warp-synchronous instruction executes once all lanes of its member mask are there.
    pub(super) fn warp_collective(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        let members = self.members(warp, step.operands, step.mask);
        if step.mask & !members != 0 {
            let lane = (step.mask & !members).trailing_zeros();
            self.report(warp, FindingKind::WarpSyncMismatch, step.pc, lane, None, || {
                format!("runs a warp-synchronous instruction whose member mask {members:#010x} does not include it")
            });
        }
        if members & warp.splits.live & !step.mask != 0 {
            return Next::Again(Wait::Lanes { mask: members, active: step.mask });
        }
        self.collective(warp, step);
        Next::On
    }

    /// Lets lanes go on that waited for each other. Returns whether any did.
    pub(super) fn release_collectives(&mut self, warp: &mut Warp) -> bool {
        let waiting = |split: &WarpSplit| matches!(split.wait, Wait::Lanes { .. });
        if !warp.splits.all.iter().any(waiting) {
            return false;
        }
        let program = self.launched.program;
        for place in 0..warp.splits.all.len() {
            let WarpSplit { pc, wait: Wait::Lanes { mask, .. }, .. } = warp.splits.all[place] else {
                continue;
            };
            let instruction = &program.instructions[pc as usize];
            // `bar.warp.sync` may be at several places; everything else must be the same instruction.
            let anywhere = instruction.op == Op::WarpBarrier;
            let with_us = |split: &WarpSplit| match split.wait {
                Wait::Lanes { mask: theirs, active } if theirs == mask => {
                    let same = split.pc == pc
                        || anywhere && program.instructions[split.pc as usize].op == Op::WarpBarrier;
                    if same { active } else { 0 }
                }
                _ => 0,
            };
            let here = warp.splits.all.iter().map(with_us).fold(0, |all, lanes| all | lanes);
            if mask & warp.splits.live & !here != 0 {
                continue;
            }
            let operands = program.operands_of(instruction);
            self.collective(warp, Step { instruction, operands, pc, mask: here });
            for split in &mut warp.splits.all {
                if with_us(split) != 0 {
                    split.pc += 1;
                    split.wait = Wait::Nothing;
                }
            }
            return true;
        }
        // Lanes at a reconvergence point may be the ones that are waited for.
        if warp.splits.all.iter().all(waiting) && warp.splits.break_reconvergence() {
            return true;
        }
        self.report_mismatched_lanes(warp)
    }

    /// Reports lanes that wait for lanes of the same warp which wait at another instruction.
    fn report_mismatched_lanes(&mut self, warp: &Warp) -> bool {
        let mut places = warp.splits.all.iter().filter_map(|split| match split.wait {
            Wait::Lanes { mask, .. } => Some((split.pc, mask, split.mask)),
            _ => None,
        });
        let (Some(first), Some(_)) = (places.next(), places.next()) else { return false };
        if warp.splits.all.iter().any(|split| !matches!(split.wait, Wait::Lanes { .. })) {
            return false;
        }
        let (pc, mask, lanes) = first;
        self.report(warp, FindingKind::WarpSyncMismatch, pc, lanes.trailing_zeros(), None, || {
            format!("lanes {lanes:#010x} wait for lanes {mask:#010x}, which wait at another instruction")
        });
        false
    }

    fn collective(&mut self, warp: &mut Warp, step: Step<'_>) {
        let operands = step.operands;
        let constants = &self.launched.constants;
        let registers = &mut warp.registers;
        match step.instruction.op {
            Op::WarpBarrier => {
                warp.last_sync = self.clocks.advance();
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
