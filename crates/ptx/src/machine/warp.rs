//! A warp: 32 lanes, their registers and their program counters.

use super::{
    async_copies::AsyncCopies, calls::CallStack, registers::Registers, warp_splits::WarpSplits,
    wgmma::WgmmaGroups,
};
use crate::{isa::Program, timing::WarpClock};

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
    /// Everything before this time is ordered before the warp.
    pub floor: u32,
    /// When it last executed `fence.proxy.async`.
    pub proxy_fence: u32,
    /// Local memory, lane after lane.
    pub local: Vec<u8>,
    pub stack: CallStack,
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
            floor: 0,
            proxy_fence: 0,
            local: vec![0; 32 * program.local_bytes],
            stack: CallStack::new(program),
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

    /// Starts over with these lanes.
    pub fn start(&mut self, lanes: u32) {
        self.registers.clear();
        self.splits.start(lanes);
        self.last_sync = 0;
        self.floor = 0;
        self.proxy_fence = 0;
        self.local.fill(0);
        self.stack.clear();
        self.copies = AsyncCopies::default();
        self.wgmma = WgmmaGroups::default();
        self.at_cluster = None;
    }
}
