//! A warp: 32 lanes, their registers and their program counters.

use super::{
    async_copies::AsyncCopies, calls::CallStack, registers::Registers, warp_splits::WarpSplits,
    wgmma::WgmmaGroups,
};
use crate::{check::LaneClocks, isa::Program, timing::WarpClock};

/// A warp of a block.
#[derive(Debug)]
pub(crate) struct Warp {
    pub registers: Registers,
    pub splits: WarpSplits,
    /// Its block's rank in the cluster.
    pub block: usize,
    /// Its index in the block.
    pub number: usize,
    /// Its index in the cluster, which the vector clocks use.
    pub id: usize,
    /// When all of its lanes last synchronised.
    pub last_sync: u32,
    /// What its lanes have seen of each other, if only some of them synchronised.
    pub lane_clocks: Option<Box<LaneClocks>>,
    /// Everything before this time is ordered before the warp.
    pub floor: u32,
    /// When it last executed `fence.proxy.async`.
    pub proxy_fence: u32,
    /// Local memory, lane after lane.
    pub local: Vec<u8>,
    pub stack: CallStack,
    /// Which bytes of it were written.
    pub local_written: Vec<u8>,
    /// For each copy of the program, and each lane: the bytes that were loaded although nobody wrote them, as a mask.
    pub undefined: Vec<[u8; 32]>,
    /// Whether there may be any.
    pub any_undefined: bool,
    /// For each register that may be undefined: the lanes in which it is defined.
    pub defined: Vec<u32>,
    /// The allocation that it last accessed.
    pub last_view: usize,
    pub copies: AsyncCopies,
    pub wgmma: WgmmaGroups,
    /// The phase of the cluster barrier that it arrived in, if it has not waited yet.
    pub at_cluster: Option<u64>,
    /// Its clock, if time is kept.
    pub clock: Option<Box<WarpClock>>,
}

impl Warp {
    pub fn new(program: &Program, block: usize, number: usize, id: usize) -> Warp {
        Warp {
            registers: Registers::new(program),
            splits: WarpSplits::default(),
            block,
            number,
            id,
            last_sync: 0,
            lane_clocks: None,
            floor: 0,
            proxy_fence: 0,
            local: vec![0; 32 * program.local_bytes],
            stack: CallStack::new(program),
            local_written: vec![0; 32 * program.local_bytes],
            undefined: vec![[0; 32]; program.copy_count],
            any_undefined: false,
            defined: vec![0; program.tracked_count],
            last_view: 0,
            copies: AsyncCopies::default(),
            wgmma: WgmmaGroups::default(),
            at_cluster: None,
            clock: None,
        }
    }

    /// When everything that it issued has started; 0 if no time is kept.
    pub fn now(&self) -> f64 {
        self.clock.as_ref().map_or(0.0, |clock| clock.now())
    }

    /// Nothing of it starts before this time; 0 if no time is kept.
    #[inline(always)]
    pub fn base(&self) -> f64 {
        self.clock.as_ref().map_or(0.0, |clock| clock.base())
    }

    /// Lets nothing of it start before a time.
    pub fn wait_until(&mut self, moment: f64) {
        if let Some(clock) = &mut self.clock {
            clock.wait_until(moment);
        }
    }

    /// Some of its lanes synchronise. What they did before `now` is ordered among them, and nothing else is: neither what other lanes
    /// did, nor those that have exited.
    pub fn synchronise_lanes(&mut self, lanes: u32, now: u32) {
        if lanes & self.splits.started == self.splits.started {
            self.last_sync = now;
            self.lane_clocks = None;
        } else {
            let clocks = self.lane_clocks.get_or_insert_with(|| Box::new(LaneClocks::new(self.last_sync)));
            clocks.synchronise(lanes, now);
        }
    }

    /// Whether what lane `other` did at a time is not ordered before what `lane` does now.
    #[inline(always)]
    pub fn misses_lane(&self, lane: usize, other: usize, at: u32) -> bool {
        lane != other
            && at >= self.last_sync
            && self.lane_clocks.as_deref().is_none_or(|clocks| clocks.misses(lane, other, at))
    }

    /// Starts over with these lanes.
    pub fn start(&mut self, lanes: u32) {
        self.registers.clear();
        self.splits.start(lanes);
        self.last_sync = 0;
        self.lane_clocks = None;
        self.floor = 0;
        self.proxy_fence = 0;
        self.local.fill(0);
        self.stack.clear();
        self.local_written.fill(0);
        self.undefined.fill([0; 32]);
        self.any_undefined = false;
        self.defined.fill(0);
        self.copies = AsyncCopies::default();
        self.wgmma = WgmmaGroups::default();
        self.at_cluster = None;
    }
}
