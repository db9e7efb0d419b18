//! Runs blocks in the order of a multiprocessor's time.

use super::{
    access::{AccessKind, WarpAccess},
    bulk_copies::BulkSource,
    step::{Next, Step},
    unit::{Launched, Unit},
    warp::Warp,
};
use crate::{
    counters::{Counters, CountersByInstruction},
    isa::{Mbarrier, Op},
    memory::LOCAL_WINDOW,
    timing::{Clock, Kind, WarpClock},
};

/// What the blocks of one multiprocessor did, and when.
pub(crate) struct TimedRun {
    pub clock: Option<Box<Clock>>,
    pub counters: Counters,
    /// When each cluster ended, in that order.
    pub ends: Vec<f64>,
    /// Whether all of them ended.
    pub finished: bool,
    /// The block, the program counter and the index of an instruction that is not supported, if one was reached.
    pub failure: Option<(u64, u32, u32)>,
    /// What every instruction did, if that was asked for.
    pub by_instruction: Option<Box<CountersByInstruction>>,
}

/// Runs clusters on a multiprocessor that holds `resident` of them at a time; when one ends, the next starts. After `budget` warp
/// instructions no more are started.
pub(crate) fn run_timed(
    launched: &Launched<'_>,
    clock: Clock,
    mut clusters: impl Iterator<Item = u64>,
    resident: usize,
    budget: u64,
) -> TimedRun {
    let schedulers = clock.rates.schedulers;
    let start_of_block = clock.rates.latencies.block * clock.mended.block_share();
    let mut clock = Some(Box::new(clock));
    let mut units: Vec<Unit<'_>> = Vec::new();
    for place in 0..resident.max(1) {
        let Some(cluster) = clusters.next() else { break };
        let mut unit = Unit::new(launched);
        unit.begin(cluster, 0.0, place * unit.warps.len() % schedulers, schedulers);
        units.push(unit);
    }
    let mut stuck: Vec<Vec<bool>> = units.iter().map(|unit| vec![false; unit.warps.len()]).collect();
    let (mut counters, mut ends, mut finished) = (Counters::default(), Vec::new(), true);
    let mut by_instruction: Option<Box<CountersByInstruction>> = None;
    let mut count = |unit: &mut Unit<'_>| {
        let (all, each) = unit.counted();
        counters.merge(&all);
        match (&mut by_instruction, each) {
            (Some(mine), Some(each)) => mine.merge(&each),
            (mine, each) => *mine = each,
        }
    };
    let mut spent = 0;
    while let Some((place, id)) = earliest(&units, &stuck) {
        let unit = &mut units[place];
        std::mem::swap(&mut unit.clock, &mut clock);
        let before = unit.executed();
        let moved = unit.turn(id);
        spent += unit.executed() - before;
        std::mem::swap(&mut unit.clock, &mut clock);
        if !moved {
            stuck[place][id] = true;
            continue;
        }
        stuck[place].fill(false);
        if unit.ended {
            finished = false;
            break;
        }
        if unit.warps.iter().any(|warp| warp.splits.live != 0) {
            continue;
        }
        let end = unit.warps.iter().map(Warp::now).fold(0.0, f64::max);
        unit.finish_copies();
        ends.push(end);
        let next = if spent < budget { clusters.next() } else { None };
        match next {
            Some(cluster) => {
                let first = place * unit.warps.len() % schedulers;
                unit.begin(cluster, end + start_of_block, first, schedulers);
            }
            None => {
                count(unit);
                units.swap_remove(place);
                stuck.swap_remove(place);
            }
        }
    }
    let failure = units.iter().find_map(|unit| unit.failure);
    units.iter_mut().for_each(&mut count);
    TimedRun { clock, counters, ends, finished: finished && units.is_empty(), failure, by_instruction }
}

