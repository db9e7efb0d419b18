//! Accesses to shared memory: bounds, alignment, initialisation, races.

use super::{
    access::{AccessKind, LaneAccess, SharedPlace, WarpAccess, for_lanes},
    unit::{Block, Unit},
    warp::Warp,
};
use crate::{
    check::{Earlier, FindingKind},
    decode::SHARED_START,
    memory::{Accessor, CLUSTER_SHIFT, Conflict},
};

/// Instructions that access shared memory, by how their wavefronts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedRequest {
    /// `ld`: lanes with equal addresses can be served in pairs.
    Load,
    /// `ldmatrix`.
    LoadMatrix,
    /// `st` and `stmatrix`.
    Store,
}

impl Unit<'_> {
    /// Finds the place of every lane's access, checks the accesses, and returns the lanes whose accesses are allowed.
    pub(super) fn shared_places(
        &mut self,
        warp: &Warp,
        access: &WarpAccess<'_>,
        places: &mut [SharedPlace; 32],
    ) -> u32 {
        let ok = self.lane_places(warp, access, places);
        if self.launched.timed {
            return ok;
        }
        let WarpAccess { bytes, kind, .. } = *access;
        let mut who = self.accessor(warp);
        for_lanes(ok, |lane| {
            let (block, offset) = places[lane];
            who.lane = lane;
            who.own = (block == warp.block).then_some(warp.number as u32);
            let Block { shared, mbarriers, .. } = &mut self.blocks[block];
            let conflict = match kind {
                AccessKind::Read => shared.records.read(offset, bytes, &who, &self.clocks),
                AccessKind::Write => shared.records.write(offset, bytes, &who, &self.clocks),
                AccessKind::Atomic | AccessKind::AtomicWrite => {
                    shared.records.atomic(offset, bytes, &who, &self.clocks)
                }
                AccessKind::StrongRead | AccessKind::StrongWrite => None,
            };
            let unwritten = kind.reads() && !shared.is_written(offset, bytes);
            let reads_only = matches!(kind, AccessKind::Read | AccessKind::StrongRead);
            if !reads_only && mbarriers.overlap(offset, bytes) {
                self.report_access(warp, FindingKind::MbarrierMisuse, access.lane(lane), || {
                    format!("writes {bytes} bytes over an mbarrier that was not invalidated")
                });
            }
            // If there is a race, it explains why nothing was written yet.
            if let Some(conflict) = conflict {
                self.report_shared_race(warp, access.lane(lane), conflict);
            } else if unwritten {
                self.report_access(warp, FindingKind::Uninitialised, access.lane(lane), || {
                    format!("reads {bytes} bytes of shared memory that were never written")
                });
            }
        });
        ok
    }

    /// Finds the places of the lanes whose accesses are allowed, and reports the others.
    fn lane_places(&mut self, warp: &Warp, access: &WarpAccess<'_>, places: &mut [SharedPlace; 32]) -> u32 {
        let WarpAccess { addresses, mask, bytes, .. } = *access;
        // The common case: all addresses are aligned and in the warp's own block.
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
            if let Some(place) = self.shared_place(warp, access.lane(lane)) {
                places[lane] = place;
                ok |= 1 << lane;
            }
        });
        ok
    }

    /// A warp as the access records know it.
    pub(super) fn accessor(&self, warp: &Warp) -> Accessor {
        Accessor {
            warp: warp.id,
            lane: 0,
            own: Some(warp.number as u32),
            floor: warp.floor,
            last_sync: warp.last_sync,
        }
    }

    /// The block and offset of one lane's access; `None`, and a finding, if it is out of bounds or misaligned.
    pub(super) fn shared_place(&mut self, warp: &Warp, access: LaneAccess) -> Option<SharedPlace> {
        let LaneAccess { address, bytes, kind, .. } = access;
        let rank = (address >> CLUSTER_SHIFT) as usize;
        let block = if rank == 0 { warp.block } else { rank - 1 };
        let offset = (address & ((1 << CLUSTER_SHIFT) - 1)).wrapping_sub(SHARED_START) as usize;
        let size = self.blocks.get(block).map_or(0, |block| block.shared.len());
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            self.report_access(warp, FindingKind::OutOfBounds, access, || {
                let does = kind.verb();
                format!("{does} {bytes} bytes at offset {} of {size} bytes of shared memory", offset as i64)
            });
            return None;
        }
        if offset & (alignment(bytes) - 1) != 0 {
            self.report_access(warp, FindingKind::Misaligned, access, || {
                let off = offset % bytes;
                format!(
                    "accesses {bytes} bytes of shared memory at an offset that is {off} past a multiple of {bytes}"
                )
            });
            return None;
        }
        Some((block, offset))
    }

    #[inline(never)]
    pub(super) fn report_shared_race(&mut self, warp: &Warp, access: LaneAccess, conflict: Conflict) {
        let tma = self.clocks.tma();
        let per_block = self.launched.geometry.warps();
        self.report_access(warp, FindingKind::Race, access, || {
            let does = access.kind.verb();
            let who = match conflict {
                Conflict { warp, .. } if warp == tma => "the TMA unit".to_owned(),
                Conflict { warp, lane: Some(lane), .. } => format!("thread {}", warp % per_block * 32 + lane),
                Conflict { warp, .. } => format!("warp {}", warp % per_block),
            };
            let did = match conflict {
                Conflict { in_flight: true, .. } => {
                    return format!(
                        "{does} shared memory that an asynchronous copy by {who} is still writing: nothing waits for the copy"
                    );
                }
                Conflict { write: true, .. } => "wrote",
                _ => "read",
            };
            format!("{does} shared memory that {who} {did}, and nothing orders the two accesses")
        });
        if conflict.warp != tma {
            let earlier = Earlier {
                wrote: conflict.write,
                block: self.blocks[conflict.warp / per_block].number,
                thread: (conflict.warp % per_block * 32 + conflict.lane.unwrap_or(0)) as u32,
                any_lane: conflict.lane.is_none(),
                pc: None,
            };
            self.findings.set_earlier(access.pc, earlier);
        }
    }

    /// Counts atomics on shared memory, and their wavefronts if time is kept.
    pub(super) fn count_shared_atomics(&mut self, access: &WarpAccess<'_>) {
        let WarpAccess { addresses, mask, bytes, .. } = *access;
        let wavefronts = self.counters.shared_atomics.add_shared_atomics(addresses, mask, bytes);
        if let Some(clock) = &mut self.clock {
            clock.shared_wavefronts(wavefronts);
        }
    }

    /// Counts a request to shared memory, and its wavefronts if time is kept.
    pub(super) fn count_shared(&mut self, access: &WarpAccess<'_>, request: SharedRequest) {
        let WarpAccess { addresses, mask, bytes, .. } = *access;
        let traffic = match request {
            SharedRequest::Load | SharedRequest::LoadMatrix => &mut self.counters.shared_loads,
            SharedRequest::Store => &mut self.counters.shared_stores,
        };
        let wavefronts = traffic.add_shared(addresses, mask, bytes, request == SharedRequest::Load);
        if let Some(clock) = &mut self.clock {
            clock.shared_wavefronts(wavefronts);
        }
    }
}

/// What an access to shared memory must be aligned to.
#[inline(always)]
fn alignment(bytes: usize) -> usize {
    bytes.next_power_of_two().min(16)
}
