//! Bulk copies (TMA) of contiguous bytes: `cp.async.bulk`.
//!
//! A copy to shared memory lands as late as the program allows: when its mbarrier is waited for. A copy to global memory reads
//! shared memory when it is waited for. Until then the target is marked, so that an access that comes too early is found.

use super::{
    access::{AccessKind, LaneAccess, SharedPlace, for_lanes},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    decode::SHARED_START,
    isa::{Atomic, BulkDirection, Type},
    memory::{Allocation, TensorMap},
};

/// The source of a bulk copy to shared memory.
#[derive(Clone, Debug)]
pub(super) enum BulkSource {
    Global(u64),
    Shared(SharedPlace),
    Tensor { map: Box<TensorMap>, coordinates: [i32; 5], offsets: [u32; 3] },
}

/// A bulk copy to shared memory as an instruction asks for it.
#[derive(Debug)]
pub(super) struct BulkLoad {
    pub lane: usize,
    pub to: u64,
    pub bytes: usize,
    pub barrier: u64,
    /// The blocks of the cluster that receive it; 0 for the one that `to` is in.
    pub multicast: u32,
    pub source: BulkSource,
}

/// A bulk copy to shared memory in flight.
#[derive(Clone, Debug)]
pub(crate) struct BulkCopy {
    to: SharedPlace,
    bytes: usize,
    barrier: SharedPlace,
    source: BulkSource,
    issuer: Issuer,
    /// When it lands, if time is kept.
    time: f64,
}

/// Who started a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issuer {
    pub pc: u32,
    pub block: u64,
    pub thread: u32,
}

/// A bulk copy out of shared memory, which reads when it is waited for.
#[derive(Clone, Debug)]
pub(super) struct BulkStore {
    pub from: SharedPlace,
    pub bytes: usize,
    pub target: BulkTarget,
    pub reduce: Option<(Atomic, Type)>,
    pub issuer: Issuer,
}

/// The target of a [`BulkStore`].
#[derive(Clone, Debug)]
pub(super) enum BulkTarget {
    Global(u64),
    Tensor { map: Box<TensorMap>, coordinates: [i32; 5] },
}

