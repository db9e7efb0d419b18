//! The order in which clusters run.
//!
//! Clusters that cannot learn from each other run on all cores, in any order: what they compute does not depend on it. All others run on one
//! core in a fixed order. A cluster runs until it ends or only waits for others; then the next one joins it, as long as the chip holds that
//! many at once.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use rayon::prelude::*;

use crate::{
    check::Findings,
    counters::{Counters, CountersByInstruction},
    device_runtime::Printed,
    machine::{GridState, Launched, PATIENCE, Round, Unit, shuffle},
};

/// Rounds in which a cluster only reads and computes before others get a turn: it may wait without saying so.
const READING_ROUNDS: usize = 64;

/// How many clusters give way before the next one starts, if there are so many.
const BEFORE_NEXT: usize = 4;

/// Up to so many clusters, a seed permutes them all; beyond, it permutes groups of so many.
const SHUFFLED: u64 = 1 << 20;

/// What all clusters together did.
#[derive(Default)]
pub(super) struct Done {
    pub findings: Findings,
    pub printed: Printed,
    /// The block, the program counter and the index of an instruction that was reached and is not supported.
    pub failure: Option<(u64, u32, u32)>,
    /// Whether a block ended early.
    pub aborted: bool,
    pub counters: Counters,
    pub by_instruction: Option<Box<CountersByInstruction>>,
    pub unchecked: Vec<String>,
}

impl Done {
    /// Adds what a unit did.
    fn add(&mut self, mut unit: Unit<'_>) {
        let (counters, by_instruction) = unit.counted();
        let Unit { findings, printed, failure, aborted, .. } = unit;
        let unchecked = Vec::new();
        let done = Done { findings, printed, failure, aborted, counters, by_instruction, unchecked };
        *self = std::mem::take(self).merge(done);
    }

    fn merge(mut self, other: Done) -> Done {
        self.findings.merge(other.findings);
        self.printed.merge(other.printed);
        self.failure = [self.failure, other.failure].into_iter().flatten().min();
        self.aborted |= other.aborted;
        self.counters.merge(&other.counters);
        match (&mut self.by_instruction, other.by_instruction) {
            (Some(mine), Some(theirs)) => mine.merge(&theirs),
            (None, theirs) => self.by_instruction = theirs,
            (_, None) => {}
        }
        self
    }
}

/// Runs all clusters; `resident` of them fit the chip at once.
pub(super) fn run(launched: &mut Launched<'_>, resident: u64, steps: u64) -> Done {
    // What `malloc` returns depends on the order of blocks.
    if !launched.program.depends_on_order && !launched.program.uses_heap {
        let done = run_concurrently(launched);
        if !launched.conflict.load(Relaxed) {
            return done;
        }
        launched.views.iter_mut().for_each(|view| view.restore());
        launched.may_run_again = false;
        launched.steps_left.store(steps, Relaxed);
        if let Some(progress) = &launched.progress {
            progress.restart();
        }
    }
    run_in_order(launched, resident.max(1))
}

/// Runs clusters on all cores.
fn run_concurrently(launched: &Launched<'_>) -> Done {
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let clusters = launched.geometry.cluster_count();
    let workers = (rayon::current_num_threads() as u64).min(clusters);
    let parts: Vec<Done> = (0..workers)
        .into_par_iter()
        .map(|_| {
            let mut unit = Unit::new(launched);
            while !over.load(Relaxed) && !launched.conflict.load(Relaxed) {
                let cluster = next.fetch_add(1, Relaxed);
                if cluster >= clusters {
                    break;
                }
                if !unit.run(cluster) {
                    over.store(true, Relaxed);
                }
            }
            let mut done = Done::default();
            done.add(unit);
            done
        })
        .collect();
    parts.into_iter().fold(Done::default(), Done::merge)
}

/// The clusters in the order in which they start.
fn starting_order(clusters: u64, seed: u64) -> impl Iterator<Item = u64> {
    let groups = (0..clusters).step_by(if seed == 0 { 1 } else { SHUFFLED as usize });
    groups.flat_map(move |first| {
        let end = if seed == 0 { first + 1 } else { (first + SHUFFLED).min(clusters) };
        let mut group: Vec<u64> = (first..end).collect();
        if seed != 0 {
            shuffle(&mut group, seed.wrapping_add(first));
        }
        group
    })
}

/// Runs clusters on one core.
fn run_in_order(launched: &Launched<'_>, resident: u64) -> Done {
    let mut done = Done::default();
    let mut grid = launched.races.then(Box::<GridState>::default);
    let mut waiting = starting_order(launched.geometry.cluster_count(), launched.seed);
    let mut left = launched.geometry.cluster_count();
    let mut running: VecDeque<Unit<'_>> = VecDeque::new();
    let mut idle: Vec<Unit<'_>> = Vec::new();
    // Clusters that gave way in a row, and the instructions since anything happened.
    let (mut gave_way, mut fruitless) = (0, 0);
    loop {
        if gave_way >= running.len().min(BEFORE_NEXT)
            && (running.len() as u64) < resident
            && let Some(cluster) = waiting.next()
        {
            let mut unit = idle.pop().unwrap_or_else(|| Unit::new(launched));
            unit.start(cluster);
            left -= 1;
            running.push_front(unit);
            (gave_way, fruitless) = (0, 0);
        }
        let Some(mut unit) = running.pop_front() else { break };
        unit.grid = grid.take();
        let before = unit.spent;
        let turn = take_turn(&mut unit);
        grid = unit.grid.take();
        match turn {
            Round::Over => {
                unit.finish();
                unit.aborted |= unit.ended;
                if unit.failure.is_some() || unit.ended && launched.steps_left.load(Relaxed) == 0 {
                    idle.push(unit);
                    break;
                }
                idle.push(unit);
                (gave_way, fruitless) = (0, 0);
                continue;
            }
            Round::Polls => {
                gave_way += 1;
                fruitless += unit.spent - before;
            }
            _ => {
                gave_way += 1;
                fruitless = 0;
            }
        }
        running.push_back(unit);
        if gave_way >= running.len() && fruitless > PATIENCE.max((running.len() as u64) << 13) {
            let why = if left == 0 {
                String::new()
            } else {
                let all = launched.geometry.cluster_count();
                let what = if launched.geometry.cluster_blocks() == 1 { "blocks" } else { "clusters" };
                format!(
                    ": the chip holds {resident} of the {all} {what} at once, and those that wait for others never make room for them"
                )
            };
            running.iter_mut().for_each(|unit| unit.deadlock(&why));
            break;
        }
    }
    for unit in idle.into_iter().chain(running) {
        done.add(unit);
    }
    if let Some(grid) = grid {
        done.unchecked = grid.unchecked();
    }
    done
}

/// Runs a cluster until it ends or waits for others.
fn take_turn(unit: &mut Unit<'_>) -> Round {
    let mut reading = 0;
    let mut changed = false;
    loop {
        let round = unit.round();
        match round {
            Round::Over => return round,
            Round::Still => {
                unit.deadlock("");
                return Round::Over;
            }
            Round::Polls => return if changed { Round::Moves } else { round },
            Round::Moves => {
                changed = true;
                reading = 0;
            }
            Round::Reads => {
                reading += 1;
                if reading == READING_ROUNDS {
                    return round;
                }
            }
        }
    }
}
