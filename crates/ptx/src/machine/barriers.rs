//! Barriers of a block, by number, and the one of a cluster.
//!
//! Threads come to a barrier, and one that has ended is not waited for, as since Volta: a barrier is passed when all threads
//! have come that are left. Lanes of a warp may come in parts to `barrier.sync`. To `bar.sync`, which is aligned, they must
//! come at one instruction, but for those that end without one; whether they end before the others come to it or later depends
//! on how the code is laid out, so it is decided when nothing else of the warp can go on. Whole warps that end without coming
//! are not told from those that return early because there is nothing for them to do, which is common and works.

use super::{
    fragments::{Fragment, Wait},
    step::{Next, Step},
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::{FindingKind, join},
    isa::{Barrier, Op, Operand},
};

/// A barrier that somebody is at.
#[derive(Clone, Debug, Default)]
struct State {
    /// How many it waits for; `None` for all of the block.
    expected: Option<u32>,
    /// Warps that have come, and by which lanes. One that comes again is there twice.
    arrivals: Vec<(usize, u32)>,
    /// What they had seen.
    row: Vec<u32>,
    /// When the last of them came, where time is kept.
    time: f64,
    /// Threads whose predicate holds, and all.
    votes: u32,
    voters: u32,
    /// Where results go, by warp.
    results: Vec<(usize, Barrier, Operand, u32)>,
}

impl State {
    /// Lanes come. Those that follow others of their warp, where some were missing, are one arrival with them.
    fn arrive(&mut self, warp: usize, lanes: u32, live: u32) {
        let parts =
            |&&mut (other, came): &&mut (usize, u32)| other == warp && came & lanes == 0 && live & !came != 0;
        match self.arrivals.iter_mut().find(parts) {
            Some((_, came)) => *came |= lanes,
            None => self.arrivals.push((warp, lanes)),
        }
    }

    /// Whether all lanes of a warp have come that are left.
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
    /// A warp comes to a barrier of its block.
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
                format!("there is no barrier {number}: they are numbered 0 to 15")
            });
            return Next::On;
        }
        let elsewhere =
            |fragment: &&Fragment| matches!(fragment.wait, Wait::Barrier(_)) && fragment.pc != step.pc + 1;
        if aligned && let Some(&Fragment { mask: missing, .. }) = warp.fragments.all.iter().find(elsewhere) {
            self.report(warp, FindingKind::DivergentBarrier, step.pc, lane, None, || {
                format!(
                    "lanes {missing:#010x} of the warp wait at another barrier than the barrier {number} that this one comes to"
                )
            });
        }
        if let Some(count) = count
            && (count == 0 || count % 32 != 0)
        {
            self.report(warp, FindingKind::BarrierMismatch, step.pc, lane, None, || {
                format!("{count} threads at the barrier {number} are no whole warps")
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
        state.arrive(warp.number, step.mask, warp.fragments.live);
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
                format!("the barrier {number} waits for {before:?} threads and for {count:?}")
            });
        }
        if step.mask == warp.fragments.live {
            warp.met = self.clocks.now();
        }
        if self.complete(warp, number) || kind == Barrier::Arrive {
            return Next::On;
        }
        warp.fragments.keep(step.mask, step.pc + 1);
        Next::Behind(Wait::Barrier(number))
    }

    /// Lanes of a warp stand at a join while all others wait at barriers. Where they are about to end, or the barrier need not be
    /// come to together, they go on; otherwise they do not come to the barrier, which is wrong. Gives whether any can go on.
    pub(super) fn lanes_without_barrier(&mut self, warp: &mut Warp) -> bool {
        let waits = |fragment: &Fragment| matches!(fragment.wait, Wait::Barrier(_));
        if warp.fragments.all.is_empty() || !warp.fragments.all.iter().all(waits) {
            return false;
        }
        let there = warp.fragments.all.iter().fold(0, |all, fragment| all | fragment.mask);
        let missing = warp.fragments.live & !there;
        if missing == 0 {
            return false;
        }
        let program = self.launched.program;
        let aligned = |fragment: &&Fragment| {
            let before = &program.instructions[fragment.pc as usize - 1];
            matches!(before.op, Op::Barrier { aligned: true, .. })
        };
        let Some(&Fragment { pc, mask, wait: Wait::Barrier(number), .. }) =
            warp.fragments.all.iter().find(aligned).filter(|_| !warp.fragments.joins_end(program))
        else {
            return warp.fragments.break_joins();
        };
        let state = &mut self.blocks[warp.block].barriers.all[number as usize];
        if state.has(warp.number, warp.fragments.live) {
            return false;
        }
        // So that the others go on.
        state.arrive(warp.number, missing, warp.fragments.live);
        self.report(warp, FindingKind::DivergentBarrier, pc - 1, mask.trailing_zeros(), None, || {
            format!("lanes {missing:#010x} of the warp do not come to the barrier {number} with the others")
        });
        self.complete(warp, number)
    }

    /// Ends a barrier where everyone is there. Gives whether it did.
    fn complete(&mut self, warp: &mut Warp, number: u32) -> bool {
        let block = warp.block;
        let per_block = self.launched.geometry.warps();
        let first = block * per_block;
        let state = &self.blocks[block].barriers.all[number as usize];
        if state.arrivals.is_empty() {
            return false;
        }
        // The warp whose turn it is has left its place among the others.
        let live = |i: usize| {
            if i == warp.number { warp.fragments.live } else { self.warps[first + i].fragments.live }
        };
        let all = match state.expected {
            Some(count) => {
                // A warp counts as 32 threads, also the block's last that has fewer.
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

    /// A warp goes on behind a barrier, if it waits there or is the last to come.
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
        for fragment in &mut warp.fragments.all {
            if fragment.wait == Wait::Barrier(number) {
                fragment.wait = Wait::Nothing;
                waited = true;
            }
        }
        // One that only arrived learns nothing; the last to come is not waiting yet.
        if waited || state.arrivals.last().is_some_and(|arrival| arrival.0 == warp.number) {
            self.clocks.acquire(warp.id, &state.row);
            warp.met = self.clocks.now();
            self.learnt(warp);
            self.wait_at_barrier(warp, state.time);
        }
    }

    /// Lanes of a warp have ended: barriers no longer wait for them.
    pub(super) fn lanes_ended(&mut self, warp: &mut Warp) {
        for number in 0..16 {
            self.complete(warp, number);
        }
        if warp.fragments.live == 0 {
            self.cluster_complete(warp);
        }
    }

    /// A warp comes to the cluster's barrier.
    pub(super) fn cluster_arrive(&mut self, warp: &mut Warp, step: Step<'_>, release: bool) {
        if warp.at_cluster.is_some() {
            let lane = step.mask.trailing_zeros();
            self.report(warp, FindingKind::BarrierMismatch, step.pc, lane, None, || {
                "the warp arrives at the cluster's barrier again without having waited".to_owned()
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
        let others =
            self.warps.iter().filter(|other| other.fragments.live != 0 && other.id != warp.id).count();
        let placeholder = usize::from(warp.fragments.live != 0);
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
                "the warp waits at the cluster's barrier without having arrived".to_owned()
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
        warp.met = self.clocks.now();
        self.learnt(warp);
    }
}
