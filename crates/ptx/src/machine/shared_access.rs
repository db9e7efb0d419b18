//! Shared memory as warps access it: whose, where, and what is wrong with that.

use super::{
    access::{SharedPlace, Touch, for_lanes},
    unit::{Block, Unit},
    warp::Warp,
};
use crate::{
    check::FindingKind,
    decode::SHARED_START,
    memory::{CLUSTER_SHIFT, Conflict, Toucher},
};

/// Instructions that access shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedRequest {
    /// `ld`, of which equal pairs of lanes are served together.
    Load,
    LoadMatrix,
    /// `st` and `stmatrix`.
    Store,
}

impl Unit<'_> {
    /// Where addresses of shared memory lie, for the lanes whose accesses are allowed.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn shared_places(
        &mut self,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: usize,
        touch: Touch,
        places: &mut [SharedPlace; 32],
    ) -> u32 {
        let ok = self.lane_places(warp, pc, addresses, mask, bytes, touch, places);
        if self.launched.timed {
            return ok;
        }
        let mut who = self.toucher(warp);
        for_lanes(ok, |lane| {
            let (block, offset) = places[lane];
            who.lane = lane;
            who.own = (block == warp.block).then_some(warp.number as u32);
            let Block { shared, mbarriers, .. } = &mut self.blocks[block];
            let conflict = match touch {
                Touch::Read => shared.touches.read(offset, bytes, &who, &self.clocks),
                Touch::Write => shared.touches.write(offset, bytes, &who, &self.clocks),
                Touch::Atomic | Touch::AtomicWrite => {
                    shared.touches.atomic(offset, bytes, &who, &self.clocks)
                }
                Touch::StrongRead | Touch::StrongWrite => None,
            };
            let unwritten = touch.reads() && !shared.is_written(offset, bytes);
            let over = !matches!(touch, Touch::Read | Touch::StrongRead) && mbarriers.overlap(offset, bytes);
            if over {
                self.report(
                    warp,
                    FindingKind::MbarrierMisuse,
                    pc,
                    lane as u32,
                    Some(addresses[lane]),
                    || format!("{bytes} bytes are written over an mbarrier, which was not invalidated"),
                );
            }
            // What a race leaves unwritten is the race's doing.
            if let Some(conflict) = conflict {
                self.report_shared_race(warp, pc, lane, addresses[lane], touch, conflict);
            } else if unwritten {
                self.report(warp, FindingKind::Uninitialised, pc, lane as u32, Some(addresses[lane]), || {
                    format!("{bytes} bytes of shared memory are read that nobody wrote")
                });
            }
        });
        ok
    }

    /// Where the lanes' addresses lie that are allowed; the others are reported.
    #[allow(clippy::too_many_arguments)]
    fn lane_places(
        &mut self,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: usize,
        touch: Touch,
        places: &mut [SharedPlace; 32],
    ) -> u32 {
        // Mostly all lie in the warp's own block and are aligned.
        let mut good = 0;
        if let Some(room) = self.blocks[warp.block].shared.len().checked_sub(bytes) {
            let off = alignment(bytes) as u64 - 1;
            for lane in 0..32 {
                let address = addresses[lane];
                let offset = address.wrapping_sub(SHARED_START);
                let fits = (address >> CLUSTER_SHIFT == 0) & (offset <= room as u64) & (offset & off == 0);
                good |= u32::from(fits) << lane;
                places[lane] = (warp.block, offset as usize);
            }
        }
        let mut ok = mask & good;
        for_lanes(mask & !good, |lane| {
            if let Some(place) = self.shared_place(warp, pc, lane, addresses[lane], bytes, touch) {
                places[lane] = place;
                ok |= 1 << lane;
            }
        });
        ok
    }

    /// Who a warp is to shared memory.
    pub(super) fn toucher(&self, warp: &Warp) -> Toucher {
        Toucher { warp: warp.id, lane: 0, own: Some(warp.number as u32), floor: warp.floor, met: warp.met }
    }

    /// Where an address of shared memory lies, if the access is allowed.
    pub(super) fn shared_place(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        touch: Touch,
    ) -> Option<SharedPlace> {
        let rank = (address >> CLUSTER_SHIFT) as usize;
        let block = if rank == 0 { warp.block } else { rank - 1 };
        let offset = (address & ((1 << CLUSTER_SHIFT) - 1)).wrapping_sub(SHARED_START) as usize;
        let size = self.blocks.get(block).map_or(0, |block| block.shared.len());
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            let does = if touch.reads() { "read" } else { "written" };
            self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(address), || {
                format!("{bytes} bytes are {does} at {} of shared memory, which has {size}", offset as i64)
            });
            return None;
        }
        if offset & (alignment(bytes) - 1) != 0 {
            self.report(warp, FindingKind::Misaligned, pc, lane as u32, Some(address), || {
                format!("an access of {bytes} bytes to shared memory is {} bytes off", offset % bytes)
            });
            return None;
        }
        Some((block, offset))
    }

    #[inline(never)]
    pub(super) fn report_shared_race(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        address: u64,
        touch: Touch,
        conflict: Conflict,
    ) {
        let engine = self.clocks.engine();
        let per_block = self.launched.geometry.warps();
        self.report(warp, FindingKind::Race, pc, lane as u32, Some(address), || {
            let does = match touch {
                Touch::Read | Touch::StrongRead => "reads",
                Touch::Write | Touch::StrongWrite => "writes",
                Touch::Atomic | Touch::AtomicWrite => "changes by an atomic",
            };
            let who = match conflict {
                Conflict { warp, .. } if warp == engine => "the copy engine".to_owned(),
                Conflict { warp, lane: Some(lane), .. } => format!("thread {}", warp % per_block * 32 + lane),
                Conflict { warp, .. } => format!("warp {}", warp % per_block),
            };
            match conflict {
                Conflict { under_way: true, .. } => {
                    format!("the thread {does} shared memory that a copy started by {who} has not arrived in: nobody waited for it")
                }
                Conflict { write: true, .. } => {
                    format!("the thread {does} shared memory that {who} has written, and nothing orders the two")
                }
                _ => format!("the thread {does} shared memory that {who} has read, and nothing orders the two"),
            }
        });
    }

    /// Counts atomics on shared memory, and notes the rounds through the banks that they take where time is kept.
    pub(super) fn count_shared_atomics(&mut self, addresses: &[u64; 32], mask: u32, bytes: usize) {
        let rounds = self.counters.shared_atomics.add_shared_atomics(addresses, mask, bytes);
        if let Some(clock) = &mut self.clock {
            clock.banks(rounds);
        }
    }

    /// Counts a request to shared memory, and notes the rounds through the banks that it takes where time is kept.
    pub(super) fn count_shared(
        &mut self,
        addresses: &[u64; 32],
        mask: u32,
        bytes: usize,
        request: SharedRequest,
    ) {
        let traffic = match request {
            SharedRequest::Load | SharedRequest::LoadMatrix => &mut self.counters.shared_loads,
            SharedRequest::Store => &mut self.counters.shared_stores,
        };
        let rounds = traffic.add_shared(addresses, mask, bytes, request == SharedRequest::Load);
        if let Some(clock) = &mut self.clock {
            clock.banks(rounds);
        }
    }
}

/// What an access to shared memory must be aligned to.
#[inline(always)]
fn alignment(bytes: usize) -> usize {
    bytes.next_power_of_two().min(16)
}
