//! The interpreter loop.

use std::sync::atomic::Ordering;

use super::{
    alu,
    calls::Transfer,
    carry,
    comparison::{self, Comparison},
    unit::{Geometry, Launched, SLICE, TIMED_SLICE, TURN_CLOCKS, Unit},
    warp::Warp,
    warp_splits::{Wait, WarpSplit},
};
use crate::{
    check::FindingKind,
    isa::{Alu, Fence, Instruction, Op, Operand, Special},
};

/// How a warp split goes on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// With the next instruction.
    On,
    /// It waits, then executes the same instruction again.
    Again(Wait),
    /// It waits, then goes on with the next instruction.
    Behind(Wait),
}

/// An instruction with its operands and the lanes that execute it.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub instruction: &'a Instruction,
    pub operands: &'a [Operand],
    pub pc: u32,
    pub mask: u32,
}

impl Unit<'_> {
    /// Runs a warp split until it waits, reconverges with others, ends, or has used up its turn. Returns whether it is still in its
    /// place.
    pub(super) fn run_split(&mut self, warp: &mut Warp, place: usize) -> bool {
        let program = self.launched.program;
        let timed = self.launched.timed;
        let by_line = self.by_instruction.is_some();
        let WarpSplit { mut pc, mut mask, .. } = warp.splits.all[place];
        let mut stop = warp.splits.reconvergence_pc(place);
        let slice = if timed { TIMED_SLICE } else { SLICE };
        let mut left = slice;
        // A warp whose time has jumped ahead yields to those behind it, which would otherwise find the units taken by it.
        let turn_ends = warp.base() + TURN_CLOCKS;
        let still_there = loop {
            if pc == stop {
                if !warp.splits.reconverge(place) {
                    break false;
                }
                mask = warp.splits.all[place].mask;
                stop = warp.splits.reconvergence_pc(place);
                continue;
            }
            if left == 0 || timed && warp.base() > turn_ends {
                warp.splits.all[place].pc = pc;
                break true;
            }
            left -= 1;
            if by_line {
                self.attribute(pc);
            }
            let instruction = &program.instructions[pc as usize];
            let guard = instruction.guard;
            let active = if guard.is_none() { mask } else { mask & warp.registers.predicate(guard) };
            self.count(instruction, mask, active);
            let operands = program.operands_of(instruction);
            if timed {
                self.time_arithmetic(warp, Step { instruction, operands, pc, mask: active });
            }
            let step = Step { instruction, operands, pc, mask: active };
            if instruction.watched && !timed {
                self.watch(warp, step, mask);
            }
            if active == 0 {
                pc += 1;
                continue;
            }
            match instruction.op {
                Op::Alu(operation) => {
                    self.arithmetic(warp, step, operation);
                    pc += 1;
                }
                Op::SetPredicate { .. } | Op::Predicate(_) => {
                    self.predicate(warp, step);
                    pc += 1;
                }
                Op::Branch { target } => {
                    self.counters.branches += u64::from(!guard.is_none());
                    if active == mask || target == pc + 1 {
                        pc = target;
                        continue;
                    }
                    let paths = [(mask & !active, pc + 1), (active, target)];
                    (pc, mask, stop) = self.diverge(warp, place, pc, &paths);
                }
                Op::BranchIndexed { table } => {
                    self.counters.branches += 1;
                    let paths = self.indexed_paths(warp, step, table, mask);
                    if let [(_, target)] = paths[..] {
                        pc = target;
                        continue;
                    }
                    (pc, mask, stop) = self.diverge(warp, place, pc, &paths);
                }
                Op::Exit => {
                    if !warp.splits.exit(place, active) {
                        break false;
                    }
                    mask = warp.splits.all[place].mask;
                    stop = warp.splits.reconvergence_pc(place);
                    pc += 1;
                }
                Op::Call { .. } | Op::Return => {
                    match self.transfer(warp, place, step) {
                        Transfer::There => {}
                        Transfer::Gone => break false,
                        Transfer::Ended => break true,
                    }
                    WarpSplit { pc, mask, .. } = warp.splits.all[place];
                    stop = warp.splits.reconvergence_pc(place);
                }
                Op::Trap => {
                    self.report(warp, FindingKind::Trap, pc, active.trailing_zeros(), None, || {
                        "the kernel executed trap".to_owned()
                    });
                    self.ended = true;
                    break true;
                }
                _ => {
                    let next = if timed { self.execute_timed(warp, step) } else { self.execute(warp, step) };
                    let (wait, at) = match next {
                        Next::On => {
                            pc += 1;
                            continue;
                        }
                        Next::Again(wait) => (wait, pc),
                        Next::Behind(wait) => (wait, pc + 1),
                    };
                    warp.splits.suspend(place, at, wait);
                    break true;
                }
            }
        };
        self.spend(warp, u64::from(slice - left), pc);
        still_there
    }

    /// Checks registers that are in flight, or may be undefined. `mask` are the lanes that reach the instruction.
    fn watch(&mut self, warp: &mut Warp, step: Step<'_>, mask: u32) {
        if step.instruction.uses_wgmma_registers && step.mask != 0 {
            self.check_wgmma_registers(warp, step);
        }
        if !warp.defined.is_empty() {
            self.track_undefined(warp, step, mask);
        }
    }

    /// Counts an instruction that lanes `mask` reach and `active` of them execute.
    #[inline(always)]
    fn count(&mut self, instruction: &Instruction, mask: u32, active: u32) {
        let is_branch = matches!(instruction.op, Op::Branch { .. });
        self.counters.instructions[instruction.class as usize] += 1;
        // Every lane executes a branch, whether or not it takes it.
        let executing = if is_branch { mask } else { active };
        self.counters.thread_instructions += u64::from(executing.count_ones());
        self.counters.branches += u64::from(is_branch && active == 0);
    }

    #[inline(always)]
    fn arithmetic(&mut self, warp: &mut Warp, step: Step<'_>, operation: Alu) {
        self.counters.thread_flops += operation.flops() * u64::from(step.mask.count_ones());
        if self.launched.nonfinite {
            self.run_checking_finite(warp, step, operation);
        } else {
            let Launched { wide, constants, .. } = self.launched;
            alu::run(*wide, operation, step.operands, &mut warp.registers, constants, step.mask);
        }
    }

    #[inline(always)]
    fn predicate(&mut self, warp: &mut Warp, step: Step<'_>) {
        let Launched { wide, constants, .. } = self.launched;
        let (operands, mask, registers) = (step.operands, step.mask, &mut warp.registers);
        match step.instruction.op {
            Op::SetPredicate { compare, kind, combine, flush } => {
                let comparison = Comparison { compare, kind, flush, a: operands[2], b: operands[3] };
                let holds = comparison::compare(*wide, comparison, registers, constants);
                let other = operands.get(4).map_or(0, |&other| registers.predicate(other));
                registers.set_predicate(operands[0], comparison::combine(combine, holds, other), mask);
                registers.set_predicate(operands[1], comparison::combine(combine, !holds, other), mask);
            }
            Op::Predicate(logic) => {
                let a = registers.predicate(operands[1]);
                let b = operands.get(2).map_or(0, |&b| registers.predicate(b));
                registers.set_predicate(operands[0], comparison::combine(logic, a, b), mask);
            }
            _ => {}
        }
    }

    /// A branch sends lanes to several places. Returns where the split goes on, with which lanes, and where these reconverge.
    fn diverge(&mut self, warp: &mut Warp, place: usize, pc: u32, paths: &[(u32, u32)]) -> (u32, u32, u32) {
        self.counters.divergent_branches += 1;
        warp.splits.diverge(place, paths, self.launched.program.reconvergence[pc as usize]);
        let WarpSplit { pc, mask, .. } = warp.splits.all[place];
        (pc, mask, warp.splits.reconvergence_pc(place))
    }

    /// Subtracts instructions from what the launch may still execute.
    fn spend(&mut self, warp: &Warp, steps: u64, pc: u32) {
        self.spent += steps;
        if let Some(progress) = &self.launched.progress {
            progress.add_instructions(steps);
        }
        let spent = self
            .launched
            .steps_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(steps)));
        if spent.is_ok_and(|left| left <= steps) && !self.ended {
            self.ended = true;
            self.report(warp, FindingKind::StepLimit, pc, 0, None, || {
                "the launch did not finish within its limit of warp instructions".to_owned()
            });
        }
    }

    /// The lanes of an indexed branch by their targets. Lanes that do not execute it, or have an index beyond the table, go on.
    fn indexed_paths(&self, warp: &Warp, step: Step<'_>, table: u32, mask: u32) -> Vec<(u32, u32)> {
        let targets = &self.launched.program.tables[table as usize];
        let index = *warp.registers.word(&self.launched.constants, step.operands[0]);
        let mut paths: Vec<(u32, u32)> = Vec::new();
        for (lane, &index) in index.iter().enumerate() {
            if mask >> lane & 1 == 0 {
                continue;
            }
            let target = match targets.get(index as usize) {
                Some(&target) if step.mask >> lane & 1 == 1 => target,
                _ => step.pc + 1,
            };
            match paths.iter_mut().find(|path| path.1 == target) {
                Some(path) => path.0 |= 1 << lane,
                None => paths.push((1 << lane, target)),
            }
        }
        paths
    }

    /// Executes whatever is not arithmetic, a predicate or a branch.
    pub(super) fn execute(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        match step.instruction.op {
            Op::Load(access) => {
                self.load(warp, step, access);
                if access.strong {
                    return self.polled(warp, step, access.offset);
                }
            }
            Op::Store(access) => self.store(warp, step, access),
            Op::Atomic { .. } => return self.atomic(warp, step),
            Op::LoadMatrix { count, transposed, offset } => {
                self.load_matrix(warp, step, count, transposed, offset)
            }
            Op::StoreMatrix { count, transposed, offset } => {
                self.store_matrix(warp, step, count, transposed, offset)
            }
            Op::TransposeMatrix => self.transpose_matrix(warp, step),
            Op::Mma(mma) => self.mma(warp, step, mma),
            Op::Texture(fetch) => self.fetch_texture(warp, step, fetch),
            Op::TextureQuery { query, surface } => self.query_texture(warp, step, query, surface),
            Op::LoadSurface(access) => self.load_surface(warp, step, access),
            Op::StoreSurface(access) => self.store_surface(warp, step, access),
            Op::ExactMma(mma) => self.exact_mma(warp, step, mma),
            Op::LoadFragment(access) => self.load_fragment(warp, step, access),
            Op::StoreFragment(access) => self.store_fragment(warp, step, access),
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
            | Op::WarpBarrier => return self.warp_collective(warp, step),
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
                Fence::Memory(scope) => self.fence(warp, scope),
                Fence::MbarrierInit => {}
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
            Op::System(call) => return self.system_call(warp, step, call),
            Op::FrameBase | Op::AllocateStack { .. } | Op::SaveStack | Op::RestoreStack => {
                self.stack(warp, step);
                if self.ended {
                    return Next::Again(Wait::Nothing);
                }
            }
            Op::Unsupported(number) => {
                self.failure = Some((self.blocks[warp.block].number, step.pc, number));
                self.ended = true;
                return Next::Again(Wait::Nothing);
            }
            Op::Prefetch | Op::SetRegisters { .. } | Op::Nothing => {}
            Op::Alu(_)
            | Op::SetPredicate { .. }
            | Op::Predicate(_)
            | Op::Branch { .. }
            | Op::BranchIndexed { .. }
            | Op::Exit
            | Op::Call { .. }
            | Op::Return
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

    /// Reads a special register.
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
                let value = if special == Special::GridId { 1 } else { self.executed() };
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
            Special::Clock => self.executed() as u32,
            Special::ClockHigh => (self.executed() >> 32) as u32,
            Special::Workspace { high: true } => (self.launched.workspace >> 32) as u32,
            Special::Workspace { high: false } => self.launched.workspace as u32,
            Special::DynamicSharedBytes => dynamic,
            Special::TotalSharedBytes | Special::AggregateSharedBytes => all,
        };
        warp.registers.set_word(d, &[value; 32], step.mask);
    }
}
