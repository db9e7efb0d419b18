//! Accesses to global memory: bounds, alignment, initialisation, races.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use super::{
    access::{AccessKind, LaneAccess, WarpAccess, for_lanes},
    unit::{Geometry, Unit},
    warp::Warp,
};
use crate::{
    check::{Earlier, FindingKind},
    memory::{Missing, View},
};

/// Flag of a write: it was an atomic.
const ATOMIC: u64 = 1 << 63;

/// Flag of an atomic: atomics of several clusters came together.
const MANY_CLUSTERS: u64 = 1 << 62;

/// Flag of an atomic: its cluster wrote before it without one.
const WROTE: u64 = 1 << 61;

/// Flag of a read: several threads read.
const MANY: u64 = 1 << 63;

const FLAGS: u64 = ATOMIC | MANY_CLUSTERS | WROTE;

/// How a record is divided: flags, the cluster's number plus one, the warp's index in the cluster, the lane and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordLayout {
    time_bits: u32,
    warp_bits: u32,
}

impl RecordLayout {
    pub fn new(geometry: &Geometry) -> RecordLayout {
        let bits = |count: u64| u64::BITS - count.leading_zeros();
        let warp_bits = bits((geometry.warps() * geometry.cluster_blocks()) as u64);
        // So many clusters that less than 16 bits remain would take years to run.
        let cluster_bits = bits(geometry.cluster_count().saturating_add(1));
        let time_bits = (FLAGS.trailing_zeros() - 5).saturating_sub(warp_bits + cluster_bits).clamp(16, 32);
        RecordLayout { time_bits, warp_bits }
    }

    /// A record without its flags. Times that are too late for it count as its last one, and as ordered.
    #[inline(always)]
    fn record(self, cluster: u64, warp: usize, lane: usize, at: u32) -> u64 {
        let at = u64::from(at).min((1 << self.time_bits) - 1);
        self.warp((cluster + 1) << self.warp_bits | warp as u64, lane as u64) | at
    }

    fn warp(self, warp: u64, lane: u64) -> u64 {
        (warp << 5 | lane) << self.time_bits & !FLAGS
    }

    #[inline(always)]
    fn thread_of(self, record: u64) -> u64 {
        (record & !FLAGS) >> self.time_bits
    }

    #[inline(always)]
    fn cluster_of(self, record: u64) -> u64 {
        (record & !FLAGS) >> (self.time_bits + 5 + self.warp_bits)
    }

    fn warp_of(self, record: u64) -> usize {
        (self.thread_of(record) >> 5 & ((1 << self.warp_bits) - 1)) as usize
    }

    fn lane_of(self, record: u64) -> usize {
        (self.thread_of(record) & 31) as usize
    }

    #[inline(always)]
    fn at(self, record: u64) -> u32 {
        (record & ((1 << self.time_bits) - 1)) as u32
    }
}

