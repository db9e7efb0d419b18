//! A warp: 32 lanes with their registers, and where each of them is.

use super::{copies::AsyncCopies, fragments::Fragments, registers::Registers, warpgroup::Products};
use crate::{isa::Program, timing::WarpClock};

/// A warp of a block.
#[derive(Debug)]
pub(crate) struct Warp {
    pub registers: Registers,
    pub fragments: Fragments,
    /// The block that it is of, in its cluster.
    pub block: usize,
    /// Its number in the block.
    pub number: usize,
    /// Its number in the cluster, which the clocks know it by.
    pub id: usize,
    /// When its lanes last waited for each other.
    pub met: u32,
    /// Everything before is known to it.
    pub floor: u32,
    /// When it last fenced ordinary accesses from those of the copy engine and of products.
    pub proxy_fence: u32,
    /// Local memory: one lane's after the other's.
    pub local: Vec<u8>,
    /// The view of global memory that it last found something in.
    pub last_view: usize,
    pub copies: AsyncCopies,
    pub products: Products,
    /// The phase of the cluster's barrier that it arrived in, where it has not waited yet.
    pub at_cluster: Option<u64>,
    /// Its time, where that is kept.
    pub clock: Option<Box<WarpClock>>,
}

impl Warp {
    pub fn new(program: &Program, block: usize, number: usize, id: usize) -> Warp {
        Warp {
            registers: Registers::new(program),
            fragments: Fragments::default(),
            block,
            number,
            id,
            met: 0,
            floor: 0,
            proxy_fence: 0,
            local: vec![0; 32 * program.local_bytes],
            last_view: 0,
            copies: AsyncCopies::default(),
            products: Products::default(),
            at_cluster: None,
            clock: None,
        }
    }

    /// When all that it started has started; 0 where no time is kept.
    pub fn now(&self) -> f64 {
        self.clock.as_ref().map_or(0.0, |clock| clock.now())
    }

    /// Nothing of it starts before; 0 where no time is kept.
    #[inline(always)]
    pub fn base(&self) -> f64 {
        self.clock.as_ref().map_or(0.0, |clock| clock.base())
    }

    /// Nothing of it starts before a moment.
    pub fn wait_until(&mut self, moment: f64) {
        if let Some(clock) = &mut self.clock {
            clock.wait_until(moment);
        }
    }

    /// Begins again, with these lanes.
    pub fn start(&mut self, lanes: u32) {
        self.registers.clear();
        self.fragments.start(lanes);
        self.met = 0;
        self.floor = 0;
        self.proxy_fence = 0;
        self.local.fill(0);
        self.copies = AsyncCopies::default();
        self.products = Products::default();
        self.at_cluster = None;
    }
}
