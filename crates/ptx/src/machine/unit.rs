//! A cluster of blocks, or a single block: what one host thread runs from start to end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{
    access::LaneAccess,
    barriers::Barriers,
    bulk_copies::BulkCopy,
    global_access::RecordLayout,
    mbarriers::Mbarriers,
    registers::Constants,
    synchronisation::{GridState, Synchronisation},
    warp::Warp,
    warp_splits::{Wait, WarpSplit},
};
use crate::{
    check::{Clocks, FindingKind, Findings},
    counters::{Counters, CountersByInstruction},
    device_runtime::{DeviceHeap, DeviceLimits, OutputSink, Printed},
    isa::Program,
    memory::{Global, Shared, Textures, View},
    simulator::Progress,
    timing::Clock,
};

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub dynamic_shared: usize,
}

impl Geometry {
    pub fn threads(&self) -> usize {
        self.block.iter().map(|&extent| extent as usize).product()
    }

    pub fn warps(&self) -> usize {
        self.threads().div_ceil(32)
    }

    pub fn cluster_blocks(&self) -> usize {
        self.cluster.iter().map(|&extent| extent as usize).product()
    }

    /// Clusters of the grid on each axis.
    pub fn clusters(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid[axis] / self.cluster[axis])
    }

    pub fn cluster_count(&self) -> u64 {
        self.clusters().iter().map(|&count| u64::from(count)).product()
    }

    /// The cluster of a block, by their linear indices, and the block's rank in it.
    pub fn cluster_of(&self, block: u64) -> (u64, usize) {
        if self.cluster == [1; 3] {
            return (block, 0);
        }
        let at = Geometry::split(block, self.grid);
        let linear = |at: [u32; 3], extents: [u32; 3]| {
            let [x, y, z] = at.map(u64::from);
            (z * u64::from(extents[1]) + y) * u64::from(extents[0]) + x
        };
        let cluster = std::array::from_fn(|axis| at[axis] / self.cluster[axis]);
        let inner = std::array::from_fn(|axis| at[axis] % self.cluster[axis]);
        (linear(cluster, self.clusters()), linear(inner, self.cluster) as usize)
    }

    /// The coordinates of a linear index; the first axis varies fastest.
    pub fn split(number: u64, extents: [u32; 3]) -> [u32; 3] {
        let [x, y] = [u64::from(extents[0].max(1)), u64::from(extents[1].max(1))];
        [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
    }
}

/// A launch as all units see it.
pub(crate) struct Launched<'a> {
    pub program: &'a Program,
    pub constants: Constants,
    pub parameters: Vec<u8>,
    pub geometry: Geometry,
    pub global: &'a Global,
    pub textures: &'a Textures,
    pub views: Vec<View<'a>>,
    /// For every view and granule, who read it as read-only data and who wrote it, if the kernel does both.
    pub read_only: Option<Vec<Box<[AtomicU64]>>>,
    /// Whether the host processor has AVX2.
    pub wide: bool,
    pub races: bool,
    /// Whether instructions that produce infinities or NaNs are reported.
    pub nonfinite: bool,
    /// What the device's run-time library may use, and where it prints as it goes.
    pub limits: DeviceLimits,
    pub sink: Option<&'a OutputSink>,
    /// The heap of `malloc`, and its index in `views`.
    pub heap: Option<&'a DeviceHeap>,
    pub heap_view: Option<usize>,
    /// The number of the launch on its device.
    pub number: u64,
    /// Whether counters are kept by instruction.
    pub by_line: bool,
    /// Whether only time is kept: nothing is checked, and no matrix product computed.
    pub timed: bool,
    /// Warp instructions that the launch may still execute, shared by all units.
    pub steps_left: AtomicU64,
    pub multiprocessors: u32,
    /// How accesses to global memory are recorded while clusters run at the same time.
    pub layout: RecordLayout,
    /// Whether clusters that run at the same time accessed the same memory, without anything that orders them.
    pub conflict: AtomicBool,
    /// Whether all clusters may have to run again from what memory held before.
    pub may_run_again: bool,
    /// What permutes the order of blocks and warps; 0 for their natural order.
    pub seed: u64,
    /// The address of a cooperative launch's workspace, 0 if there is none.
    pub workspace: u64,
    pub progress: Option<Arc<Progress>>,
}