/// Records a read. Everything before `floor` is ordered before the reader, so it may replace an older record of its own cluster.
#[inline(always)]
fn note_read(record: &AtomicU64, mine: u64, floor: u32, layout: RecordLayout) {
    let mut read = record.load(SeqCst);
    loop {
        let same_cluster = layout.cluster_of(read) == layout.cluster_of(mine);
        let old = same_cluster && read & MANY_CLUSTERS == 0 && layout.at(read) < floor;
        let new = if read == 0 || old {
            mine
        } else if layout.thread_of(read) == layout.thread_of(mine) {
            return;
        } else {
            read | MANY | if same_cluster { 0 } else { MANY_CLUSTERS }
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

/// Records an atomic, and returns the record that was there. A plain write of the own cluster leaves a flag, because atomics of others
/// race with it too; `keep` says whether it stays recorded altogether.
fn note_atomic(record: &AtomicU64, mine: u64, layout: RecordLayout, keep: impl Fn(u64) -> bool) -> u64 {
    let mut before = record.load(SeqCst);
    loop {
        let same_cluster = before == 0 || layout.cluster_of(before) == layout.cluster_of(mine);
        let mut flags = ATOMIC | before & (MANY_CLUSTERS | WROTE);
        if !same_cluster {
            flags |= MANY_CLUSTERS;
        } else if before != 0 && before & ATOMIC == 0 {
            flags |= WROTE;
        }
        let new = if keep(before) { before } else { mine | flags };
        match record.compare_exchange_weak(before, new, SeqCst, SeqCst) {
            Ok(_) => return before,
            Err(now) => before = now,
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
            if self.launched.may_run_again && !matches!(kind, AccessKind::Read | AccessKind::StrongRead) {
                self.launched.views[view].save();
            }
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
            if self.is_unwritten_wrong(access.pc, unwritten, unwritten) {
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

    /// Looks for accesses of other threads that nothing orders with these.
    ///
    /// Clusters run on several host threads, which share the records. A writer stores its record before it looks for readers, and a
    /// reader before it looks for a writer, so that one of the two sees the other. Nothing orders clusters here: if two conflict, all run
    /// again in a fixed order, for a report that does not depend on which came first.
    fn check_races(&mut self, warp: &Warp, view: usize, access: &WarpAccess<'_>) {
        if self.grid.is_some() {
            return self.check_grid_races(warp, view, access);
        }
        let WarpAccess { pc, addresses, mask, bytes, kind } = *access;
        if matches!(kind, AccessKind::StrongRead | AccessKind::StrongWrite) {
            return;
        }
        let launched = self.launched;
        let (view, layout) = (&launched.views[view], launched.layout);
        let base = view.allocation.base;
        let own = layout.record(self.number, warp.id, 0, self.clocks.now());
        for_lanes(mask, |lane| {
            let offset = (addresses[lane] - base) as usize;
            let mine = own | layout.warp(0, lane as u64);
            for piece in view.granules(offset, bytes) {
                let write = if kind == AccessKind::Read {
                    note_read(&view.reads[piece], mine, warp.floor, layout);
                    view.writes[piece].load(SeqCst)
                } else {
                    let write = if kind.is_atomic() {
                        let keep = |before| self.is_unreleased(warp, before, mine);
                        note_atomic(&view.writes[piece], mine, layout, keep)
                    } else {
                        view.writes[piece].swap(mine, SeqCst)
                    };
                    let read = view.reads[piece].load(SeqCst);
                    if read != 0 && self.read_races(warp, read, mine) {
                        self.report_race(warp, access.lane(lane), "read", read, false);
                    }
                    write
                };
                if write != 0 && self.write_races(warp, write, mine, kind) {
                    let did = if write & ATOMIC == 0 { "wrote" } else { "updated with an atomic" };
                    let same = kind == AccessKind::Write
                        && write & ATOMIC == 0
                        && self.findings.asks_for_values(pc)
                        && self.global_holds(warp, view, access, lane, write);
                    self.report_race(warp, access.lane(lane), did, write, same);
                }
            }
        });
    }

    /// Whether a record is a plain write of the warp since its last release. An atomic of the same warp leaves that record in place,
    /// because other warps' atomics race with the write too.
    fn is_unreleased(&self, warp: &Warp, record: u64, mine: u64) -> bool {
        let layout = self.launched.layout;
        record != 0
            && record & ATOMIC == 0
            && layout.thread_of(record) >> 5 == layout.thread_of(mine) >> 5
            && !self.clocks.is_released(warp.id, layout.at(record))
    }

    /// Whether an access races with the last write. Atomics on the same address are ordered among each other.
    #[inline(always)]
    fn write_races(&mut self, warp: &Warp, record: u64, mine: u64, kind: AccessKind) -> bool {
        let both_atomic = record & ATOMIC != 0 && kind.is_atomic();
        let layout = self.launched.layout;
        if layout.cluster_of(record) != layout.cluster_of(mine) {
            if !both_atomic || record & WROTE != 0 {
                self.conflict();
            }
            return false;
        }
        if record & MANY_CLUSTERS != 0 && !kind.is_atomic() {
            self.conflict();
        }
        !both_atomic && self.races_with(warp, record, mine)
    }

    /// Clusters access the same memory, and nothing orders them.
    #[cold]
    fn conflict(&mut self) {
        self.launched.conflict.store(true, Relaxed);
        self.ended = true;
    }

    fn races_with(&self, warp: &Warp, record: u64, mine: u64) -> bool {
        let layout = self.launched.layout;
        if layout.thread_of(record) == layout.thread_of(mine) {
            return false;
        }
        let (other, at) = (layout.warp_of(record), layout.at(record));
        if other == warp.id {
            warp.misses_lane(layout.lane_of(mine), layout.lane_of(record), at)
        } else {
            self.clocks.seen(warp.id, other) < at
        }
    }

    /// Whether a write races with reads. If several threads of a cluster read, only the first is recorded; the others read no earlier,
    /// so the first stands for all.
    fn read_races(&mut self, warp: &Warp, record: u64, mine: u64) -> bool {
        let layout = self.launched.layout;
        if record & MANY_CLUSTERS != 0 || layout.cluster_of(record) != layout.cluster_of(mine) {
            self.conflict();
            return false;
        }
        if record & MANY != 0 && layout.thread_of(record) == layout.thread_of(mine) {
            // The writer itself read first, and the other readers are not recorded: it is a race only if none of them can have been
            // ordered before the writer since.
            let at = layout.at(record);
            let per_block = self.launched.geometry.warps();
            let others = (warp.block * per_block..(warp.block + 1) * per_block).filter(|&id| id != warp.id);
            let reader = layout.lane_of(record);
            let lanes = (0..32).all(|lane| lane == reader || warp.misses_lane(reader, lane, at));
            return lanes && others.into_iter().all(|id| self.clocks.seen(warp.id, id) < at);
        }
        self.races_with(warp, record, mine)
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
        let layout = self.launched.layout;
        let (other, own) = (layout.lane_of(record), layout.warp_of(record) == warp.id);
        let earlier = own && access.mask >> other & 1 == 1 && access.addresses[other] == address;
        let offset = (address - view.allocation.base) as usize;
        let holds = |at: usize, bytes: usize| view.allocation.load(offset + at, bytes);
        self.stores_same_value(warp, access, lane, earlier.then_some(other), holds)
    }

    #[inline(never)]
    fn report_race(&mut self, warp: &Warp, access: LaneAccess, did: &str, record: u64, same_value: bool) {
        let layout = self.launched.layout;
        let per_block = self.launched.geometry.warps();
        let (other, lane) = (layout.warp_of(record), layout.lane_of(record));
        let (block, thread) = (other / per_block, other % per_block * 32 + lane);
        let number = self.blocks[block].number;
        self.report_race_of(warp, access, same_value, || {
            let does = access.kind.verb();
            let whose =
                if block == warp.block { "the same block".to_owned() } else { format!("block {number}") };
            format!(
                "{does} memory that thread {thread} of {whose} {did}, and nothing orders the two accesses"
            )
        });
        let (wrote, thread) = (did != "read", thread as u32);
        let earlier = Earlier { wrote, block: number, thread, any_lane: false };
        self.findings.set_earlier(access.pc, earlier);
    }
}
