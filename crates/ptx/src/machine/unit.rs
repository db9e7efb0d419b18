//! A cluster of blocks, or a block alone: what one thread of the host runs from begin to end.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    barriers::Barriers,
    copies::BulkCopy,
    fragments::{Fragment, Wait},
    mbarriers::Mbarriers,
    registers::Constants,
    warp::Warp,
};
use crate::{
    check::{Clocks, FindingKind, Findings},
    counters::Counters,
    isa::Program,
    memory::{Global, Shared, View},
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

    /// The coordinates of a number, the first axis fastest.
    pub fn split(number: u64, extents: [u32; 3]) -> [u32; 3] {
        let [x, y] = [u64::from(extents[0].max(1)), u64::from(extents[1].max(1))];
        [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
    }
}

/// A launch, as all units see it.
pub(crate) struct Launched<'a> {
    pub program: &'a Program,
    pub constants: Constants,
    pub parameters: Vec<u8>,
    pub geometry: Geometry,
    pub global: &'a Global,
    pub views: Vec<View<'a>>,
    /// Whether the processor has wide vectors.
    pub wide: bool,
    pub races: bool,
    /// Whether numbers that stop being finite are looked for.
    pub births: bool,
    /// Whether only its course matters, and its time: nothing is checked, and no product computed.
    pub timed: bool,
    /// Instructions that a launch may still run; shared by all units.
    pub steps_left: AtomicU64,
    pub multiprocessors: u32,
}

/// A block under way.
#[derive(Debug)]
pub(crate) struct Block {
    pub shared: Shared,
    pub barriers: Barriers,
    pub mbarriers: Mbarriers,
    /// Its coordinates in the grid, and its number.
    pub at: [u32; 3],
    pub number: u64,
    /// Whether it may know what other blocks did: by an atomic whose result it took, or by a strong load.
    pub acquired: bool,
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
    /// What those knew that made atomics and strong stores.
    pub told: Vec<u32>,
    pub findings: Findings,
    pub counters: Counters,
    /// The cluster's number.
    pub number: u64,
    pub ended: bool,
    /// The time of its multiprocessor, where that is kept.
    pub clock: Option<Box<Clock>>,
    /// When the cluster's barrier was last passed.
    pub cluster_time: f64,
}

/// Instructions that a fragment runs before others get a turn.
pub(super) const SLICE: u32 = 4096;

/// The same where time is kept: the less, the closer to the order of their time warps run.
pub(super) const TIMED_SLICE: u32 = 64;

/// Clocks by which a warp may get ahead of the others in a turn.
pub(super) const TURN_CLOCKS: f64 = 32.0;

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
            acquired: false,
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
            told: Vec::new(),
            findings: Findings::default(),
            counters: Counters::default(),
            number: 0,
            ended: false,
            clock: None,
            cluster_time: 0.0,
        }
    }

    /// Runs a cluster to its end, and gives false where the launch is over.
    pub fn run(&mut self, cluster: u64) -> bool {
        self.start(cluster);
        while !self.ended && self.warps.iter().any(|warp| warp.fragments.live != 0) {
            let mut moved = false;
            for id in 0..self.warps.len() {
                moved |= self.turn(id);
                if self.ended {
                    break;
                }
            }
            if !moved && !self.ended {
                self.deadlock();
            }
        }
        self.finish_copies();
        !self.ended || self.launched.steps_left.load(Ordering::Relaxed) > 0
    }

    pub(super) fn start(&mut self, cluster: u64) {
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
            block.acquired = false;
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
        self.told = vec![0; self.warps.len() + 1];
        self.number = cluster;
        self.ended = false;
        self.cluster_time = 0.0;
    }

    /// Lets a warp run until it waits. Gives whether it did anything.
    pub(super) fn turn(&mut self, id: usize) -> bool {
        if self.warps[id].fragments.live == 0 {
            return false;
        }
        let empty = Warp::new(&EMPTY, 0, 0, 0);
        let mut warp = std::mem::replace(&mut self.warps[id], empty);
        let live = warp.fragments.live;
        let mut moved = false;
        let mut place = 0;
        // Every fragment gets a slice; those that are made on the way come last.
        while place < warp.fragments.all.len() && !self.ended {
            let there = if self.ready(&mut warp, place) {
                moved = true;
                self.run_fragment(&mut warp, place)
            } else {
                true
            };
            place += usize::from(there);
        }
        moved |= self.meet_lanes(&mut warp);
        moved |= self.lanes_without_barrier(&mut warp);
        if warp.fragments.live != live {
            self.lanes_ended(&mut warp);
        }
        self.warps[id] = warp;
        moved
    }

    /// Whether a fragment can go on.
    fn ready(&mut self, warp: &mut Warp, place: usize) -> bool {
        let Fragment { wait, .. } = warp.fragments.all[place];
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
            warp.fragments.all[place].wait = Wait::Nothing;
        }
        ready
    }

    /// Nothing can go on: says who waits for what, and ends the unit.
    pub(super) fn deadlock(&mut self) {
        let mut waiting = Vec::new();
        for warp in &self.warps {
            for fragment in &warp.fragments.all {
                let what = match fragment.wait {
                    Wait::Nothing => continue,
                    Wait::Lanes { mask, .. } => format!("for lanes {mask:#010x} of its warp"),
                    Wait::Barrier(number) => format!("at barrier {number}"),
                    Wait::Mbarrier { offset, .. } => {
                        let state = self.blocks[warp.block].mbarriers.describe(offset);
                        format!("at the mbarrier {offset:#x} ({state})")
                    }
                    Wait::Cluster { .. } => "at the cluster's barrier".to_owned(),
                };
                // Some wait behind the instruction that made them wait.
                let behind = matches!(fragment.wait, Wait::Barrier(_) | Wait::Cluster { .. });
                waiting.push((warp.block, warp.number, fragment.pc - u32::from(behind), fragment.mask, what));
            }
        }
        for (block, number, pc, mask, what) in waiting {
            let thread = number as u32 * 32 + mask.trailing_zeros();
            let number = self.blocks[block].number;
            self.findings.add(FindingKind::Deadlock, pc, || {
                (number, thread, None, format!("the thread waits {what}, and nothing can wake it"))
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
    }

    /// What a warp has learnt changes what is old for it.
    pub(super) fn learnt(&self, warp: &mut Warp) {
        warp.floor = self.clocks.floor(warp.id).min(warp.met);
    }
}

/// A program without registers, for a warp that holds a place.
pub(super) static EMPTY: Program = Program {
    instructions: Vec::new(),
    operands: Vec::new(),
    lines: Vec::new(),
    words: Vec::new(),
    longs: Vec::new(),
    tables: Vec::new(),
    reconvergence: Vec::new(),
    word_count: 0,
    long_count: 0,
    predicate_count: 0,
    local_bytes: 0,
    shared_bytes: 0,
    global_granule: 1,
    shared_granule: 1,
};
