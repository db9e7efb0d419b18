//! Global memory as warps access it: which allocation, and what is wrong with that.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    access::{Touch, for_lanes},
    unit::Unit,
    warp::Warp,
};
use crate::{check::FindingKind, memory::Missing};

/// Moments in the records of global memory have 29 bits.
const MOMENT: u32 = (1 << 29) - 1;

/// Several threads have read.
const MANY: u64 = 1 << 63;

/// Threads of several blocks have.
const MANY_BLOCKS: u64 = 1 << 62;

impl Unit<'_> {
    /// Hands on the lanes whose accesses are allowed, in groups of one allocation.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn global_groups(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: usize,
        touch: Touch,
        mut each: impl FnMut(&mut Self, &mut Warp, usize, u32),
    ) {
        if self.launched.timed {
            self.time_global(addresses, mask, bytes as u64, touch);
        }
        // Vectors of 32 bytes are two accesses to the checks.
        let align = bytes.min(32) as u64;
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            let views = &self.launched.views;
            let contains = |view: usize, address: u64| {
                let allocation = views[view].allocation;
                !allocation.freed
                    && address >= allocation.base
                    && address + bytes as u64 <= allocation.base + allocation.bytes as u64
            };
            let view = if warp.last_view < views.len() && contains(warp.last_view, addresses[lane]) {
                warp.last_view
            } else {
                match self.launched.global.find(addresses[lane], bytes) {
                    Ok(view) => view,
                    Err(missing) => {
                        self.report_missing(warp, pc, lane as u32, addresses[lane], bytes, touch, missing);
                        rest &= !(1 << lane);
                        continue;
                    }
                }
            };
            warp.last_view = view;
            let allocation = views[view].allocation;
            let (base, end) = (allocation.base, allocation.base + allocation.bytes as u64 - bytes as u64);
            let mut group = 0u32;
            let mut low = 0;
            for (lane, &address) in addresses.iter().enumerate() {
                let inside = address >= base && address <= end;
                group |= u32::from(inside) << lane;
                low |= if inside { address } else { 0 };
            }
            group &= rest;
            rest &= !group;
            if low & (align - 1) != 0 {
                group = self.aligned_lanes(warp, pc, addresses, group, align);
            }
            if touch.reads() && !self.launched.timed {
                self.check_written(warp, pc, view, addresses, group, bytes);
            }
            if self.launched.races {
                self.check_races(warp, pc, view, addresses, group, bytes, touch);
            }
            each(self, warp, view, group);
        }
    }

    /// The lanes of a group whose addresses are aligned; the others are reported.
    fn aligned_lanes(&mut self, warp: &Warp, pc: u32, addresses: &[u64; 32], group: u32, align: u64) -> u32 {
        let mut kept = group;
        for_lanes(group, |lane| {
            let address = addresses[lane];
            if address & (align - 1) != 0 {
                kept &= !(1 << lane);
                self.report(warp, FindingKind::Misaligned, pc, lane as u32, Some(address), || {
                    format!("an access of {align} bytes is {} bytes off", address & (align - 1))
                });
            }
        });
        kept
    }

    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    pub(super) fn report_missing(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: u32,
        address: u64,
        bytes: usize,
        touch: Touch,
        missing: Missing,
    ) {
        let does = if touch.reads() { "read" } else { "written" };
        let kind = match missing {
            Missing::Freed { .. } => FindingKind::UseAfterFree,
            _ => FindingKind::OutOfBounds,
        };
        self.report(warp, kind, pc, lane, Some(address), || match missing {
            Missing::Freed { bytes: size } => {
                format!("{bytes} bytes are {does} in an allocation of {size} bytes that was freed")
            }
            Missing::Outside { base, bytes: size } if address < base => {
                format!("{bytes} bytes are {does}, {} bytes before an allocation of {size}", base - address)
            }
            Missing::Outside { base, bytes: size } => format!(
                "{bytes} bytes are {does}, {} bytes behind the begin of an allocation of {size}",
                address - base
            ),
            Missing::Nowhere => format!("{bytes} bytes are {does} where nothing was ever allocated"),
        });
    }

    fn check_written(
        &mut self,
        warp: &Warp,
        pc: u32,
        view: usize,
        addresses: &[u64; 32],
        group: u32,
        bytes: usize,
    ) {
        let allocation = self.launched.views[view].allocation;
        for_lanes(group, |lane| {
            let offset = (addresses[lane] - allocation.base) as usize;
            if !allocation.is_written(offset, bytes) {
                self.report(warp, FindingKind::Uninitialised, pc, lane as u32, Some(addresses[lane]), || {
                    format!(
                        "{bytes} bytes are read at {offset} of an allocation of {}, which nobody wrote",
                        allocation.bytes
                    )
                });
            }
        });
    }

    /// Looks for accesses of other threads that nothing orders with these. A record is a block and one, a warp, a lane and a
    /// moment; of reads also whether there are several.
    #[allow(clippy::too_many_arguments)]
    fn check_races(
        &mut self,
        warp: &Warp,
        pc: u32,
        view: usize,
        addresses: &[u64; 32],
        group: u32,
        bytes: usize,
        touch: Touch,
    ) {
        let launched = self.launched;
        let view = &launched.views[view];
        let (granule, base) = (view.granule, view.allocation.base);
        let block = self.blocks[warp.block].number;
        let now = u64::from(self.clocks.now() & MOMENT);
        let own = (u64::from(block) + 1) << 39 | (warp.number as u64) << 34 | now;
        let weak = matches!(touch, Touch::Read | Touch::Write);
        for_lanes(group, |lane| {
            let offset = (addresses[lane] - base) as usize;
            let mine = own | (lane as u64) << 29;
            for piece in offset / granule..(offset + bytes).div_ceil(granule) {
                let write = view.writes[piece].load(Relaxed);
                if write != 0 && weak && write >> 29 != mine >> 29 && self.races_with(warp, write, lane) {
                    self.report_race(warp, pc, lane, addresses[lane], touch, "written", write);
                }
                match touch {
                    Touch::Read => {
                        let read = view.reads[piece].load(Relaxed);
                        if read == 0 {
                            view.reads[piece].store(mine, Relaxed);
                        } else if read & (MANY | MANY_BLOCKS) != MANY | MANY_BLOCKS
                            && read >> 29 != mine >> 29
                        {
                            let other_block = (read & !(MANY | MANY_BLOCKS)) >> 39 != mine >> 39;
                            let flags = MANY | if other_block { MANY_BLOCKS } else { 0 };
                            view.reads[piece].store(read | flags, Relaxed);
                        }
                    }
                    Touch::Write => {
                        let read = view.reads[piece].load(Relaxed);
                        if read != 0 && read >> 29 != mine >> 29 && self.read_races(warp, read, lane) {
                            self.report_race(warp, pc, lane, addresses[lane], touch, "read", read);
                        }
                        view.writes[piece].store(mine, Relaxed);
                    }
                    Touch::Atomic | Touch::StrongRead | Touch::StrongWrite => {}
                }
            }
        });
    }

    fn races_with(&self, warp: &Warp, record: u64, lane: usize) -> bool {
        let block = (record >> 39) - 1;
        let here = &self.blocks[warp.block];
        if block != u64::from(here.number) {
            // Blocks of a cluster can wait for each other, and any blocks can by atomics.
            let cluster = self.blocks.len() > 1 && self.blocks.iter().any(|b| u64::from(b.number) == block);
            return !here.acquired && !cluster;
        }
        let other = (record >> 34 & 0x1f) as usize;
        let at = record as u32 & MOMENT;
        if other == warp.number {
            return (record >> 29 & 0x1f) as usize != lane && at >= warp.met;
        }
        let per_block = self.launched.geometry.warps();
        self.clocks.seen(warp.id, warp.block * per_block + other) < at
    }

    /// Whether a write races with reads: several are only compared by the first of them, and not at all where warps may be
    /// ordered by other means than barriers of the block.
    fn read_races(&self, warp: &Warp, record: u64, lane: usize) -> bool {
        if record & MANY_BLOCKS != 0 {
            return !self.blocks[warp.block].acquired && self.blocks.len() == 1;
        }
        let clean = record & !MANY;
        let same_block = (clean >> 39) - 1 == u64::from(self.blocks[warp.block].number);
        if record & MANY != 0 && same_block {
            return false;
        }
        self.races_with(warp, clean, lane)
    }

    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    fn report_race(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        address: u64,
        touch: Touch,
        other: &str,
        record: u64,
    ) {
        let record = record & !(MANY | MANY_BLOCKS);
        let block = (record >> 39) - 1;
        let thread = (record >> 34 & 0x1f) * 32 + (record >> 29 & 0x1f);
        let does = if touch.reads() { "reads" } else { "writes" };
        let here = self.blocks[warp.block].number;
        self.report(warp, FindingKind::Race, pc, lane as u32, Some(address), || {
            let whose =
                if block == u64::from(here) { "the same block".to_owned() } else { format!("block {block}") };
            format!(
                "the thread {does} what thread {thread} of {whose} has {other}, and nothing orders the two"
            )
        });
    }
}
