//! Accesses to global memory: bounds, alignment, initialisation, races.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::{
    access::{AccessKind, LaneAccess, WarpAccess, for_lanes},
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::{Earlier, FindingKind},
    memory::{Missing, View},
};

/// The latest time that the records of global memory can hold, in 29 bits. Later times count as this one, and as ordered.
const MOMENT: u32 = (1 << 29) - 1;

/// Blocks that the records can hold, in 23 bits. Blocks with a higher number are not checked for races in global memory.
const BLOCKS: u64 = (1 << 23) - 1;

/// Flag of a write: it was an atomic.
const ATOMIC: u64 = 1 << 63;

/// Flag of a read: several threads read.
const MANY: u64 = 1 << 63;

/// Flag of a read: threads of several blocks read.
const MANY_BLOCKS: u64 = 1 << 62;

const READ_FLAGS: u64 = MANY | MANY_BLOCKS;

/// The advice for a race between blocks, which block barriers do not order.
const BETWEEN_BLOCKS: &str = "blocks do not wait for each other: write from one block only, use atomics, or read in a later \
                              launch or after a cooperative grid sync";

/// Records a read. Everything before `floor` is ordered before the reader, so it may replace an older record of its own block.
#[inline(always)]
fn note_read(record: &AtomicU64, mine: u64, floor: u32) {
    let mut read = record.load(SeqCst);
    loop {
        let known = read & !READ_FLAGS;
        let same_block = known >> 39 == mine >> 39;
        let old = same_block && read & MANY_BLOCKS == 0 && (known as u32 & MOMENT) < floor;
        let new = if read == 0 || old {
            mine
        } else if known >> 29 == mine >> 29 {
            return;
        } else {
            read | MANY | if same_block { 0 } else { MANY_BLOCKS }
        };
        if new == read {
            return;
        }
        match record.compare_exchange_weak(read, new, SeqCst, SeqCst) {
            Ok(_) => return,
            Err(now) => read = now,
        }
    }
}

