//! Accesses to shared memory: bounds, alignment, initialisation, races.

use super::{
    access::{AccessKind, LaneAccess, SharedPlace, WarpAccess, for_lanes},
    unit::{Block, Unit},
    warp::Warp,
};
use crate::{
    check::{Earlier, FindingKind},
    decode::SHARED_START,
    isa::SharedVariable,
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

/// The advice for volatile accesses of lanes of a warp.
const VOLATILE_LANES: &str = "volatile does not order the lanes of a warp, which may run apart: execute __syncwarp between the two \
                              accesses";

impl Unit<'_> {
    /// Finds the place of every lane's access, checks the accesses, and returns the lanes whose accesses are allowed.
    pub(super) fn shared_places(
        &mut self,
        warp: &mut Warp,
        access: &WarpAccess<'_>,
        places: &mut [SharedPlace; 32],
    ) -> u32 {
        let ok = self.lane_places(warp, access, places);
        if self.launched.timed {
            return ok;
        }
        let WarpAccess { bytes, kind, .. } = *access;
        let mut who = self.accessor(warp);
        let volatile = self.launched.program.access_facts[access.pc as usize].volatile_data;
        let mut undefined = None;
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
                AccessKind::StrongRead if volatile => {
                    shared.records.volatile_read(offset, bytes, &who, &self.clocks)
                }
                AccessKind::StrongWrite if volatile => {
                    shared.records.volatile_write(offset, bytes, &who, &self.clocks);
                    None
                }
                AccessKind::StrongRead | AccessKind::StrongWrite => None,
            };
            let (mut unwritten, mut untouched) = (0, 0);
            if kind.reads() && !shared.is_written(offset, bytes) {
                (unwritten, untouched) = shared.unwritten(offset, bytes);
            }
            let reads_only = matches!(kind, AccessKind::Read | AccessKind::StrongRead);
            if !reads_only && mbarriers.overlap(offset, bytes) {
                self.report_access(warp, FindingKind::MbarrierMisuse, access.lane(lane), || {
                    format!("writes {bytes} bytes over an mbarrier that was not invalidated")
                });
            }
            // If there is a race, it explains why nothing was written yet.
            if let Some(conflict) = conflict {
                let same_value =
                    kind == AccessKind::Write && self.writes_what_is_there(warp, access, lane, conflict);
                self.report_shared_race(warp, access.lane(lane), conflict, same_value);
                if volatile {
                    self.findings.advise(FindingKind::Race, access.pc, VOLATILE_LANES);
                }
            } else if unwritten != 0 && self.is_unwritten_wrong(access.pc, unwritten, untouched) {
                self.report_access(warp, FindingKind::Uninitialised, access.lane(lane), || {
                    let why = if unwritten == untouched {
                        "that were never written"
                    } else {
                        "where only what has no value was stored"
                    };
                    format!("reads {bytes} bytes of shared memory {why}")
                });
            } else if unwritten != 0 {
                undefined.get_or_insert([0u32; 32])[lane] = unwritten;
            }
        });
        if let Some(undefined) = undefined {
            for_lanes(ok, |lane| self.note_undefined(warp, access.pc, lane, undefined[lane]));
        }
        ok
    }

    /// Finds the places of the lanes whose accesses are allowed, and reports the others.
    fn lane_places(&mut self, warp: &Warp, access: &WarpAccess<'_>, places: &mut [SharedPlace; 32]) -> u32 {
        let WarpAccess { addresses, mask, bytes, .. } = *access;
        // The common case: all addresses are aligned, in the warp's own block, and in the variable that they are derived from.
        let mut good = 0;
        let (first, all) = match self.variable_of(access.pc) {
            Some(variable) => (variable.start, variable.bytes as usize),
            None => (SHARED_START, self.blocks[warp.block].shared.len()),
        };
        if let Some(room) = all.checked_sub(bytes) {
            let off = alignment(bytes) as u64 - 1;
            for lane in 0..32 {
                let address = addresses[lane];
                let offset = address.wrapping_sub(SHARED_START);
                let within = address.wrapping_sub(first) <= room as u64;
                let fits = (address >> CLUSTER_SHIFT == 0) & within & (offset & off == 0);
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

    /// The shared variable that an instruction's address is derived from, if that is known.
    #[inline(always)]
    fn variable_of(&self, pc: u32) -> Option<&SharedVariable> {
        let program = self.launched.program;
        let number = program.access_facts[pc as usize].variable;
        program.shared_variables.get(usize::from(number).wrapping_sub(1))
    }

    /// Reports an access that is not in the variable that its address is derived from. Returns whether it is.
    fn leaves_variable(&mut self, warp: &Warp, access: LaneAccess) -> bool {
        let LaneAccess { address, bytes, kind, .. } = access;
        let Some(SharedVariable { name, start, bytes: size }) = self.variable_of(access.pc).cloned() else {
            return false;
        };
        let room = size.checked_sub(bytes as u64);
        if address >> CLUSTER_SHIFT != 0 || room.is_some_and(|room| address.wrapping_sub(start) <= room) {
            return false;
        }
        self.report_access(warp, FindingKind::OutOfBounds, access, || {
            let all = &self.launched.program.shared_variables;
            let inside = |other: &&SharedVariable| address.wrapping_sub(other.start) < other.bytes;
            let lands = match all.iter().find(inside) {
                Some(other) if other.start != start => format!(", which is in {}", plain_name(&other.name)),
                _ => String::new(),
            };
            let (does, offset) = (kind.verb(), address.wrapping_sub(start) as i64);
            format!(
                "{does} {bytes} bytes at offset {offset} of the {size}-byte shared variable {}{lands}",
                plain_name(&name)
            )
        });
        true
    }

    /// A warp as the access records know it.
    pub(super) fn accessor<'w>(&self, warp: &'w Warp) -> Accessor<'w> {
        Accessor {
            warp: warp.id,
            lane: 0,
            own: Some(warp.number as u32),
            floor: warp.floor,
            last_sync: warp.last_sync,
            lane_clocks: warp.lane_clocks.as_deref(),
        }
    }

    /// The block and offset of one lane's access; `None`, and a finding, if it is out of bounds or misaligned.
    pub(super) fn shared_place(&mut self, warp: &Warp, access: LaneAccess) -> Option<SharedPlace> {
        let LaneAccess { address, bytes, kind, .. } = access;
        let rank = (address >> CLUSTER_SHIFT) as usize;
        let block = if rank == 0 { warp.block } else { rank - 1 };
        if self.leaves_variable(warp, access) {
            return None;
        }
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
    pub(super) fn report_shared_race(
        &mut self,
        warp: &Warp,
        access: LaneAccess,
        conflict: Conflict,
        same_value: bool,
    ) {
        let tma = self.clocks.tma();
        let per_block = self.launched.geometry.warps();
        self.report_race_of(warp, access, same_value, || {
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
            };
            self.findings.set_earlier(access.pc, earlier);
        }
    }

    /// Whether a store that races with a write writes what shared memory holds already, or what an earlier lane of the same instruction
    /// writes.
    fn writes_what_is_there(
        &self,
        warp: &Warp,
        access: &WarpAccess<'_>,
        lane: usize,
        conflict: Conflict,
    ) -> bool {
        let address = access.addresses[lane];
        let shared = &self.blocks[warp.block].shared;
        let place = address.wrapping_sub(SHARED_START) as usize;
        let here = address >> CLUSTER_SHIFT == 0 && place.saturating_add(access.bytes) <= shared.len();
        if !conflict.write || conflict.in_flight || !here || !self.findings.asks_for_values(access.pc) {
            return false;
        }
        let earlier = conflict.lane.filter(|&other| {
            conflict.warp == warp.id && access.mask >> other & 1 == 1 && access.addresses[other] == address
        });
        self.stores_same_value(warp, access, lane, earlier, |at, bytes| shared.load(place + at, bytes))
    }

    /// Counts atomics on shared memory, and their wavefronts if time is kept. `counts`: each adds a constant 1.
    pub(super) fn count_shared_atomics(&mut self, access: &WarpAccess<'_>, counts: bool) {
        let WarpAccess { addresses, mask, bytes, .. } = *access;
        let before = self.counters.shared_atomics.conflicts;
        let wavefronts = self.counters.shared_atomics.add_shared_atomics(addresses, mask, bytes, counts);
        if let Some(clock) = &mut self.clock {
            clock.shared_wavefronts((wavefronts, self.counters.shared_atomics.conflicts - before));
        }
    }

    /// Counts a request to shared memory, and its wavefronts if time is kept.
    pub(super) fn count_shared(&mut self, access: &WarpAccess<'_>, request: SharedRequest) {
        let WarpAccess { addresses, mask, bytes, .. } = *access;
        let traffic = match request {
            SharedRequest::Load | SharedRequest::LoadMatrix => &mut self.counters.shared_loads,
            SharedRequest::Store => &mut self.counters.shared_stores,
        };
        let before = traffic.conflicts;
        let wavefronts = traffic.add_shared(addresses, mask, bytes, request == SharedRequest::Load);
        let conflicts = traffic.conflicts - before;
        if let Some(clock) = &mut self.clock {
            clock.shared(access.pc, addresses, mask, (wavefronts, conflicts));
        }
    }
}

/// The name of a variable as in the source: a variable within a function is mangled as `_ZZ`, the function, `E`, and its own name after
/// its length.
fn plain_name(name: &str) -> &str {
    let mangled = name.strip_prefix("_ZZ").unwrap_or_default();
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let own = mangled.match_indices('E').find_map(|(at, _)| {
        let rest = &mangled[at + 1..];
        let (length, own) = rest.split_at(digits(rest));
        let end = length.parse().ok()?;
        // Variables of the same name in one function have a number behind it.
        let tail = own.get(end..)?;
        (tail.is_empty() || tail.starts_with('_')).then(|| own.get(..end)).flatten()
    });
    own.unwrap_or(name)
}

/// What an access to shared memory must be aligned to.
#[inline(always)]
fn alignment(bytes: usize) -> usize {
    bytes.next_power_of_two().min(16)
}