impl Unit<'_> {
    pub(super) fn issuer(&self, warp: &Warp, pc: u32, lane: usize) -> Issuer {
        Issuer { pc, block: self.blocks[warp.block].number, thread: (warp.number * 32 + lane) as u32 }
    }

    /// `cp.async.bulk` and `cp.reduce.async.bulk`: starts a copy of contiguous bytes.
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
                    format!(
                        "a bulk copy of {bytes} bytes from {from:#x} to {to:#x}: size and addresses must be multiples of 16"
                    )
                });
                return;
            }
            match direction {
                BulkDirection::GlobalToShared | BulkDirection::SharedToCluster => {
                    let barrier = operand(3) & 0xffff_ffff;
                    let multicast = if multicast { operand(4) as u32 & 0xffff } else { 0 };
                    let source = if direction == BulkDirection::GlobalToShared {
                        BulkSource::Global(from)
                    } else {
                        let Some(place) = self.bulk_source(warp, step.pc, lane, from, bytes) else { return };
                        BulkSource::Shared(place)
                    };
                    let to = to & 0xffff_ffff;
                    self.start_copy(warp, step.pc, BulkLoad { lane, to, bytes, barrier, multicast, source });
                }
                BulkDirection::SharedToGlobal | BulkDirection::ReduceToGlobal(..) => {
                    let Some(from) = self.bulk_source(warp, step.pc, lane, from, bytes) else { return };
                    let reduce = match direction {
                        BulkDirection::ReduceToGlobal(op, kind) => Some((op, kind)),
                        _ => None,
                    };
                    let issuer = self.issuer(warp, step.pc, lane);
                    let target = BulkTarget::Global(to);
                    warp.copies.open_stores.push(BulkStore { from, bytes, target, reduce, issuer });
                }
            }
        });
    }

    /// The shared memory that a bulk copy reads, if it is in bounds; it must have been fenced.
    fn bulk_source(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        from: u64,
        bytes: usize,
    ) -> Option<SharedPlace> {
        let address = from & 0xffff_ffff;
        let access = LaneAccess { pc, lane, address, bytes: bytes.max(1), kind: AccessKind::Read };
        let place = self.shared_place(warp, access)?;
        self.check_proxy(warp, pc, lane, place, bytes);
        Some(place)
    }

    /// Starts a copy to shared memory of one block, or of every block of the multicast mask.
    pub(super) fn start_copy(&mut self, warp: &Warp, pc: u32, load: BulkLoad) {
        let BulkLoad { lane, to, bytes, barrier, multicast, source } = load;
        let write =
            |address: u64, bytes: usize| LaneAccess { pc, lane, address, bytes, kind: AccessKind::Write };
        let Some(target) = self.shared_place(warp, write(to, 16)) else { return };
        let Some(barrier) = self.shared_place(warp, write(barrier, 8)) else { return };
        let size = self.blocks[target.0].shared.len();
        if target.1 + bytes > size {
            self.report_access(warp, FindingKind::OutOfBounds, write(to, bytes), || {
                format!("a bulk copy of {bytes} bytes runs past the block's {size} bytes of shared memory")
            });
            return;
        }
        let blocks: Vec<usize> = match multicast {
            0 => vec![target.0],
            _ => (0..self.blocks.len()).filter(|block| multicast >> block & 1 == 1).collect(),
        };
        let issuer = self.issuer(warp, pc, lane);
        let time = self.time_bulk_copy(warp, &source, bytes);
        for block in blocks {
            let to = (block, target.1);
            // A multicast signals the mbarrier at the same offset in every block that receives the copy.
            let barrier = if multicast == 0 { barrier } else { (block, barrier.1) };
            let mut who = self.accessor(warp);
            who.lane = lane;
            who.own = (block == warp.block).then_some(warp.number as u32);
            let tma = self.clocks.tma();
            let shared = &mut self.blocks[block].shared;
            if let Some(conflict) = shared.records.write(to.1, bytes, &who, &self.clocks) {
                self.report_shared_race(warp, write(to.1 as u64 + SHARED_START, bytes), conflict, false);
            }
            self.blocks[block].shared.records.begin_copy(to.1, bytes, tma, 0);
            self.bulk_copies.push(BulkCopy { to, bytes, barrier, source: source.clone(), issuer, time });
        }
        self.counters.copied_bytes += bytes as u64;
    }

    /// Lands the copies that signal an mbarrier.
    pub(super) fn complete_bulk_copies(&mut self, block: usize, offset: u32) {
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
            let tma = self.clocks.tma();
            let now = self.clocks.now();
            let shared = &mut self.blocks[copy.to.0].shared;
            shared.store_bytes(copy.to.1, &data);
            shared.records.end_copy(copy.to.1, copy.bytes, tma, 0, now);
            let mut row = vec![0; self.warps.len() + 1];
            row[tma] = now;
            self.clocks.advance();
            let (block, offset) = copy.barrier;
            if !self.blocks[block].mbarriers.complete_bytes(offset as u32, copy.bytes as i64, &row, copy.time)
            {
                let Issuer { pc, block, thread, .. } = copy.issuer;
                self.findings.add(FindingKind::MbarrierMisuse, pc, || {
                    (
                        block,
                        thread,
                        None,
                        "a bulk copy signals an mbarrier that was never initialised".to_owned(),
                    )
                });
            }
        }
    }

    /// Reads global memory for a bulk copy, with its checks.
    pub(super) fn read_global(&mut self, address: u64, to: &mut [u8], issuer: Issuer) {
        if to.is_empty() {
            return;
        }
        let Issuer { pc, block, thread, .. } = issuer;
        let Ok(view) = self.launched.global.find(address, to.len()) else {
            let bytes = to.len();
            self.findings.add(FindingKind::TensorMap, pc, || {
                let message = format!("a bulk copy reads {bytes} bytes that no single allocation contains");
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
                (block, thread, Some(address), "a bulk copy reads memory that was never written".to_owned())
            });
        }
        copy_from(allocation, offset, to);
    }

    /// Writes global memory for a bulk copy.
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
                let message = format!("a bulk copy writes {bytes} bytes that no single allocation contains");
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

    /// `cp.async.bulk.wait_group`: waits until at most `pending` groups of copies out of shared memory are in flight.
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

    /// Completes what is still in flight when the last thread ends.
    pub(super) fn finish_copies(&mut self) {
        for id in 0..self.warps.len() {
            let copies = std::mem::take(&mut self.warps[id].copies);
            for store in copies.store_groups.into_iter().flatten().chain(copies.open_stores) {
                self.finish_store(&store);
            }
        }
        self.bulk_copies.clear();
    }

    /// Checks that the threads that wrote shared memory executed `fence.proxy.async` before TMA or `wgmma` reads it.
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
        let records = &self.blocks[block].shared.records;
        let unfenced = records.find_writer(offset, bytes, &self.clocks, |writer, at| {
            // Unordered accesses are reported as a race.
            let seen = writer == warp.id || self.clocks.seen(warp.id, writer) >= at;
            at != u32::MAX && seen && fence(writer) < at && warp.proxy_fence < at
        });
        if let Some(writer) = unfenced {
            let writer = writer % self.launched.geometry.warps();
            let address = offset as u64 + SHARED_START;
            self.report(warp, FindingKind::MissingProxyFence, pc, lane as u32, Some(address), || {
                format!("the async proxy reads shared memory that warp {writer} wrote with ordinary stores and did not fence")
            });
        }
    }
}

/// Copies bytes out of an allocation, eight at a time if they are aligned.
pub(super) fn copy_from(allocation: &Allocation, offset: usize, to: &mut [u8]) {
    let wide = if offset.is_multiple_of(8) { to.len() / 8 * 8 } else { 0 };
    for (i, piece) in to[..wide].chunks_exact_mut(8).enumerate() {
        piece.copy_from_slice(&allocation.load(offset + 8 * i, 8).to_le_bytes());
    }
    for (i, byte) in to[wide..].iter_mut().enumerate() {
        *byte = allocation.load(offset + wide + i, 1) as u8;
    }
}