impl Unit<'_> {
    /// Checks an access, and calls `each` with the lanes whose accesses are allowed, in groups of one allocation.
    pub(super) fn global_groups(
        &mut self,
        warp: &mut Warp,
        access: &WarpAccess<'_>,
        mut each: impl FnMut(&mut Self, &mut Warp, usize, u32),
    ) {
        let WarpAccess { pc, addresses, mask, bytes, kind } = *access;
        if self.launched.timed {
            self.time_global(access);
        }
        // The checks see vectors of 32 bytes as two accesses.
        let align = bytes.min(32) as u64;
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            let views = &self.launched.views;
            let contains = |view: usize, address: u64| {
                let allocation = views[view].allocation;
                !allocation.freed && allocation.contains(address, bytes)
            };
            let view = if warp.last_view < views.len() && contains(warp.last_view, addresses[lane]) {
                warp.last_view
            } else {
                match self.launched.global.find(addresses[lane], bytes) {
                    Ok(view) => view,
                    Err(missing) => {
                        self.report_missing(warp, access.lane(lane), missing);
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
            if self.launched.heap_view == Some(view) {
                group = self.heap_lanes(warp, access, group);
            }
            let allowed = WarpAccess { mask: group, ..*access };
            if kind.reads() && !self.launched.timed {
                self.check_written(warp, view, &allowed);
            }
            if self.launched.read_only.is_some() {
                self.check_read_only(warp, view, &allowed);
            }
            if self.launched.races {
                self.check_races(warp, view, &allowed);
            }
            each(self, warp, view, group);
        }
    }

    /// The lanes of a group whose addresses are aligned; the others are reported.
    fn aligned_lanes(&mut self, warp: &Warp, pc: u32, addresses: &[u64; 32], group: u32, align: u64) -> u32 {
        let mut kept = group;
        for_lanes(group, |lane| {
            let address = addresses[lane];
            let off = address & (align - 1);
            if off != 0 {
                kept &= !(1 << lane);
                self.report(warp, FindingKind::Misaligned, pc, lane as u32, Some(address), || {
                    format!("accesses {align} bytes at an address that is {off} past a multiple of {align}")
                });
            }
        });
        kept
    }

    #[inline(never)]
    fn report_missing(&mut self, warp: &Warp, access: LaneAccess, missing: Missing) {
        let LaneAccess { address, bytes, kind, .. } = access;
        let does = kind.verb();
        let found = match missing {
            Missing::Freed { .. } => FindingKind::UseAfterFree,
            _ => FindingKind::OutOfBounds,
        };
        self.report_access(warp, found, access, || match missing {
            Missing::Freed { bytes: size } => {
                format!("{does} {bytes} bytes in a {size}-byte allocation that was freed")
            }
            Missing::Outside { base, bytes: size } if address < base => {
                let before = base - address;
                format!("{does} {bytes} bytes, {before} bytes before the start of a {size}-byte allocation")
            }
            Missing::Outside { base, bytes: size } => {
                format!("{does} {bytes} bytes at offset {} of a {size}-byte allocation", address - base)
            }
            Missing::Nowhere => format!("{does} {bytes} bytes at an address that was never allocated"),
        });
    }

    fn check_written(&mut self, warp: &mut Warp, view: usize, access: &WarpAccess<'_>) {
        let allocation = self.launched.views[view].allocation;
        let bytes = access.bytes;
        for_lanes(access.mask, |lane| {
            let offset = (access.addresses[lane] - allocation.base) as usize;
            if allocation.is_written(offset, bytes) {
                return;
            }
            let unwritten = allocation.unwritten(offset, bytes);
            if self.is_unwritten_wrong(access.pc, unwritten) {
                self.report_access(warp, FindingKind::Uninitialised, access.lane(lane), || {
                    let size = allocation.bytes;
                    format!(
                        "reads {bytes} bytes at offset {offset} of a {size}-byte allocation that were never written"
                    )
                });
            } else {
                self.note_undefined(warp, access.pc, lane, unwritten);
            }
        });
    }

    /// Looks for accesses of other threads that nothing orders with these. A record holds the block's number plus one, the warp,
    /// the lane and the time; that of a write also whether it was an atomic, that of a read whether there were several.
    ///
    /// Blocks run on several host threads, which share the records. A writer stores its record before it looks for readers, and a
    /// reader before it looks for a writer, so that one of the two sees the other.
    fn check_races(&mut self, warp: &Warp, view: usize, access: &WarpAccess<'_>) {
        let WarpAccess { pc, addresses, mask, bytes, kind } = *access;
        let block = self.blocks[warp.block].number;
        if block >= BLOCKS || matches!(kind, AccessKind::StrongRead | AccessKind::StrongWrite) {
            return;
        }
        let launched = self.launched;
        let view = &launched.views[view];
        let base = view.allocation.base;
        let now = u64::from(self.clocks.now().min(MOMENT));
        let own = (block + 1) << 39 | (warp.number as u64) << 34 | now;
        let atomic = if kind.is_atomic() { ATOMIC } else { 0 };
        for_lanes(mask, |lane| {
            let offset = (addresses[lane] - base) as usize;
            let mine = own | (lane as u64) << 29;
            for piece in view.granules(offset, bytes) {
                let write = if kind == AccessKind::Read {
                    note_read(&view.reads[piece], mine, warp.floor);
                    view.writes[piece].load(SeqCst)
                } else {
                    let write = match view.writes[piece].load(SeqCst) {
                        write if kind.is_atomic() && self.is_unreleased(warp, write, mine) => write,
                        _ => view.writes[piece].swap(mine | atomic, SeqCst),
                    };
                    let read = view.reads[piece].load(SeqCst);
                    if read != 0 && self.read_races(warp, read, mine) {
                        self.report_race(warp, access.lane(lane), "read", read & !READ_FLAGS, false);
                    }
                    write
                };
                // Atomics on the same address are ordered among each other.
                if write & atomic == 0 && write != 0 && self.races_with(warp, write & !ATOMIC, mine) {
                    let did = if write & ATOMIC == 0 { "wrote" } else { "updated with an atomic" };
                    let same = kind == AccessKind::Write
                        && write & ATOMIC == 0
                        && self.findings.asks_for_values(pc)
                        && self.global_holds(warp, view, access, lane, write & !ATOMIC);
                    self.report_race(warp, access.lane(lane), did, write & !ATOMIC, same);
                }
            }
        });
    }

    /// Whether a record is a plain write of the warp since its last release. An atomic of the same warp leaves that record in place,
    /// because other warps' atomics race with the write too.
    fn is_unreleased(&self, warp: &Warp, record: u64, mine: u64) -> bool {
        record != 0
            && record & ATOMIC == 0
            && record >> 34 == mine >> 34
            && !self.clocks.is_released(warp.id, record as u32 & MOMENT)
    }

    fn races_with(&self, warp: &Warp, record: u64, mine: u64) -> bool {
        if record >> 29 == mine >> 29 {
            return false;
        }
        let block = (record >> 39) - 1;
        let here = &self.blocks[warp.block];
        if block != here.number {
            // Blocks of a cluster can synchronise, and any blocks can through atomics.
            let cluster = self.blocks.len() > 1 && self.blocks.iter().any(|b| b.number == block);
            return !here.acquired && !cluster;
        }
        let other = (record >> 34 & 0x1f) as usize;
        let at = record as u32 & MOMENT;
        if other == warp.number {
            let lane = |record: u64| (record >> 29 & 0x1f) as usize;
            return warp.misses_lane(lane(mine), lane(record), at);
        }
        let per_block = self.launched.geometry.warps();
        self.clocks.seen(warp.id, warp.block * per_block + other) < at
    }

    /// Whether a write races with reads. If several threads of a block read, only the first is recorded; the others read no earlier,
    /// so the first stands for all.
    fn read_races(&self, warp: &Warp, record: u64, mine: u64) -> bool {
        let here = &self.blocks[warp.block];
        if record & MANY_BLOCKS != 0 {
            return !here.acquired && self.blocks.len() == 1;
        }
        let first = record & !READ_FLAGS;
        if record & MANY != 0 && first >> 29 == mine >> 29 {
            // The writer itself read first, and the other readers are not recorded: it is a race only if none of them can have been
            // ordered before the writer since.
            let at = first as u32 & MOMENT;
            let per_block = self.launched.geometry.warps();
            let others = (warp.block * per_block..(warp.block + 1) * per_block).filter(|&id| id != warp.id);
            let reader = (first >> 29 & 0x1f) as usize;
            let lanes = (0..32).all(|lane| lane == reader || warp.misses_lane(reader, lane, at));
            return lanes && others.into_iter().all(|id| self.clocks.seen(warp.id, id) < at);
        }
        self.races_with(warp, first, mine)
    }

    /// Whether a store finds in memory what it is about to write there, or what an earlier lane of the same instruction writes.
    fn global_holds(
        &self,
        warp: &Warp,
        view: &View<'_>,
        access: &WarpAccess<'_>,
        lane: usize,
        record: u64,
    ) -> bool {
        let address = access.addresses[lane];
        let (block, number) = ((record >> 39) - 1, (record >> 34 & 0x1f) as usize);
        let other = (record >> 29 & 0x1f) as usize;
        let own = block == self.blocks[warp.block].number && number == warp.number;
        let earlier = own && access.mask >> other & 1 == 1 && access.addresses[other] == address;
        let offset = (address - view.allocation.base) as usize;
        let holds = |at: usize, bytes: usize| view.allocation.load(offset + at, bytes);
        self.stores_same_value(warp, access, lane, earlier.then_some(other), holds)
    }

    #[inline(never)]
    fn report_race(&mut self, warp: &Warp, access: LaneAccess, did: &str, record: u64, same_value: bool) {
        let block = (record >> 39) - 1;
        let thread = (record >> 34 & 0x1f) * 32 + (record >> 29 & 0x1f);
        let here = self.blocks[warp.block].number;
        self.report_race_of(warp, access, same_value, || {
            let does = access.kind.verb();
            let whose = if block == here { "the same block".to_owned() } else { format!("block {block}") };
            format!(
                "{does} memory that thread {thread} of {whose} {did}, and nothing orders the two accesses"
            )
        });
        let earlier =
            Earlier { wrote: did != "read", block, thread: thread as u32, any_lane: false, pc: None };
        self.findings.set_earlier(access.pc, earlier);
        if block != here {
            self.findings.advise(FindingKind::Race, access.pc, BETWEEN_BLOCKS);
        }
    }
}
