//! Copies that run beside the threads.
//!
//! They arrive as late as the program allows: a group of small copies when a thread waits for it, a bulk copy when somebody
//! waits for its mbarrier. Until then what they will write is marked, so that whoever looks too early is found.

use std::collections::VecDeque;

use super::{
    access::{SharedPlace, Touch, for_lanes},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    counters::{LINE_BITS, SECTOR_BITS},
    isa::{Atomic, BulkDirection, Type},
    memory::TensorMap,
};

/// A copy of a few bytes by one lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsyncCopy {
    lane: usize,
    to: SharedPlace,
    /// The view of global memory, and the address; `None` where zeros are written alone.
    from: Option<(usize, u64)>,
    bytes: usize,
    read: usize,
}

/// What a bulk copy brings.
#[derive(Clone, Debug)]
pub(super) enum BulkSource {
    Global(u64),
    Shared(SharedPlace),
    Tensor { map: Box<TensorMap>, coordinates: [i32; 5], offsets: [u32; 3] },
}

/// A copy to shared memory under way.
#[derive(Clone, Debug)]
pub(crate) struct BulkCopy {
    pub(super) to: SharedPlace,
    pub(super) bytes: usize,
    pub(super) barrier: SharedPlace,
    pub(super) source: BulkSource,
    pub(super) issuer: Issuer,
    /// When it is there, where time is kept.
    pub(super) time: f64,
}

/// Who started a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issuer {
    pub pc: u32,
    pub block: u64,
    pub thread: u32,
}

/// A copy out of shared memory, which reads when it is waited for.
#[derive(Clone, Debug)]
pub(super) struct BulkStore {
    pub from: SharedPlace,
    pub bytes: usize,
    pub target: BulkTarget,
    pub reduce: Option<(Atomic, Type)>,
    pub issuer: Issuer,
}

/// Where it goes.
#[derive(Clone, Debug)]
pub(super) enum BulkTarget {
    Global(u64),
    Tensor { map: Box<TensorMap>, coordinates: [i32; 5] },
}

/// The copies that a warp has started and not waited for, in groups.
#[derive(Debug, Default)]
pub(crate) struct AsyncCopies {
    open: Vec<AsyncCopy>,
    groups: VecDeque<Vec<AsyncCopy>>,
    pub(super) open_stores: Vec<BulkStore>,
    store_groups: VecDeque<Vec<BulkStore>>,
}

impl AsyncCopies {
    pub fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    pub fn commit_bulk(&mut self) {
        self.store_groups.push_back(std::mem::take(&mut self.open_stores));
    }
}