/// A running block.
#[derive(Debug)]
pub(crate) struct Block {
    pub shared: Shared,
    pub barriers: Barriers,
    pub mbarriers: Mbarriers,
    /// Its coordinates in the grid, and its linear index.
    pub at: [u32; 3],
    pub number: u64,
}

/// The blocks of a cluster and their warps.
pub(crate) struct Unit<'a> {
    pub launched: &'a Launched<'a>,
    pub blocks: Vec<Block>,
    pub warps: Vec<Warp>,
    pub clocks: Clocks,
    pub bulk_copies: Vec<BulkCopy>,
    pub cluster_phase: u64,
    pub cluster_arrived: usize,
    pub cluster_row: Vec<u32>,
    pub cluster_published: Vec<u32>,
    pub sync: Synchronisation,
    /// What clusters know of each other, if they run in a fixed order and races are looked for.
    pub grid: Option<Box<GridState>>,
    /// How often memory may have changed, and how often a thread read memory that others may be about to change.
    pub changes: u64,
    pub polls: u64,
    /// The latter in the turn of one warp split.
    pub turn_polls: u32,
    /// The last such instruction of each warp, its lane and address.
    pub spins: Vec<Option<(u32, u32, u64)>>,
    /// Warp instructions, as far as turns have ended.
    pub spent: u64,
    /// The instructions that were counted before the cluster started.
    counted_before: u64,
    /// Warps whose last turn did nothing.
    asleep: Vec<bool>,
    /// The warps in the order of their turns.
    turns: Vec<usize>,
    pub findings: Findings,
    pub printed: Printed,
    /// The block, the program counter and the index of an instruction that it reached and that is not supported.
    pub failure: Option<(u64, u32, u32)>,
    /// Whether a block ended early.
    pub aborted: bool,
    pub counters: Counters,
    /// The counters by instruction, if they are kept; `counters` then has only those of the latest one.
    pub by_instruction: Option<Box<CountersByInstruction>>,
    /// The cluster's linear index.
    pub number: u64,
    pub ended: bool,
    /// Its multiprocessor's clock, if time is kept.
    pub clock: Option<Box<Clock>>,
    /// When the last warp arrived at the cluster barrier.
    pub cluster_time: f64,
}

/// Instructions that a warp split executes before others get a turn.
pub(super) const SLICE: u32 = 4096;

/// The same if time is kept; the fewer, the closer warps run to the order of their clocks.
pub(super) const TIMED_SLICE: u32 = 64;

/// Clocks by which a warp may get ahead of the others in one turn.
pub(super) const TURN_CLOCKS: f64 = 32.0;

/// How a round of a cluster's warps went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// There is nothing left to do.
    Over,
    /// Something happened.
    Moves,
    /// Threads only computed and read.
    Reads,
    /// Threads reread memory that others may change, and changed nothing.
    Polls,
    /// All warps wait.
    Still,
}

/// How many warp instructions may go by in which threads only reread memory that nobody changes: less than a second.
pub(crate) const PATIENCE: u64 = 1 << 22;

/// Permutes numbers.
pub(crate) fn shuffle<T>(all: &mut [T], seed: u64) {
    let mut state = seed;
    for i in (1..all.len()).rev() {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        all.swap(i, ((mixed ^ mixed >> 31) % (i as u64 + 1)) as usize);
    }
}

