//! Block barriers, by number, and the cluster barrier.
//!
//! As on chips since Volta, a barrier waits only for threads that have not exited. Lanes of a warp may arrive at `barrier.sync` at
//! different times. At `bar.sync`, which is aligned, they must arrive together at one instruction, except for lanes that exit without
//! it. Whether these exit before or after the others arrive depends on the code layout, so a warp is judged once nothing else of
//! it can go on. Whole warps that exit without arriving are accepted: they look like warps that return early because they have
//! no work, which is common and works.

use super::{
    step::{Next, Step},
    unit::Unit,
    warp::Warp,
    warp_splits::{Wait, WarpSplit},
};
use crate::{
    check::{FindingKind, join},
    isa::{Barrier, Op, Operand},
};

/// A barrier that threads wait at.
#[derive(Clone, Debug, Default)]
struct State {
    /// How many threads it waits for; `None` for all of the block.
    expected: Option<u32>,
    /// The warps that have arrived, and their lanes. A warp that arrives again has a second entry.
    arrivals: Vec<(usize, u32)>,
    /// The clocks that they released.
    row: Vec<u32>,
    /// When the last of them arrived, if time is kept.
    time: f64,
    /// Threads whose predicate holds, and all threads that voted.
    votes: u32,
    voters: u32,
    /// Where the result of the vote goes, by warp.
    results: Vec<(usize, Barrier, Operand, u32)>,
}

impl State {
    /// Lanes arrive. If other lanes of their warp have arrived without them, they join that arrival.
    fn arrive(&mut self, warp: usize, lanes: u32, live: u32) {
        let parts =
            |&&mut (other, came): &&mut (usize, u32)| other == warp && came & lanes == 0 && live & !came != 0;
        match self.arrivals.iter_mut().find(parts) {
            Some((_, came)) => *came |= lanes,
            None => self.arrivals.push((warp, lanes)),
        }
    }

    /// Whether all live lanes of a warp have arrived.
    fn has(&self, warp: usize, live: u32) -> bool {
        let came = self.arrivals.iter().filter(|arrival| arrival.0 == warp);
        live & !came.fold(0, |all, arrival| all | arrival.1) == 0
    }
}

/// The barriers of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barriers {
    all: [State; 16],
}