impl Unit<'_> {
    pub(super) fn issuer(&self, warp: &Warp, pc: u32, lane: usize) -> Issuer {
        Issuer { pc, block: self.blocks[warp.block].number, thread: (warp.number * 32 + lane) as u32 }
    }

    /// Starts copies of 4, 8 or 16 bytes.
    pub(super) fn async_copy(&mut self, warp: &mut Warp, step: Step<'_>, bytes: usize, to: i64, from: i64) {
        let targets = self.addresses(warp, step.operands[0], to);
        let sources = self.addresses(warp, step.operands[1], from);
        let read = *warp.registers.word(&self.launched.constants, step.operands[2]);
        self.counters.copied_bytes += u64::from(step.mask.count_ones()) * bytes as u64;
        let mut places = [(0, 0); 32];
        let ok = self.shared_places(warp, step.pc, &targets, step.mask, bytes, Touch::Write, &mut places);
        // What is read is checked now: the addresses are these lanes'.
        let mut reads = 0;
        for_lanes(ok, |lane| reads |= u32::from(read[lane] > 0) << lane);
        let mut allowed = ok & !reads;
        let mut views = [0; 32];
        if reads != 0 {
            self.counters.global_loads.add_copies(&sources, &targets, reads, bytes, LINE_BITS);
            self.counters.async_loads.add_copies(&sources, &targets, reads, bytes, SECTOR_BITS);
            self.global_groups(warp, step.pc, &sources, reads, bytes, Touch::Read, |_, _, view, group| {
                allowed |= group;
                for_lanes(group, |lane| views[lane] = view);
            });
        }
        let id = warp.id;
        for_lanes(allowed, |lane| {
            let (block, offset) = places[lane];
            self.blocks[block].shared.touches.begin_copy(offset, bytes, id, lane);
            let read = (read[lane] as usize).min(bytes);
            let from = (read > 0).then_some((views[lane], sources[lane]));
            warp.copies.open.push(AsyncCopy { lane, to: places[lane], from, bytes, read });
        });
    }

    /// Waits until at most so many groups are under way; all copies for none.
    pub(super) fn async_wait(&mut self, warp: &mut Warp, pending: usize) {
        if pending == 0 {
            warp.copies.commit();
        }
        while warp.copies.groups.len() > pending {
            let Some(group) = warp.copies.groups.pop_front() else { return };
            for copy in group {
                let mut data = [0u8; 16];
                if let Some((view, from)) = copy.from {
                    // Checked when it was started.
                    let allocation = self.launched.views[view].allocation;
                    copy_from(allocation, (from - allocation.base) as usize, &mut data[..copy.read]);
                }
                let (block, offset) = copy.to;
                let now = self.clocks.now();
                let shared = &mut self.blocks[block].shared;
                shared.store_bytes(offset, &data[..copy.bytes]);
                shared.touches.end_copy(offset, copy.bytes, warp.id, copy.lane, now);
            }
        }
    }

    /// An arrival at an mbarrier that comes when the copies before it have.
    pub(super) fn async_arrive(&mut self, warp: &mut Warp, step: Step<'_>, increment: bool, offset: i64) {
        // The copies arrive at once: they cannot be waited for in another way than by this barrier.
        self.async_wait(warp, 0);
        let addresses = self.addresses(warp, step.operands[0], offset);
        for_lanes(step.mask, |lane| {
            let address = addresses[lane] & 0xffff_ffff;
            if let Some((block, place)) = self.shared_place(warp, step.pc, lane, address, 8, Touch::Write) {
                let row = self.clocks.release(warp.id);
                let there = self.blocks[block].mbarriers.arrive(
                    place as u32,
                    u32::from(!increment),
                    &row,
                    warp.now(),
                );
                if !there {
                    self.report(
                        warp,
                        FindingKind::MbarrierMisuse,
                        step.pc,
                        lane as u32,
                        Some(address),
                        || "there is no mbarrier here for copies to arrive at".to_owned(),
                    );
                }
            }
        });
    }

    /// Starts a copy of contiguous bytes.
    pub(super) fn bulk_copy(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        direction: BulkDirection,
        multicast: bool,
    ) {
        for_lanes(step.mask, |lane| {
            self.counters.bulk_copies += 1;
            let operand = |i: usize| self.lane(warp, step.operands[i], lane);
            let (to, from, bytes) = (operand(0), operand(1), operand(2) as usize & 0xffff_ffff);
            if bytes % 16 != 0 || to % 16 != 0 || from % 16 != 0 {
                self.report(warp, FindingKind::TensorMap, step.pc, lane as u32, Some(to), || {
                    format!("a bulk copy needs multiples of 16: {bytes} bytes from {from:#x} to {to:#x}")
                });
                return;
            }
            let issuer = self.issuer(warp, step.pc, lane);
            match direction {
                BulkDirection::GlobalToShared | BulkDirection::SharedToCluster => {
                    let barrier = operand(3) & 0xffff_ffff;
                    let mask = if multicast { operand(4) as u32 & 0xffff } else { 0 };
                    let source = if direction == BulkDirection::GlobalToShared {
                        BulkSource::Global(from)
                    } else {
                        let from = from & 0xffff_ffff;
                        let Some(place) =
                            self.shared_place(warp, step.pc, lane, from, bytes.max(1), Touch::Read)
                        else {
                            return;
                        };
                        self.check_proxy(warp, step.pc, lane, place, bytes);
                        BulkSource::Shared(place)
                    };
                    self.start_copy(
                        warp,
                        step.pc,
                        lane,
                        to & 0xffff_ffff,
                        bytes,
                        barrier,
                        mask,
                        &source,
                        issuer,
                    );
                }
                BulkDirection::SharedToGlobal | BulkDirection::ReduceToGlobal(..) => {
                    let from = from & 0xffff_ffff;
                    let Some(place) = self.shared_place(warp, step.pc, lane, from, bytes.max(1), Touch::Read)
                    else {
                        return;
                    };
                    self.check_proxy(warp, step.pc, lane, place, bytes);
                    let reduce = match direction {
                        BulkDirection::ReduceToGlobal(op, kind) => Some((op, kind)),
                        _ => None,
                    };
                    let target = BulkTarget::Global(to);
                    warp.copies.open_stores.push(BulkStore { from: place, bytes, target, reduce, issuer });
                }
            }
        });
    }

    /// Puts a copy to shared memory on its way, to every block of a mask or to one.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn start_copy(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        to: u64,
        bytes: usize,
        barrier: u64,
        mask: u32,
        source: &BulkSource,
        issuer: Issuer,
    ) {
        let Some(target) = self.shared_place(warp, pc, lane, to, 16, Touch::Write) else { return };
        let Some(barrier) = self.shared_place(warp, pc, lane, barrier, 8, Touch::Write) else { return };
        let size = self.blocks[target.0].shared.len();
        if target.1 + bytes > size {
            self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(to), || {
                format!("a copy of {bytes} bytes goes beyond shared memory, which has {size}")
            });
            return;
        }
        let blocks: Vec<usize> = match mask {
            0 => vec![target.0],
            _ => (0..self.blocks.len()).filter(|block| mask >> block & 1 == 1).collect(),
        };
        let time = self.time_bulk_copy(warp, source, bytes);
        for block in blocks {
            let to = (block, target.1);
            // The barrier lies at the same place in every block that receives.
            let barrier = if mask == 0 { barrier } else { (block, barrier.1) };
            let mut who = self.toucher(warp);
            who.lane = lane;
            who.own = (block == warp.block).then_some(warp.number as u32);
            let engine = self.clocks.engine();
            let shared = &mut self.blocks[block].shared;
            if let Some(conflict) = shared.touches.write(to.1, bytes, &who, &self.clocks) {
                let address = to.1 as u64 + crate::decode::SHARED_START;
                self.report_shared_race(warp, pc, lane, address, Touch::Write, conflict);
            }
            self.blocks[block].shared.touches.begin_copy(to.1, bytes, engine, 0);
            self.bulk_copies.push(BulkCopy { to, bytes, barrier, source: source.clone(), issuer, time });
        }
        self.counters.copied_bytes += bytes as u64;
    }

    /// Lets the copies arrive that an mbarrier counts.
    pub(super) fn land(&mut self, block: usize, offset: u32) {
        let due = |copy: &BulkCopy| copy.barrier == (block, offset as usize);
        if !self.bulk_copies.iter().any(due) {
            return;
        }
        let all = std::mem::take(&mut self.bulk_copies);
        let (due, rest): (Vec<BulkCopy>, Vec<BulkCopy>) = all.into_iter().partition(due);
        self.bulk_copies = rest;
        for copy in due {
            let mut data = vec![0u8; if self.launched.timed { 0 } else { copy.bytes }];
            match &copy.source {
                _ if self.launched.timed => {}
                BulkSource::Global(from) => self.read_global(*from, &mut data, copy.issuer),
                BulkSource::Shared((block, offset)) => {
                    data.copy_from_slice(self.blocks[*block].shared.bytes(*offset, copy.bytes));
                }
                BulkSource::Tensor { map, coordinates, offsets } => {
                    self.gather(map, coordinates, offsets, copy.to.1, &mut data, copy.issuer);
                }
            }
            let engine = self.clocks.engine();
            let now = self.clocks.now();
            let shared = &mut self.blocks[copy.to.0].shared;
            shared.store_bytes(copy.to.1, &data);
            shared.touches.end_copy(copy.to.1, copy.bytes, engine, 0, now);
            let mut row = vec![0; self.warps.len() + 1];
            row[engine] = now;
            self.clocks.advance();
            let (block, offset) = copy.barrier;
            if !self.blocks[block].mbarriers.complete_bytes(offset as u32, copy.bytes as i64, &row, copy.time)
            {
                let Issuer { pc, block, thread, .. } = copy.issuer;
                self.findings.add(FindingKind::MbarrierMisuse, pc, || {
                    (block, thread, None, "a copy is counted by an mbarrier that was never made".to_owned())
                });
            }
        }
    }

    /// Bytes of global memory for the copy engine, with its checks.
    pub(super) fn read_global(&mut self, address: u64, to: &mut [u8], issuer: Issuer) {
        if to.is_empty() {
            return;
        }
        let Issuer { pc, block, thread, .. } = issuer;
        let Ok(view) = self.launched.global.find(address, to.len()) else {
            let bytes = to.len();
            self.findings.add(FindingKind::TensorMap, pc, || {
                let message = format!("the copy engine reads {bytes} bytes that are in no allocation");
                (block, thread, Some(address), message)
            });
            return;
        };
        let allocation = self.launched.views[view].allocation;
        let offset = (address - allocation.base) as usize;
        let piece = if offset.is_multiple_of(8) && to.len().is_multiple_of(8) { 8 } else { 1 };
        let mut pieces = (offset..offset + to.len()).step_by(piece);
        if pieces.any(|offset| !allocation.is_written(offset, piece)) {
            self.findings.add(FindingKind::Uninitialised, pc, || {
                (block, thread, Some(address), "the copy engine reads memory that nobody wrote".to_owned())
            });
        }
        copy_from(allocation, offset, to);
    }

    /// Bytes to global memory from the copy engine.
    pub(super) fn write_global(
        &mut self,
        address: u64,
        from: &[u8],
        reduce: Option<(Atomic, Type)>,
        issuer: Issuer,
    ) {
        let Issuer { pc, block, thread, .. } = issuer;
        let Ok(view) = self.launched.global.find(address, from.len().max(1)) else {
            let bytes = from.len();
            self.findings.add(FindingKind::TensorMap, pc, || {
                let message = format!("the copy engine writes {bytes} bytes that are in no allocation");
                (block, thread, Some(address), message)
            });
            return;
        };
        let allocation = self.launched.views[view].allocation;
        let offset = (address - allocation.base) as usize;
        let step = reduce.map_or(1, |(_, kind)| kind.bytes());
        for (i, piece) in from.chunks_exact(step).enumerate() {
            let value = piece.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
            let at = offset + i * step;
            match reduce {
                None => allocation.store(at, step, value),
                Some((op, kind)) => {
                    allocation.update(at, step, |old| super::atomics::combine(op, kind, old, value, 0));
                }
            }
            allocation.mark_written(at, step);
        }
    }

    /// Waits until at most so many groups of copies out of shared memory are under way.
    pub(super) fn bulk_wait(&mut self, warp: &mut Warp, pending: usize) {
        while warp.copies.store_groups.len() > pending {
            let Some(group) = warp.copies.store_groups.pop_front() else { return };
            for store in group {
                self.finish_store(&store);
            }
        }
    }

    fn finish_store(&mut self, store: &BulkStore) {
        let (block, offset) = store.from;
        match &store.target {
            BulkTarget::Global(to) => {
                let data = self.blocks[block].shared.bytes(offset, store.bytes).to_vec();
                self.write_global(*to, &data, store.reduce, store.issuer);
            }
            BulkTarget::Tensor { map, coordinates } => {
                self.scatter(map, coordinates, (block, offset), store.bytes, store.reduce, store.issuer);
            }
        }
    }

    /// What is still under way when the last thread ends.
    pub(super) fn finish_copies(&mut self) {
        for id in 0..self.warps.len() {
            let copies = std::mem::take(&mut self.warps[id].copies);
            for store in copies.store_groups.into_iter().flatten().chain(copies.open_stores) {
                self.finish_store(&store);
            }
        }
        self.bulk_copies.clear();
    }

    /// Whether threads that wrote shared memory fenced it from the copy engine and the products that read it now.
    pub(super) fn check_proxy(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        place: SharedPlace,
        bytes: usize,
    ) {
        if !self.launched.races {
            return;
        }
        let (block, offset) = place;
        let fence = |id: usize| if id == warp.id { warp.proxy_fence } else { self.warps[id].proxy_fence };
        let touches = &self.blocks[block].shared.touches;
        let unfenced = touches.find_writer(offset, bytes, &self.clocks, |writer, at| {
            // What nothing orders is a race, and reported as one.
            let seen = writer == warp.id || self.clocks.seen(warp.id, writer) >= at;
            at != u32::MAX && seen && fence(writer) < at && warp.proxy_fence < at
        });
        if let Some(writer) = unfenced {
            let writer = writer % self.launched.geometry.warps();
            let address = offset as u64 + crate::decode::SHARED_START;
            self.report(warp, FindingKind::MissingProxyFence, pc, lane as u32, Some(address), || {
                format!("warp {writer} wrote this shared memory by ordinary stores and did not fence them")
            });
        }
    }
}

/// Copies bytes out of an allocation, in the widest pieces that are aligned.
fn copy_from(allocation: &crate::memory::Allocation, offset: usize, to: &mut [u8]) {
    let wide = if offset.is_multiple_of(8) { to.len() / 8 * 8 } else { 0 };
    for (i, piece) in to[..wide].chunks_exact_mut(8).enumerate() {
        piece.copy_from_slice(&allocation.load(offset + 8 * i, 8).to_le_bytes());
    }
    for (i, byte) in to[wide..].iter_mut().enumerate() {
        *byte = allocation.load(offset + wide + i, 1) as u8;
    }
}