impl<'a> Unit<'a> {
    pub fn new(launched: &'a Launched<'a>) -> Unit<'a> {
        let geometry = &launched.geometry;
        let (warps, blocks) = (geometry.warps(), geometry.cluster_blocks());
        let bytes = launched.program.shared_bytes + geometry.dynamic_shared;
        let granule = launched.program.shared_granule;
        let block = |_| Block {
            shared: Shared::new(bytes, granule, launched.races),
            barriers: Barriers::default(),
            mbarriers: Mbarriers::default(),
            at: [0; 3],
            number: 0,
        };
        let warp = |id: usize| Warp::new(launched.program, id / warps, id % warps, id);
        Unit {
            launched,
            blocks: (0..blocks).map(block).collect(),
            warps: (0..blocks * warps).map(warp).collect(),
            clocks: Clocks::new(blocks * warps),
            bulk_copies: Vec::new(),
            cluster_phase: 0,
            cluster_arrived: 0,
            cluster_row: Vec::new(),
            cluster_published: Vec::new(),
            sync: Synchronisation::default(),
            grid: None,
            changes: 0,
            polls: 0,
            turn_polls: 0,
            spins: vec![None; blocks * warps],
            spent: 0,
            counted_before: 0,
            asleep: vec![false; blocks * warps],
            turns: (0..blocks * warps).collect(),
            findings: Findings::default(),
            printed: Printed::default(),
            failure: None,
            aborted: false,
            counters: Counters::default(),
            by_instruction: launched.by_line.then(|| Box::new(CountersByInstruction::new(launched.program))),
            number: 0,
            ended: false,
            clock: None,
            cluster_time: 0.0,
        }
    }

    /// Attributes what was counted to the instruction before this one.
    pub(super) fn attribute(&mut self, pc: u32) {
        if let Some(by_instruction) = &mut self.by_instruction {
            by_instruction.next(&mut self.counters, pc);
        }
    }

    /// The warp instructions that the cluster has executed so far.
    pub(super) fn executed(&self) -> u64 {
        self.counted_instructions() - self.counted_before
    }

    /// The warp instructions that the unit has executed so far.
    fn counted_instructions(&self) -> u64 {
        let attributed = self.by_instruction.as_ref().map_or(0, |by_instruction| by_instruction.instructions);
        attributed + self.counters.warp_instructions()
    }

    /// Everything that was counted, and by instruction if that was asked for.
    pub fn counted(&mut self) -> (Counters, Option<Box<CountersByInstruction>>) {
        match self.by_instruction.take() {
            Some(mut by_instruction) => {
                by_instruction.next(&mut self.counters, 0);
                (by_instruction.total(), Some(by_instruction))
            }
            None => (self.counters, None),
        }
    }

    /// Runs a cluster to completion; returns false if the launch is over.
    pub fn run(&mut self, cluster: u64) -> bool {
        self.start(cluster);
        let mut progress_at = self.spent;
        loop {
            match self.round() {
                Round::Over => break,
                Round::Still => self.deadlock(""),
                Round::Polls if self.spent - progress_at > PATIENCE => self.deadlock(""),
                Round::Polls => {}
                Round::Moves | Round::Reads => progress_at = self.spent,
            }
        }
        self.finish();
        self.aborted |= self.ended;
        if self.failure.is_some() {
            return false;
        }
        !self.ended || self.launched.steps_left.load(Ordering::Relaxed) > 0
    }

    /// Gives every warp a turn.
    pub fn round(&mut self) -> Round {
        if self.ended || self.warps.iter().all(|warp| warp.splits.live == 0) {
            return Round::Over;
        }
        let (changes, polls) = (self.changes, self.polls);
        let (mut moved, mut computed) = (false, false);
        for turn in 0..self.turns.len() {
            let (polls, spent) = (self.polls, self.spent);
            moved |= self.turn(self.turns[turn]);
            computed |= self.polls == polls && self.spent - spent >= u64::from(SLICE);
            if self.ended {
                return Round::Over;
            }
        }
        match moved {
            false => Round::Still,
            _ if self.changes != changes => Round::Moves,
            _ if computed || self.polls == polls => Round::Reads,
            _ => Round::Polls,
        }
    }

    /// Completes what the cluster left in flight.
    pub fn finish(&mut self) {
        self.finish_copies();
        if let Some(progress) = &self.launched.progress {
            progress.add_blocks(self.blocks.len() as u64);
        }
    }

    pub fn start(&mut self, cluster: u64) {
        let geometry = self.launched.geometry;
        let at = Geometry::split(cluster, geometry.clusters());
        for (rank, block) in self.blocks.iter_mut().enumerate() {
            let inner = Geometry::split(rank as u64, geometry.cluster);
            block.at = std::array::from_fn(|axis| at[axis] * geometry.cluster[axis] + inner[axis]);
            let [x, y, z] = block.at.map(u64::from);
            let [width, height, _] = geometry.grid.map(u64::from);
            block.number = (z * height + y) * width + x;
            block.shared.clear();
            block.barriers = Barriers::default();
            block.mbarriers = Mbarriers::default();
        }
        let threads = geometry.threads();
        for warp in &mut self.warps {
            let lanes = threads.saturating_sub(warp.number * 32).min(32);
            warp.start(if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 });
        }
        self.clocks = Clocks::new(self.warps.len());
        self.bulk_copies.clear();
        self.cluster_phase = 0;
        self.cluster_arrived = 0;
        self.cluster_row = vec![0; self.warps.len() + 1];
        self.cluster_published = vec![0; self.warps.len() + 1];
        self.sync = Synchronisation::default();
        self.spins.fill(None);
        self.asleep.fill(false);
        self.counted_before = self.counted_instructions();
        if self.launched.seed != 0 {
            self.turns = (0..self.warps.len()).collect();
            shuffle(&mut self.turns, self.launched.seed ^ cluster.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        self.number = cluster;
        self.ended = false;
        self.cluster_time = 0.0;
    }

    /// Runs a warp until all of its splits wait. Returns whether it did anything.
    pub(super) fn turn(&mut self, id: usize) -> bool {
        let splits = &self.warps[id].splits;
        if splits.live == 0 {
            return false;
        }
        // Only the completion of a barrier wakes such a warp, and that has changed what it waits for.
        if self.asleep[id] && splits.all.iter().all(|split| matches!(split.wait, Wait::Barrier(_))) {
            return false;
        }
        let empty = Warp::new(&EMPTY, 0, 0, 0);
        let mut warp = std::mem::replace(&mut self.warps[id], empty);
        let live = warp.splits.live;
        let mut moved = false;
        let mut place = 0;
        // Every split gets a slice; new ones are appended.
        while place < warp.splits.all.len() && !self.ended {
            let there = if self.ready(&mut warp, place) {
                moved = true;
                self.turn_polls = 0;
                self.run_split(&mut warp, place)
            } else {
                true
            };
            place += usize::from(there);
        }
        moved |= self.release_collectives(&mut warp);
        moved |= self.release_divergent_barriers(&mut warp);
        if warp.splits.live != live {
            self.changes += 1;
            self.lanes_ended(&mut warp);
        }
        self.warps[id] = warp;
        self.asleep[id] = !moved;
        moved
    }

    /// Whether a split can go on.
    fn ready(&mut self, warp: &mut Warp, place: usize) -> bool {
        let WarpSplit { wait, .. } = warp.splits.all[place];
        let ready = match wait {
            Wait::Nothing => true,
            Wait::Lanes { .. } | Wait::Barrier(_) => false,
            Wait::Mbarrier { block, offset, phase } => self.phase_is_over(warp, block, offset, phase),
            Wait::Cluster { phase } => self.cluster_phase > phase,
        };
        if ready {
            if matches!(wait, Wait::Cluster { .. }) {
                self.cluster_passed(warp);
            }
            warp.splits.all[place].wait = Wait::Nothing;
        }
        ready
    }

    /// Nothing can go on: reports who waits for what, and ends the unit. `why` says what else keeps them waiting.
    pub fn deadlock(&mut self, why: &str) {
        let mut waiting = Vec::new();
        for warp in &self.warps {
            for split in &warp.splits.all {
                let what = match split.wait {
                    Wait::Nothing => {
                        let Some((pc, lane, address)) = self.spins[warp.id] else { continue };
                        let what = format!("for another value at {address:#x}, which nobody changes");
                        waiting.push((warp.block, warp.number, pc, 1 << lane, Some(address), what));
                        continue;
                    }
                    Wait::Lanes { mask, .. } => self.describe_missing_lanes(warp, split.pc, mask),
                    Wait::Barrier(number) => format!("at barrier {number}"),
                    Wait::Mbarrier { offset, .. } => {
                        let state = self.blocks[warp.block].mbarriers.describe(offset);
                        format!("on the mbarrier at {offset:#x} ({state})")
                    }
                    Wait::Cluster { .. } => "at the cluster barrier".to_owned(),
                };
                // The program counter may already be past the instruction that waits.
                let behind = matches!(split.wait, Wait::Barrier(_) | Wait::Cluster { .. });
                let pc = split.pc - u32::from(behind);
                waiting.push((warp.block, warp.number, pc, split.mask, None, what));
            }
        }
        for (block, number, pc, mask, address, what) in waiting {
            let thread = number as u32 * 32 + mask.trailing_zeros();
            let number = self.blocks[block].number;
            self.findings.add(FindingKind::Deadlock, pc, || {
                (number, thread, address, format!("waits {what}, and nothing can wake it{why}"))
            });
        }
        self.ended = true;
    }

    /// Reports something about a lane.
    pub(super) fn report(
        &mut self,
        warp: &Warp,
        kind: FindingKind,
        pc: u32,
        lane: u32,
        address: Option<u64>,
        message: impl FnOnce() -> String,
    ) {
        if self.launched.timed {
            return;
        }
        let block = self.blocks[warp.block].number;
        let thread = warp.number as u32 * 32 + lane;
        self.findings.add(kind, pc, || (block, thread, address, message()));
        self.findings.widen(kind, pc, block, thread);
    }

    /// Reports something about one lane's access.
    pub(super) fn report_access(
        &mut self,
        warp: &Warp,
        kind: FindingKind,
        access: LaneAccess,
        message: impl FnOnce() -> String,
    ) {
        self.report(warp, kind, access.pc, access.lane as u32, Some(access.address), message);
    }

    /// Reports a race of one lane's access; `same_value` says that both accesses write the same.
    pub(super) fn report_race_of(
        &mut self,
        warp: &Warp,
        access: LaneAccess,
        same_value: bool,
        message: impl FnOnce() -> String,
    ) {
        let (block, thread) = (self.blocks[warp.block].number, warp.number as u32 * 32 + access.lane as u32);
        self.findings.add_race(access.pc, same_value, || (block, thread, Some(access.address), message()));
    }

    /// Updates the time before which everything is ordered before the warp.
    pub(super) fn update_floor(&self, warp: &mut Warp) {
        warp.floor = self.clocks.floor(warp.id).min(warp.last_sync);
    }
}

/// A program without registers, for a placeholder warp.
pub(super) static EMPTY: Program = Program {
    instructions: Vec::new(),
    operands: Vec::new(),
    lines: Vec::new(),
    words: Vec::new(),
    longs: Vec::new(),
    tables: Vec::new(),
    subroutines: Vec::new(),
    calls: Vec::new(),
    unsupported: Vec::new(),
    uses_heap: false,
    reconvergence: Vec::new(),
    word_count: 0,
    long_count: 0,
    predicate_count: 0,
    local_bytes: 0,
    shared_bytes: 0,
    global_granule: 1,
    shared_granule: 1,
    depends_on_order: false,
    access_facts: Vec::new(),
    shared_variables: Vec::new(),
    address_constants: Vec::new(),
    copies: Vec::new(),
    copy_count: 0,
    tracked: Vec::new(),
    tracked_count: 0,
    contracted: Vec::new(),
    read_only_writes: false,
};
