//! `cp.async`: copies of 4 to 16 bytes by each lane, waited for in groups.
//!
//! A group lands as late as the program allows: when it is waited for. Until then its target is marked, so that an access that comes
//! too early is found.

use std::collections::VecDeque;

use super::{
    access::{AccessKind, LaneAccess, SharedPlace, WarpAccess, for_lanes},
    bulk_copies::{BulkStore, copy_from},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    counters::{LINE_BITS, SECTOR_BITS},
};

/// A copy of a few bytes by one lane.
#[derive(Clone, Copy, Debug)]
struct AsyncCopy {
    lane: usize,
    to: SharedPlace,
    /// The view of global memory and the address; `None` if only zeros are written.
    from: Option<(usize, u64)>,
    bytes: usize,
    /// Bytes that are read; the rest is zero.
    read: usize,
}

/// The copies that a warp has started and not waited for, in groups.
#[derive(Debug, Default)]
pub(crate) struct AsyncCopies {
    open: Vec<AsyncCopy>,
    groups: VecDeque<Vec<AsyncCopy>>,
    pub(super) open_stores: Vec<BulkStore>,
    pub(super) store_groups: VecDeque<Vec<BulkStore>>,
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
    /// `cp.async`: starts copies of 4, 8 or 16 bytes.
    pub(super) fn async_copy(&mut self, warp: &mut Warp, step: Step<'_>, bytes: usize, to: i64, from: i64) {
        let targets = self.addresses(warp, step.operands[0], to);
        let sources = self.addresses(warp, step.operands[1], from);
        let read = *warp.registers.word(&self.launched.constants, step.operands[2]);
        self.counters.copied_bytes += u64::from(step.mask.count_ones()) * bytes as u64;
        let mut places = [(0, 0); 32];
        let kind = AccessKind::Write;
        let write = WarpAccess { pc: step.pc, addresses: &targets, mask: step.mask, bytes, kind };
        let ok = self.shared_places(warp, &write, &mut places);
        // The source is checked now, because its addresses are known now.
        let mut reads = 0;
        for_lanes(ok, |lane| reads |= u32::from(read[lane] > 0) << lane);
        let mut allowed = ok & !reads;
        let mut views = [0; 32];
        if reads != 0 {
            self.counters.global_loads.add_copies(&sources, &targets, reads, bytes, LINE_BITS);
            self.counters.async_loads.add_copies(&sources, &targets, reads, bytes, SECTOR_BITS);
            let kind = AccessKind::Read;
            let read = WarpAccess { pc: step.pc, addresses: &sources, mask: reads, bytes, kind };
            self.global_groups(warp, &read, |_, _, view, group| {
                allowed |= group;
                for_lanes(group, |lane| views[lane] = view);
            });
        }
        let id = warp.id;
        for_lanes(allowed, |lane| {
            let (block, offset) = places[lane];
            self.blocks[block].shared.records.begin_copy(offset, bytes, id, lane);
            let read = (read[lane] as usize).min(bytes);
            let from = (read > 0).then_some((views[lane], sources[lane]));
            warp.copies.open.push(AsyncCopy { lane, to: places[lane], from, bytes, read });
        });
    }

    /// `cp.async.wait_group`: waits until at most `pending` groups are in flight; 0 waits for uncommitted copies too.
    pub(super) fn async_wait(&mut self, warp: &mut Warp, pending: usize) {
        if pending == 0 {
            warp.copies.commit();
        }
        while warp.copies.groups.len() > pending {
            let Some(group) = warp.copies.groups.pop_front() else { return };
            for copy in group {
                let mut data = [0u8; 16];
                if let Some((view, from)) = copy.from {
                    // Checked when the copy was started.
                    let allocation = self.launched.views[view].allocation;
                    copy_from(allocation, (from - allocation.base) as usize, &mut data[..copy.read]);
                }
                let (block, offset) = copy.to;
                let now = self.clocks.now();
                let shared = &mut self.blocks[block].shared;
                shared.store_bytes(offset, &data[..copy.bytes]);
                shared.records.end_copy(offset, copy.bytes, warp.id, copy.lane, now);
            }
        }
    }

    /// `cp.async.mbarrier.arrive`: an arrival that follows the copies before it.
    pub(super) fn async_arrive(&mut self, warp: &mut Warp, step: Step<'_>, increment: bool, offset: i64) {
        // The copies land at once: only this mbarrier can be waited for.
        self.async_wait(warp, 0);
        let addresses = self.addresses(warp, step.operands[0], offset);
        for_lanes(step.mask, |lane| {
            let address = addresses[lane] & 0xffff_ffff;
            let access = LaneAccess { pc: step.pc, lane, address, bytes: 8, kind: AccessKind::Write };
            let Some((block, place)) = self.shared_place(warp, access) else { return };
            let row = self.clocks.release(warp.id);
            let mbarriers = &mut self.blocks[block].mbarriers;
            if !mbarriers.arrive(place as u32, u32::from(!increment), &row, warp.now()) {
                self.report_access(warp, FindingKind::MbarrierMisuse, access, || {
                    "copies are to arrive on an mbarrier that was never initialised".to_owned()
                });
            }
        });
    }
}