impl Unit<'_> {
    /// `bar` and `barrier`: lanes of a warp arrive at a block barrier.
    pub(super) fn barrier(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        let Op::Barrier { kind, aligned, counted } = step.instruction.op else { return Next::On };
        let results = step.instruction.results as usize;
        let operands = &step.operands[results..];
        let lane = step.mask.trailing_zeros();
        let constants = &self.launched.constants;
        let number = warp.registers.word(constants, operands[0])[lane as usize];
        let count = counted.then(|| warp.registers.word(constants, operands[1])[lane as usize]);
        if number >= 16 {
            self.report(warp, FindingKind::BarrierMismatch, step.pc, lane, None, || {
                format!("uses barrier {number}, but barriers are numbered 0 to 15")
            });
            return Next::On;
        }
        let elsewhere =
            |split: &&WarpSplit| matches!(split.wait, Wait::Barrier(_)) && split.pc != step.pc + 1;
        if aligned && let Some(&WarpSplit { mask: missing, .. }) = warp.splits.all.iter().find(elsewhere) {
            self.report(warp, FindingKind::DivergentBarrier, step.pc, lane, None, || {
                format!(
                    "reaches barrier {number} while lanes {missing:#010x} of the same warp wait at another barrier instruction"
                )
            });
        }
        if let Some(count) = count
            && (count == 0 || count % 32 != 0)
        {
            self.report(warp, FindingKind::BarrierMismatch, step.pc, lane, None, || {
                format!("barrier {number} is given {count} threads, which is not a positive multiple of 32")
            });
        }
        self.counters.barriers += 1;
        let vote = match kind {
            Barrier::Popc | Barrier::And | Barrier::Or => {
                operands.last().map_or(0, |&vote| warp.registers.predicate(vote)) & step.mask
            }
            _ => 0,
        };
        let row = self.clocks.release(warp.id);
        let state = &mut self.blocks[warp.block].barriers.all[number as usize];
        let differs = !state.arrivals.is_empty() && state.expected != count;
        if state.arrivals.is_empty() {
            state.expected = count;
            state.row = vec![0; row.len()];
        }
        state.arrive(warp.number, step.mask, warp.splits.live);
        join(&mut state.row, &row);
        state.time = state.time.max(warp.now());
        state.votes += vote.count_ones();
        state.voters += step.mask.count_ones();
        if results == 1 {
            state.results.push((warp.id, kind, step.operands[0], step.mask));
        }
        if differs {
            let before = state.expected;
            self.report(warp, FindingKind::BarrierMismatch, step.pc, lane, None, || {
                let threads = |count: Option<u32>| match count {
                    Some(count) => format!("{count} threads"),
                    None => "all threads of the block".to_owned(),
                };
                format!(
                    "barrier {number} is used with {} here and with {} elsewhere in the same phase",
                    threads(count),
                    threads(before)
                )
            });
        }
        if step.mask == warp.splits.live {
            warp.last_sync = self.clocks.now();
        }
        if self.complete(warp, number) || kind == Barrier::Arrive {
            return Next::On;
        }
        warp.splits.split_off(step.mask, step.pc + 1);
        Next::Behind(Wait::Barrier(number))
    }

    /// Handles a warp whose lanes all wait, some to reconverge and the others at barriers. If the former are about to exit, or the
    /// barrier is not aligned, they go on. Otherwise they will not reach the barrier with the others, which is reported. Returns
    /// whether any lane can go on.
    pub(super) fn release_divergent_barriers(&mut self, warp: &mut Warp) -> bool {
        let waits = |split: &WarpSplit| matches!(split.wait, Wait::Barrier(_));
        if warp.splits.all.is_empty() || !warp.splits.all.iter().all(waits) {
            return false;
        }
        let there = warp.splits.all.iter().fold(0, |all, split| all | split.mask);
        let missing = warp.splits.live & !there;
        if missing == 0 {
            return false;
        }
        let program = self.launched.program;
        let aligned = |split: &&WarpSplit| {
            let before = &program.instructions[split.pc as usize - 1];
            matches!(before.op, Op::Barrier { aligned: true, .. })
        };
        let Some(&WarpSplit { pc, mask, wait: Wait::Barrier(number), .. }) =
            warp.splits.all.iter().find(aligned).filter(|_| !warp.splits.reconvergence_exits(program))
        else {
            return warp.splits.break_reconvergence();
        };
        let state = &mut self.blocks[warp.block].barriers.all[number as usize];
        if state.has(warp.number, warp.splits.live) {
            return false;
        }
        // Count them as arrived, so that the others go on.
        state.arrive(warp.number, missing, warp.splits.live);
        self.report(warp, FindingKind::DivergentBarrier, pc - 1, mask.trailing_zeros(), None, || {
            format!("lanes {missing:#010x} of the warp do not reach barrier {number} with the others")
        });
        self.complete(warp, number)
    }

    /// Completes a barrier if everyone has arrived. Returns whether it did.
    fn complete(&mut self, warp: &mut Warp, number: u32) -> bool {
        let block = warp.block;
        let per_block = self.launched.geometry.warps();
        let first = block * per_block;
        let state = &self.blocks[block].barriers.all[number as usize];
        if state.arrivals.is_empty() {
            return false;
        }
        // The running warp is not in its place among the others.
        let live = |i: usize| {
            if i == warp.number { warp.splits.live } else { self.warps[first + i].splits.live }
        };
        let all = match state.expected {
            Some(count) => {
                // A complete warp counts as 32 threads, even the block's last one, which may have fewer.
                let threads =
                    |&(i, came): &(usize, u32)| if live(i) & !came == 0 { 32 } else { came.count_ones() };
                state.arrivals.iter().map(threads).sum::<u32>() >= count
            }
            None => (0..per_block).all(|i| state.has(i, live(i))),
        };
        if !all {
            return false;
        }
        let state = std::mem::take(&mut self.blocks[block].barriers.all[number as usize]);
        self.pass(warp, &state, number);
        for id in (first..first + per_block).filter(|&id| id != warp.id) {
            let mut other = std::mem::replace(&mut self.warps[id], Warp::new(&super::unit::EMPTY, 0, 0, 0));
            self.pass(&mut other, &state, number);
            self.warps[id] = other;
        }
        true
    }

    /// Lets a warp go on that waits at a completed barrier, or arrived last.
    fn pass(&mut self, warp: &mut Warp, state: &State, number: u32) {
        if state.arrivals.iter().all(|arrival| arrival.0 != warp.number) {
            return;
        }
        for &(_, kind, result, mask) in state.results.iter().filter(|result| result.0 == warp.id) {
            let holds = match kind {
                Barrier::Popc => {
                    warp.registers.set_word(result, &[state.votes; 32], mask);
                    continue;
                }
                Barrier::And => state.votes == state.voters,
                _ => state.votes > 0,
            };
            warp.registers.set_predicate(result, if holds { u32::MAX } else { 0 }, mask);
        }
        let mut waited = false;
        for split in &mut warp.splits.all {
            if split.wait == Wait::Barrier(number) {
                split.wait = Wait::Nothing;
                waited = true;
            }
        }
        // A warp that only arrived acquires nothing. The last one to arrive is not waiting yet.
        if waited || state.arrivals.last().is_some_and(|arrival| arrival.0 == warp.number) {
            self.clocks.acquire(warp.id, &state.row);
            warp.last_sync = self.clocks.now();
            self.update_floor(warp);
            self.wait_at_barrier(warp, state.time);
        }
    }

    /// Lanes of a warp have exited: barriers no longer wait for them.
    pub(super) fn lanes_ended(&mut self, warp: &mut Warp) {
        for number in 0..16 {
            self.complete(warp, number);
        }
        if warp.splits.live == 0 {
            self.cluster_complete(warp);
        }
    }

    /// `barrier.cluster.arrive`.
    pub(super) fn cluster_arrive(&mut self, warp: &mut Warp, step: Step<'_>, release: bool) {
        if warp.at_cluster.is_some() {
            let lane = step.mask.trailing_zeros();
            self.report(warp, FindingKind::BarrierMismatch, step.pc, lane, None, || {
                "arrives at the cluster barrier twice without waiting in between".to_owned()
            });
            return;
        }
        warp.at_cluster = Some(self.cluster_phase);
        if release {
            let row = self.clocks.release(warp.id);
            join(&mut self.cluster_row, &row);
        }
        self.cluster_arrived += 1;
        self.cluster_time = self.cluster_time.max(warp.now());
        self.cluster_complete(warp);
    }

    fn cluster_complete(&mut self, warp: &Warp) {
        let others = self.warps.iter().filter(|other| other.splits.live != 0 && other.id != warp.id).count();
        let placeholder = usize::from(warp.splits.live != 0);
        if self.cluster_arrived > 0 && self.cluster_arrived >= others + placeholder {
            self.cluster_arrived = 0;
            self.cluster_phase += 1;
            let row = std::mem::replace(&mut self.cluster_row, vec![0; self.warps.len() + 1]);
            join(&mut self.cluster_published, &row);
        }
    }

    pub(super) fn cluster_wait(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        let Some(phase) = warp.at_cluster else {
            let lane = step.mask.trailing_zeros();
            self.report(warp, FindingKind::BarrierMismatch, step.pc, lane, None, || {
                "waits at the cluster barrier without having arrived".to_owned()
            });
            return Next::On;
        };
        if self.cluster_phase > phase {
            self.cluster_passed(warp);
            return Next::On;
        }
        Next::Behind(Wait::Cluster { phase })
    }

    pub(super) fn cluster_passed(&mut self, warp: &mut Warp) {
        warp.at_cluster = None;
        self.wait_at_barrier(warp, self.cluster_time);
        let row = std::mem::take(&mut self.cluster_published);
        self.clocks.acquire(warp.id, &row);
        self.cluster_published = row;
        warp.last_sync = self.clocks.now();
        self.update_floor(warp);
    }
}