/// The warp that is furthest behind, of those that can go on.
fn earliest(units: &[Unit<'_>], stuck: &[Vec<bool>]) -> Option<(usize, usize)> {
    let mut found = None;
    let mut least = f64::INFINITY;
    for (place, unit) in units.iter().enumerate() {
        for (id, warp) in unit.warps.iter().enumerate() {
            if warp.splits.live == 0 || stuck[place][id] {
                continue;
            }
            let base = warp.clock.as_ref().map_or(0.0, |clock| clock.base());
            if base < least {
                least = base;
                found = Some((place, id));
            }
        }
    }
    found
}

impl Unit<'_> {
    /// Starts a cluster at a time.
    fn begin(&mut self, cluster: u64, at: f64, first_scheduler: usize, schedulers: usize) {
        self.start(cluster);
        for warp in &mut self.warps {
            let scheduler = (first_scheduler + warp.id) % schedulers;
            let program = self.launched.program;
            let clock = WarpClock::new(program, scheduler, at);
            warp.clock = Some(Box::new(if self.launched.by_line { clock.traced(program) } else { clock }));
        }
    }

    /// Keeps time for an instruction whose cost is known before it executes.
    #[inline]
    pub(super) fn time_arithmetic(&mut self, warp: &mut Warp, step: Step<'_>) {
        let Step { instruction, operands, pc, mask } = step;
        let (Some(clock), Some(own)) = (&mut self.clock, &mut warp.clock) else { return };
        clock.mended.at(pc, mask, self.number);
        if clock.costs[pc as usize].kind != Kind::Deferred {
            clock.plain(own, pc, instruction.guard, operands, instruction.results as usize);
        }
    }

    /// Executes an instruction, and keeps time for what it did.
    pub(super) fn execute_timed(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        let waits = matches!(
            step.instruction.op,
            Op::Barrier { .. } | Op::ClusterArrive { .. } | Op::Mbarrier { op: Mbarrier::Wait { .. }, .. }
        );
        // What holds the whole warp; any other instruction waits when it starts.
        let holds = waits
            || matches!(
                step.instruction.op,
                Op::ClusterWait
                    | Op::Mbarrier { .. }
                    | Op::AsyncWait { .. }
                    | Op::AsyncArrive { .. }
                    | Op::WgmmaWait { .. }
                    | Op::BulkWait { .. }
            );
        if let Some(own) = &mut warp.clock {
            if holds {
                own.at(step.pc);
            }
            if waits {
                own.settle();
            }
        }
        let next = self.execute(warp, step);
        let (Some(clock), Some(own)) = (&mut self.clock, &mut warp.clock) else { return next };
        if matches!(next, Next::Again(_)) || clock.costs[step.pc as usize].kind != Kind::Deferred {
            return next;
        }
        let Step { instruction, operands, pc, .. } = step;
        let (guard, results) = (instruction.guard, instruction.results as usize);
        match instruction.op {
            Op::Load(_)
            | Op::Store(_)
            | Op::Atomic { .. }
            | Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. } => {
                clock.memory(own, pc, guard, operands, results);
            }
            Op::AsyncCopy { .. } => {
                let done = clock.memory(own, pc, guard, operands, results);
                own.copies.add(done);
            }
            Op::AsyncCommit => own.copies.close(),
            Op::AsyncWait { pending } => {
                if pending == 0 {
                    own.copies.close();
                }
                let done = own.copies.wait(pending as usize);
                own.settle();
                own.wait_until(done);
            }
            Op::AsyncArrive { .. } => {
                own.copies.close();
                let done = own.copies.wait(0);
                own.wait_until(done);
            }
            Op::Wgmma(wgmma) => {
                let depth = f64::from(wgmma.k) * wgmma.element.bytes() as f64;
                let rows = if wgmma.a_in_registers { 0.0 } else { 16.0 };
                // The four warps share the columns.
                clock.wgmma(own, pc, &operands[results..], depth * (rows + f64::from(wgmma.n) / 4.0));
            }
            Op::WgmmaCommit => own.wgmma.close(),
            Op::WgmmaWait { pending } => {
                let done = own.wgmma.wait(pending as usize);
                own.settle();
                own.wait_until(done);
            }
            Op::Shuffle(_)
            | Op::TransposeMatrix
            | Op::MatchAny { .. }
            | Op::MatchAll { .. }
            | Op::ReduceWarp { .. } => {
                clock.shuffle(own, pc, guard, operands, results);
            }
            // It used its scheduler before it waited, and delays nothing that came after.
            Op::Mbarrier { op: Mbarrier::Wait { .. }, .. } => {
                let done = own.base() + clock.rates.latencies.shared;
                operands[..results].iter().for_each(|&result| own.set_ready(result, done));
            }
            Op::Mbarrier { .. } => clock.shuffle(own, pc, guard, operands, results),
            _ => {
                clock.memory(own, pc, guard, operands, results);
            }
        }
        next
    }

    /// Notes an access to global memory, whose cost is known once the instruction has run.
    pub(super) fn time_global(&mut self, access: &WarpAccess<'_>) {
        let WarpAccess { addresses, mask, bytes, kind, .. } = *access;
        if let Some(clock) = &mut self.clock {
            let writes = matches!(kind, AccessKind::Write | AccessKind::StrongWrite);
            if kind.is_atomic() {
                clock.atomic(access.pc, addresses, mask, bytes as u64, self.number);
            } else {
                clock.global(access.pc, addresses, mask, bytes as u64, writes);
            }
        }
    }

    /// Notes an access to local memory.
    pub(super) fn time_local(&mut self, warp: &Warp, access: &WarpAccess<'_>) {
        let WarpAccess { addresses, mask, bytes, kind, .. } = *access;
        let geometry = &self.launched.geometry;
        let number = self.blocks[warp.block].number * geometry.warps() as u64 + warp.number as u64;
        let size = 32 * (self.launched.program.local_bytes as u64).next_multiple_of(4);
        if let Some(clock) = &mut self.clock {
            let base = LOCAL_WINDOW.wrapping_add(number.wrapping_mul(size));
            clock.local(base, addresses, mask, bytes as u64, !kind.reads());
        }
    }

    /// When a bulk copy lands; 0 if no time is kept.
    pub(super) fn time_bulk_copy(&mut self, warp: &Warp, source: &BulkSource, bytes: usize) -> f64 {
        let (Some(clock), Some(own)) = (&mut self.clock, &warp.clock) else { return 0.0 };
        match source {
            BulkSource::Global(from) => clock.bulk_bytes(*from, bytes as u64, false),
            BulkSource::Shared(_) => {}
            BulkSource::Tensor { map, coordinates, offsets } => {
                for run in map.rows(coordinates, offsets).into_iter().flatten() {
                    clock.bulk_bytes(run.address, (run.within.1 - run.within.0) as u64, false);
                }
            }
        }
        clock.bulk_copy(own)
    }

    /// A warp goes on after a barrier whose last arrival was at `moment`.
    pub(super) fn wait_at_barrier(&mut self, warp: &mut Warp, moment: f64) {
        if let Some(clock) = &mut self.clock {
            let arrived = warp.clock.as_ref().map_or(moment, |own| own.now());
            clock.busy.barriers += (moment - arrived).max(0.0);
            warp.wait_until(moment + clock.rates.latencies.barrier);
        }
    }
}
