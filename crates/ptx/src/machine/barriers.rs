//! Barriers of a block, by number, and the one of a cluster.

use super::{
    fragments::Wait,
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
    /// Threads that have come, whole warps.
    arrived: u32,
    /// How many it waits for; `None` for all of the block.
    expected: Option<u32>,
    /// Warps that have come.
    warps: Vec<usize>,
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
        if aligned && step.mask != warp.fragments.live {
            let missing = warp.fragments.live & !step.mask;
            self.report(warp, FindingKind::DivergentBarrier, step.pc, lane, None, || {
                format!(
                    "lanes {missing:#010x} of the warp do not come to the barrier {number} with the others"
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
        let differs = !state.warps.is_empty() && state.expected != count;
        if state.warps.is_empty() {
            state.expected = count;
            state.row = vec![0; row.len()];
        }
        state.arrived += 32;
        state.warps.push(warp.number);
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
        warp.met = self.clocks.now();
        if self.complete(warp, number) {
            return Next::On;
        }
        if kind == Barrier::Arrive { Next::On } else { Next::Behind(Wait::Barrier(number)) }
    }

    /// Ends a barrier where everyone is there. Gives whether it did.
    fn complete(&mut self, warp: &mut Warp, number: u32) -> bool {
        let block = warp.block;
        let per_block = self.launched.geometry.warps();
        let first = block * per_block;
        let state = &self.blocks[block].barriers.all[number as usize];
        if state.warps.is_empty() {
            return false;
        }
        let all = match state.expected {
            Some(count) => state.arrived >= count,
            None => {
                let came = |number: usize| state.warps.contains(&number);
                let others = &self.warps[first..first + per_block];
                let waited_for =
                    |i: usize, other: &Warp| i != warp.number && other.fragments.live != 0 && !came(i);
                let missing = others.iter().enumerate().any(|(i, other)| waited_for(i, other));
                !missing && (warp.fragments.live == 0 || came(warp.number))
            }
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
        if !state.warps.contains(&warp.number) {
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
        if waited || state.warps.last() == Some(&warp.number) {
            self.clocks.acquire(warp.id, &state.row);
            warp.met = self.clocks.now();
            self.learnt(warp);
            self.wait_at_barrier(warp, state.time);
        }
    }

    /// All lanes of a warp have ended: barriers no longer wait for it.
    pub(super) fn warp_ended(&mut self, warp: &mut Warp) {
        for number in 0..16 {
            self.complete(warp, number);
        }
        self.cluster_complete(warp);
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
