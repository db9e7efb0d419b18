//! Races in global memory between blocks that synchronise with each other, run in a fixed order by one host thread.

use super::{
    access::{AccessKind, LaneAccess, WarpAccess, for_lanes},
    synchronisation::GridState,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::{FindingKind, Known, MissingFence},
    isa::Scope,
    memory::{AccessClass, Earlier, GridAccess},
};

/// The advice for a race between blocks, which block barriers do not order.
const BETWEEN_BLOCKS: &str = "blocks do not wait for each other: write from one block only, use atomics, or read in a later \
                              launch or after a cooperative grid sync";

/// The advice for a release without a fence.
const FENCE_BEFORE: &str = "execute __threadfence() after the writes and before the atomic or the store that announces them; if nothing \
                            is meant to announce them, order the accesses or use atomics";

/// The advice for an acquire without a fence.
const FENCE_AFTER: &str =
    "execute __threadfence() after reading the flag and before accessing what it announces";

/// The advice for atomics of a block's scope that several blocks use.
const WIDER_SCOPE: &str =
    "use atomics of the device's scope, without _block, if several blocks access the same memory";

impl Unit<'_> {
    /// Looks for accesses of other threads that nothing orders with these.
    pub(super) fn check_grid_races(&mut self, warp: &Warp, view: usize, access: &WarpAccess<'_>) {
        let WarpAccess { pc, addresses, mask, bytes, kind } = *access;
        let class = match kind {
            AccessKind::Read => AccessClass::Read,
            AccessKind::Write => AccessClass::Write,
            AccessKind::Atomic | AccessKind::AtomicWrite => AccessClass::Atomic,
            AccessKind::StrongRead => AccessClass::StrongRead,
            AccessKind::StrongWrite => AccessClass::StrongWrite,
        };
        let views = &self.launched.views[view];
        let base = views.allocation.base;
        let Ok(block) = u32::try_from(self.blocks[warp.block].number) else { return };
        let Some(mut state) = self.grid.take() else { return };
        let geometry = &self.launched.geometry;
        if self.sync.known.is_empty() {
            self.sync.known.resize_with(self.warps.len(), Known::default);
        }
        let mut known = std::mem::take(&mut self.sync.known[warp.id]);
        let mut row = None;
        for_lanes(mask, |lane| {
            let offset = (addresses[lane] - base) as usize;
            let touch = GridAccess {
                class,
                scope: self.scope_at(pc),
                block,
                warp: warp.number as u8,
                lane: lane as u8,
                at: self.clocks.now(),
                pc,
                floor: warp.floor,
                observes: self.observes(pc),
            };
            for granule in views.granules(offset, bytes) {
                let GridState { order, records } = &mut *state;
                let cluster_of = |block| geometry.cluster_of(u64::from(block)).0 as u32;
                let found = records.access(view, granule, &touch, cluster_of, |earlier| {
                    let (cluster, rank) = geometry.cluster_of(u64::from(earlier.block));
                    let id = rank * geometry.warps() + earlier.warp as usize;
                    if cluster == self.number {
                        if id == warp.id {
                            let misses = |other| warp.misses_lane(lane, other, earlier.at);
                            return match earlier.lane {
                                Some(other) => !misses(usize::from(other)),
                                None => !(0..32).all(|other| other == lane || misses(other)),
                            };
                        }
                        if self.clocks.seen(warp.id, id) >= earlier.at {
                            return true;
                        }
                    }
                    let row = row.get_or_insert_with(|| self.clocks.row(warp.id));
                    order.seen(&mut known, self.number, row, cluster, id) >= earlier.at
                });
                if let Some(earlier) = found {
                    let same_value = kind == AccessKind::Write
                        && earlier.class == AccessClass::Write
                        && self.overwrites_the_same(warp, view, access, lane, &earlier);
                    self.report_grid_race(warp, access.lane(lane), earlier, same_value, &state);
                }
            }
        });
        self.sync.known[warp.id] = known;
        self.grid = Some(state);
    }

    /// Whether a store writes what an earlier one has written.
    fn overwrites_the_same(
        &self,
        warp: &Warp,
        view: usize,
        access: &WarpAccess<'_>,
        lane: usize,
        earlier: &Earlier,
    ) -> bool {
        let allocation = self.launched.views[view].allocation;
        let address = access.addresses[lane];
        let own = u64::from(earlier.block) == self.blocks[warp.block].number
            && usize::from(earlier.warp) == warp.number;
        let together = |&other: &usize| {
            own && other != lane && access.mask >> other & 1 == 1 && access.addresses[other] == address
        };
        let other = earlier.lane.map(usize::from).filter(together);
        let offset = (address - allocation.base) as usize;
        self.stores_same_value(warp, access, lane, other, |at, bytes| allocation.load(offset + at, bytes))
    }

    #[inline(never)]
    fn report_grid_race(
        &mut self,
        warp: &Warp,
        access: LaneAccess,
        earlier: Earlier,
        same_value: bool,
        state: &GridState,
    ) {
        let here = self.blocks[warp.block].number;
        let elsewhere = u64::from(earlier.block) != here;
        let program = self.launched.program;
        let line = |pc: u32| {
            let line = program.lines[program.instructions[pc as usize].line as usize];
            if line.source > 0 { format!("line {}", line.source) } else { format!("PTX line {}", line.ptx) }
        };
        let (cluster, rank) = self.launched.geometry.cluster_of(u64::from(earlier.block));
        let narrow = earlier.class != AccessClass::Read
            && elsewhere
            && earlier.scope.min(self.scope_at(access.pc)) < Scope::Device
            && !matches!(access.kind, AccessKind::Read | AccessKind::Write)
            && !matches!(earlier.class, AccessClass::Write);
        let id = rank * self.launched.geometry.warps() + earlier.warp as usize;
        let missing = if elsewhere && !narrow && !same_value && self.findings.asks_for_values(access.pc) {
            state.order.missing_fence(&self.sync.listened, cluster, id, earlier.at)
        } else {
            None
        };
        self.report_race_of(warp, access, same_value, || {
            let does = access.kind.verb();
            let whose =
                if elsewhere { format!("block {}", earlier.block) } else { "the same block".to_owned() };
            let who = match earlier.lane {
                Some(lane) => format!("thread {}", u32::from(earlier.warp) * 32 + u32::from(lane)),
                None => format!("warp {}", earlier.warp),
            };
            let did = match earlier.class {
                AccessClass::Read | AccessClass::StrongRead => "read",
                AccessClass::Write | AccessClass::StrongWrite => "wrote",
                AccessClass::Atomic => "updated with an atomic",
            };
            let mut text = format!("{does} memory that {who} of {whose} {did} at {}", line(earlier.pc));
            match missing {
                Some(MissingFence::Release(pc)) => {
                    text += ", and nothing orders the two accesses: no fence comes before ";
                    text += &format!("{}, which may be meant to announce it", line(pc));
                }
                Some(MissingFence::Acquire(pc)) => {
                    text += ", and nothing orders the two accesses: no fence comes after ";
                    text += &format!("{}, which reads what announces it", line(pc));
                }
                None if narrow => {
                    text += ", and the scope of one of the two accesses does not include the other's block";
                }
                None => text += ", and nothing orders the two accesses",
            }
            text
        });
        let advice = match missing {
            Some(MissingFence::Release(_)) => FENCE_BEFORE,
            Some(MissingFence::Acquire(_)) => FENCE_AFTER,
            None if narrow => WIDER_SCOPE,
            None if elsewhere => BETWEEN_BLOCKS,
            None => return,
        };
        self.findings.advise(FindingKind::Race, access.pc, advice);
    }
}
