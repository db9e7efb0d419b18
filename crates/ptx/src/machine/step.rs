//! One instruction after the other.

use std::sync::atomic::Ordering;

use super::{
    alu, carry,
    comparison::{self, Comparison},
    fragments::Wait,
    unit::{Geometry, Launched, SLICE, TIMED_SLICE, TURN_CLOCKS, Unit},
    warp::Warp,
};
use crate::{
    check::FindingKind,
    isa::{Fence, Instruction, Op, Operand, Special},
};

/// What an instruction leaves its fragment to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next instruction.
    On,
    /// Wait at the same instruction, which runs again.
    Again(Wait),
    /// Wait behind the instruction.
    Behind(Wait),
}

/// An instruction with its operands and the lanes that run it.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub instruction: &'a Instruction,
    pub operands: &'a [Operand],
    pub pc: u32,
    pub mask: u32,
}

impl Unit<'_> {
    /// Runs a fragment until it waits, joins others, ends, or has had its turn. Gives whether it is still in its place.
    pub(super) fn run_fragment(&mut self, warp: &mut Warp, place: usize) -> bool {
        let program = self.launched.program;
        let Launched { wide, births, timed, .. } = *self.launched;
        let mut pc = warp.fragments.all[place].pc;
        let mut mask = warp.fragments.all[place].mask;
        let mut stop = warp.fragments.stop(place);
        let slice = if timed { TIMED_SLICE } else { SLICE };
        let mut left = slice;
        // One whose time has jumped lets those go first that are behind it: who comes late to a unit would hold it for them.
        let turn_ends = warp.base() + TURN_CLOCKS;
        let still_there = loop {
            if pc == stop {
                if !warp.fragments.arrive(place) {
                    break false;
                }
                mask = warp.fragments.all[place].mask;
                stop = warp.fragments.stop(place);
                continue;
            }
            if left == 0 || timed && warp.base() > turn_ends {
                warp.fragments.all[place].pc = pc;
                break true;
            }
            left -= 1;
            let instruction = &program.instructions[pc as usize];
            let guard = instruction.guard;
            let active = if guard.is_none() { mask } else { mask & warp.registers.predicate(guard) };
            self.counters.instructions[instruction.class as usize] += 1;
            // Every lane looks at a branch, whether or not it takes it.
            let lanes = if matches!(instruction.op, Op::Branch { .. }) { mask } else { active };
            self.counters.thread_instructions += u64::from(lanes.count_ones());
            let first = instruction.first as usize;
            let end = first + instruction.results as usize + instruction.operands as usize;
            let operands = &program.operands[first..end];
            if timed {
                self.time_arithmetic(warp, instruction, operands, pc);
            }
            if active == 0 {
                // A branch that no lane takes is one nevertheless.
                self.counters.branches += u64::from(matches!(instruction.op, Op::Branch { .. }));
                pc += 1;
                continue;
            }
            if instruction.touches_products && !timed {
                self.product_touched(warp, instruction, operands, pc, active);
            }
            match instruction.op {
                Op::Alu(operation) => {
                    self.counters.thread_flops += operation.flops() * u64::from(active.count_ones());
                    if births {
                        let step = Step { instruction, operands, pc, mask: active };
                        self.run_watched(warp, step, operation);
                    } else {
                        alu::run(
                            wide,
                            operation,
                            operands,
                            &mut warp.registers,
                            &self.launched.constants,
                            active,
                        );
                    }
                    pc += 1;
                }
                Op::SetPredicate { compare, kind, combine, flush } => {
                    let constants = &self.launched.constants;
                    let registers = &mut warp.registers;
                    let comparison = Comparison { compare, kind, flush, a: operands[2], b: operands[3] };
                    let holds = comparison::compare(wide, comparison, registers, constants);
                    let other = operands.get(4).map_or(0, |&other| registers.predicate(other));
                    registers.set_predicate(operands[0], comparison::combine(combine, holds, other), active);
                    registers.set_predicate(operands[1], comparison::combine(combine, !holds, other), active);
                    pc += 1;
                }
                Op::Predicate(logic) => {
                    let a = warp.registers.predicate(operands[1]);
                    let b = operands.get(2).map_or(0, |&b| warp.registers.predicate(b));
                    warp.registers.set_predicate(operands[0], comparison::combine(logic, a, b), active);
                    pc += 1;
                }
                Op::Branch { target } => {
                    let conditional = !guard.is_none();
                    self.counters.branches += u64::from(conditional);
                    if active == mask || target == pc + 1 {
                        pc = target;
                        continue;
                    }
                    self.counters.divergent_branches += 1;
                    let meet = program.reconvergence[pc as usize];
                    let parts = [(mask & !active, pc + 1), (active, target)];
                    warp.fragments.part(place, &parts, meet);
                    (pc, mask) = (warp.fragments.all[place].pc, warp.fragments.all[place].mask);
                    stop = warp.fragments.stop(place);
                }
                Op::BranchIndexed { table } => {
                    self.counters.branches += 1;
                    let parts = self.indexed_parts(warp, operands[0], table, active, mask, pc);
                    if let [(_, target)] = parts[..] {
                        pc = target;
                        continue;
                    }
                    self.counters.divergent_branches += 1;
                    let meet = program.reconvergence[pc as usize];
                    warp.fragments.part(place, &parts, meet);
                    (pc, mask) = (warp.fragments.all[place].pc, warp.fragments.all[place].mask);
                    stop = warp.fragments.stop(place);
                }
                Op::Exit => {
                    if !warp.fragments.exit(place, active) {
                        break false;
                    }
                    mask = warp.fragments.all[place].mask;
                    stop = warp.fragments.stop(place);
                    pc += 1;
                }
                Op::Trap => {
                    let lane = active.trailing_zeros();
                    self.report(warp, FindingKind::Trap, pc, lane, None, || {
                        "the kernel ran into a trap".to_owned()
                    });
                    self.ended = true;
                    break true;
                }
                _ => {
                    let step = Step { instruction, operands, pc, mask: active };
                    let next = if timed { self.execute_timed(warp, step) } else { self.execute(warp, step) };
                    match next {
                        Next::On => pc += 1,
                        Next::Again(wait) => {
                            warp.fragments.all[place].pc = pc;
                            warp.fragments.all[place].wait = wait;
                            break true;
                        }
                        Next::Behind(wait) => {
                            warp.fragments.all[place].pc = pc + 1;
                            warp.fragments.all[place].wait = wait;
                            break true;
                        }
                    }
                }
            }
        };
        self.spend(warp, u64::from(slice - left), pc);
        still_there
    }

    /// Takes instructions off what the launch may run.
    fn spend(&mut self, warp: &Warp, steps: u64, pc: u32) {
        let spent = self
            .launched
            .steps_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(steps)));
        if spent.is_ok_and(|left| left <= steps) && !self.ended {
            self.ended = true;
            self.report(warp, FindingKind::StepLimit, pc, 0, None, || {
                "the launch did not end within the limit on instructions".to_owned()
            });
        }
    }

    fn indexed_parts(
        &mut self,
        warp: &Warp,
        index: Operand,
        table: u32,
        active: u32,
        mask: u32,
        pc: u32,
    ) -> Vec<(u32, u32)> {
        let targets = &self.launched.program.tables[table as usize];
        let index = *warp.registers.word(&self.launched.constants, index);
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for (lane, &index) in index.iter().enumerate() {
            if mask >> lane & 1 == 0 {
                continue;
            }
            let target = match targets.get(index as usize) {
                Some(&target) if active >> lane & 1 == 1 => target,
                _ => pc + 1,
            };
            match parts.iter_mut().find(|part| part.1 == target) {
                Some(part) => part.0 |= 1 << lane,
                None => parts.push((1 << lane, target)),
            }
        }
        parts
    }

    /// Everything that is neither arithmetic nor a branch.
    pub(super) fn execute(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        match step.instruction.op {
            Op::Load(access) => self.load(warp, step, access),
            Op::Store(access) => self.store(warp, step, access),
            Op::Atomic { .. } => self.atomic(warp, step),
            Op::LoadMatrix { count, transposed, offset } => {
                self.load_matrix(warp, step, count, transposed, offset)
            }
            Op::StoreMatrix { count, transposed, offset } => {
                self.store_matrix(warp, step, count, transposed, offset)
            }
            Op::Mma(mma) => self.mma(warp, step, mma),
            Op::Wgmma(wgmma) => self.wgmma(warp, step, wgmma),
            Op::WgmmaFence => self.wgmma_fence(warp),
            Op::WgmmaCommit => self.wgmma_commit(warp),
            Op::WgmmaWait { pending } => self.wgmma_wait(warp, pending),
            Op::Special(special) => self.special(warp, step, special),
            Op::Carry(carry) => {
                carry::run(carry, step.operands, &mut warp.registers, &self.launched.constants, step.mask);
            }
            Op::SetValue { compare, kind, combine, flush, float } => {
                let (constants, registers) = (&self.launched.constants, &mut warp.registers);
                let operands = step.operands;
                let comparison = Comparison { compare, kind, flush, a: operands[1], b: operands[2] };
                let holds = comparison::compare(self.launched.wide, comparison, registers, constants);
                let other = operands.get(3).map_or(0, |&other| registers.predicate(other));
                let holds = comparison::combine(combine, holds, other);
                let yes = if float { 1.0f32.to_bits() } else { u32::MAX };
                let out = std::array::from_fn(|lane| if holds >> lane & 1 == 1 { yes } else { 0 });
                registers.set_word(operands[0], &out, step.mask);
            }
            Op::TestNumber { test, wide } => self.test_number(warp, step, test, wide),
            Op::ToGeneric(memory) => self.make_generic(warp, step, memory),
            Op::FromGeneric(memory) => self.make_specific(warp, step, memory),
            Op::IsSpace(memory) => self.is_space(warp, step, memory),
            Op::MapShared { generic } => self.map_shared(warp, step, generic),
            Op::ClusterRankOf { generic } => self.cluster_rank_of(warp, step, generic),
            Op::Shuffle(_)
            | Op::Vote(_)
            | Op::MatchAny { .. }
            | Op::MatchAll { .. }
            | Op::Elect
            | Op::ReduceWarp { .. }
            | Op::WarpBarrier => return self.together(warp, step),
            Op::ActiveMask => {
                warp.registers.set_word(step.operands[0], &[step.mask; 32], step.mask);
            }
            Op::Barrier { .. } => return self.barrier(warp, step),
            Op::ClusterArrive { release } => self.cluster_arrive(warp, step, release),
            Op::ClusterWait => return self.cluster_wait(warp, step),
            Op::Fence(fence) => match fence {
                Fence::AsyncProxy => {
                    warp.proxy_fence = self.clocks.now();
                    self.clocks.advance();
                }
                Fence::Memory { .. } | Fence::MbarrierInit => {}
            },
            Op::Mbarrier { .. } => return self.mbarrier(warp, step),
            Op::AsyncCopy { bytes, to, from } => self.async_copy(warp, step, bytes as usize, to, from),
            Op::AsyncCommit => warp.copies.commit(),
            Op::AsyncWait { pending } => self.async_wait(warp, pending as usize),
            Op::AsyncArrive { increment, offset } => self.async_arrive(warp, step, increment, offset),
            Op::BulkCopy { direction, multicast } => self.bulk_copy(warp, step, direction, multicast),
            Op::TensorCopy(copy) => self.tensor_copy(warp, step, copy),
            Op::BulkCommit => warp.copies.commit_bulk(),
            Op::BulkWait { pending, .. } => self.bulk_wait(warp, pending as usize),
            Op::Prefetch | Op::SetRegisters { .. } | Op::Nothing => {}
            Op::Alu(_)
            | Op::SetPredicate { .. }
            | Op::Predicate(_)
            | Op::Branch { .. }
            | Op::BranchIndexed { .. }
            | Op::Exit
            | Op::Trap => {}
        }
        Next::On
    }

    fn test_number(&mut self, warp: &mut Warp, step: Step<'_>, test: u8, wide: bool) {
        let mut holds = 0u32;
        for lane in 0..32 {
            use std::num::FpCategory as C;
            let category = if wide {
                f64::from_bits(warp.registers.long(&self.launched.constants, step.operands[1])[lane])
                    .classify()
            } else {
                f32::from_bits(warp.registers.word(&self.launched.constants, step.operands[1])[lane])
                    .classify()
            };
            let found = match test {
                0 => !matches!(category, C::Nan | C::Infinite),
                1 => category == C::Infinite,
                2 => category != C::Nan,
                3 => category == C::Nan,
                4 => category == C::Normal,
                _ => category == C::Subnormal,
            };
            holds |= u32::from(found) << lane;
        }
        warp.registers.set_predicate(step.operands[0], holds, step.mask);
    }

    /// What a special register holds in each lane.
    fn special(&mut self, warp: &mut Warp, step: Step<'_>, special: Special) {
        let geometry = &self.launched.geometry;
        let block = &self.blocks[warp.block];
        let d = step.operands[0];
        let axis = |extents: [u32; 3], axis: u8| extents[axis as usize];
        let rank = warp.block as u64;
        let dynamic = geometry.dynamic_shared as u32;
        let all = dynamic + self.launched.program.shared_bytes as u32;
        let value = match special {
            Special::Tid(axis) => {
                let first = warp.number as u64 * 32;
                let tid = std::array::from_fn(|lane| {
                    Geometry::split(first + lane as u64, geometry.block)[axis as usize]
                });
                return warp.registers.set_word(d, &tid, step.mask);
            }
            Special::LaneId => {
                let lanes = std::array::from_fn(|lane| lane as u32);
                return warp.registers.set_word(d, &lanes, step.mask);
            }
            Special::LaneMaskEq
            | Special::LaneMaskLe
            | Special::LaneMaskLt
            | Special::LaneMaskGe
            | Special::LaneMaskGt => {
                let masks = std::array::from_fn(|lane| {
                    let own = 1u32 << lane;
                    let below = own - 1;
                    match special {
                        Special::LaneMaskEq => own,
                        Special::LaneMaskLe => below | own,
                        Special::LaneMaskLt => below,
                        Special::LaneMaskGe => !below,
                        _ => !(below | own),
                    }
                });
                return warp.registers.set_word(d, &masks, step.mask);
            }
            Special::GridId | Special::Clock64 | Special::GlobalTimer => {
                let value = if special == Special::GridId { 1 } else { self.counters.warp_instructions() };
                return warp.registers.set_long(d, &[value; 32], step.mask);
            }
            Special::Ntid(a) => axis(geometry.block, a),
            Special::Ctaid(a) => axis(block.at, a),
            Special::Nctaid(a) => axis(geometry.grid, a),
            Special::ClusterCtaid(a) => axis(Geometry::split(rank, geometry.cluster), a),
            Special::ClusterNctaid(a) => axis(geometry.cluster, a),
            Special::Clusterid(a) => axis(Geometry::split(self.number, geometry.clusters()), a),
            Special::Nclusterid(a) => axis(geometry.clusters(), a),
            Special::ClusterCtarank => rank as u32,
            Special::ClusterNctarank => geometry.cluster_blocks() as u32,
            Special::WarpId => warp.number as u32,
            Special::NwarpId => geometry.warps() as u32,
            Special::SmId => (block.number % u64::from(self.launched.multiprocessors.max(1))) as u32,
            Special::NsmId => self.launched.multiprocessors,
            Special::Clock => self.counters.warp_instructions() as u32,
            Special::ClockHigh => (self.counters.warp_instructions() >> 32) as u32,
            Special::DynamicSharedBytes => dynamic,
            Special::TotalSharedBytes | Special::AggregateSharedBytes => all,
        };
        warp.registers.set_word(d, &[value; 32], step.mask);
    }
}
