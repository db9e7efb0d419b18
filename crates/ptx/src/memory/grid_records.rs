//! Records of the last accesses to global memory by blocks that synchronise with each other.
//!
//! Every granule has its last weak write, and the accesses since then that nothing has ordered yet: reads, strong writes and atomics. They
//! are kept per block. A weak write forgets them: who is ordered after the write is ordered after them too.

use std::collections::HashMap;

use crate::isa::Scope;

/// How many blocks' accesses since the last weak write a granule holds.
const BLOCKS: usize = 32;

/// Granules of a page.
const PAGE: usize = 32;

/// What an access does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AccessClass {
    #[default]
    Read,
    Write,
    /// Strong accesses, which may run concurrently with each other within their scope.
    StrongRead,
    StrongWrite,
    Atomic,
}

impl AccessClass {
    fn writes(self) -> bool {
        !matches!(self, AccessClass::Read | AccessClass::StrongRead)
    }

    fn is_strong(self) -> bool {
        !matches!(self, AccessClass::Read | AccessClass::Write)
    }
}

/// An access to a granule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridAccess {
    pub class: AccessClass,
    pub scope: Scope,
    pub block: u32,
    /// The warp's number in its block.
    pub warp: u8,
    pub lane: u8,
    pub at: u32,
    pub pc: u32,
    /// Everything of its own cluster before this time is ordered before it.
    pub floor: u32,
    /// Whether it is strong and the thread gets to know what it read.
    pub observes: bool,
}

/// An earlier access, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub class: AccessClass,
    pub scope: Scope,
    pub block: u32,
    pub warp: u8,
    /// `None` for a lane other than the one that asks.
    pub lane: Option<u8>,
    pub at: u32,
    pub pc: u32,
}

/// The last weak write.
#[derive(Clone, Copy, Debug, Default)]
struct Write {
    block: u32,
    at: u32,
    pc: u32,
    warp: u8,
    lane: u8,
    there: bool,
}

/// Accesses of one class by warps of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Accesses {
    block: u32,
    /// The time of the first of them; the others came later.
    first: u32,
    /// Which warps.
    warps: u32,
    pc: u32,
    /// The warp and lane of the first, and whether other lanes of that warp followed.
    warp: u8,
    lane: u8,
    lanes: bool,
    class: AccessClass,
    scope: Scope,
    /// The number of the last of them, in the order of all accesses.
    last: u64,
    observed: Observation,
}

/// The last strong read of a block at a granule, or atomic whose result is used.
#[derive(Clone, Copy, Debug, Default)]
struct Observation {
    /// Its number in the order of all accesses; 0 if there is none.
    number: u64,
    at: u32,
    pc: u32,
    warp: u8,
    lane: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    write: Write,
    /// The first entry; more are elsewhere.
    accesses: Accesses,
    more: bool,
}

/// The records of all allocations.
#[derive(Debug, Default)]
pub(crate) struct GridRecords {
    views: Vec<Vec<Option<Box<[Record; PAGE]>>>>,
    more: HashMap<(usize, usize), Vec<Accesses>>,
    /// Accesses that were not recorded because a granule had too many.
    pub dropped: u64,
    /// How many accesses there were so far.
    count: u64,
}

impl GridRecords {
    /// Forgets all accesses to some granules: their memory begins a new life.
    pub fn forget(&mut self, view: usize, granules: std::ops::Range<usize>) {
        let Some(pages) = self.views.get_mut(view) else { return };
        for granule in granules {
            if let Some(Some(page)) = pages.get_mut(granule / PAGE) {
                page[granule % PAGE] = Record::default();
            }
            self.more.remove(&(view, granule));
        }
    }

    /// Records an access to a granule, and tells about earlier ones that conflict with it. `is_ordered` says whether one is ordered before it.
    pub fn access(
        &mut self,
        view: usize,
        granule: usize,
        access: &GridAccess,
        cluster_of: impl Fn(u32) -> u32,
        mut is_ordered: impl FnMut(&Earlier) -> bool,
    ) -> Option<Earlier> {
        self.count += 1;
        let number = self.count;
        if self.views.len() <= view {
            self.views.resize_with(view + 1, Vec::new);
        }
        let pages = &mut self.views[view];
        let page = granule / PAGE;
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        let record =
            &mut pages[page].get_or_insert_with(|| Box::new([Record::default(); PAGE]))[granule % PAGE];
        let mut found = None;
        if record.write.there {
            let Write { block, at, pc, warp, lane, .. } = record.write;
            let (class, scope) = (AccessClass::Write, Scope::Device);
            let earlier = Earlier { class, scope, block, warp, lane: Some(lane), at, pc };
            found = (!is_ordered(&earlier)).then_some(earlier);
        }
        let conflicts = |earlier: &Accesses| {
            let both_strong = earlier.class.is_strong() && access.class.is_strong();
            let together = match earlier.scope.min(access.scope) {
                Scope::Block => earlier.block == access.block,
                Scope::Cluster => cluster_of(earlier.block) == cluster_of(access.block),
                Scope::Device => true,
            };
            (earlier.class.writes() || access.class.writes()) && !(both_strong && together)
        };
        let key = (view, granule);
        let all = [record.accesses];
        let more = record.more.then(|| self.more.get(&key)).flatten();
        let all = || all.iter().chain(more.into_iter().flatten());
        // Strong writes and atomics that an access ordered before this one has observed: the memory itself has put them in order.
        let mut observed = None;
        for earlier in all() {
            if found.is_some() || earlier.warps == 0 || !conflicts(earlier) {
                continue;
            }
            let mut warps = earlier.warps;
            while warps != 0 {
                let warp = warps.trailing_zeros() as u8;
                warps &= warps - 1;
                let lane = (warp == earlier.warp && !earlier.lanes).then_some(earlier.lane);
                // Other lanes of the asking warp are known only if it came first.
                if (earlier.block, warp) == (access.block, access.warp) && warp != earlier.warp {
                    continue;
                }
                let Accesses { class, scope, block, first: at, pc, .. } = *earlier;
                let conflicting = Earlier { class, scope, block, warp, lane, at, pc };
                if is_ordered(&conflicting) {
                    continue;
                }
                if class.is_strong() && class.writes() && scope == Scope::Device {
                    let upto = *observed.get_or_insert_with(|| {
                        let ordered = all().filter(|by| by.is_observation_ordered(&mut is_ordered));
                        ordered.map(|by| by.observed.number).max().unwrap_or(0)
                    });
                    if earlier.last < upto {
                        continue;
                    }
                }
                found = Some(conflicting);
                break;
            }
        }
        if access.class == AccessClass::Write {
            let GridAccess { block, at, pc, warp, lane, .. } = *access;
            record.write = Write { block, at, pc, warp, lane, there: true };
            record.accesses = Accesses::default();
            if std::mem::take(&mut record.more) {
                self.more.remove(&key);
            }
            return found;
        }
        if record.accesses.add(access, number) {
            return found;
        }
        let more = self.more.entry(key).or_default();
        record.more = true;
        if more.iter_mut().any(|accesses| accesses.add(access, number)) {
            return found;
        }
        if more.len() >= BLOCKS {
            // Whoever is ordered after this access is ordered after those of its kind before it.
            more.retain(|earlier| {
                let Accesses { class, scope, block, first: at, pc, warp, .. } = *earlier;
                let same = class == access.class && scope == access.scope && earlier.warps.count_ones() == 1;
                !(same && is_ordered(&Earlier { class, scope, block, warp, lane: None, at, pc }))
            });
        }
        if more.len() < BLOCKS {
            let mut accesses = Accesses::default();
            accesses.add(access, number);
            more.push(accesses);
        } else {
            self.dropped += 1;
        }
        found
    }
}

impl Accesses {
    /// Adds an access, if it belongs here.
    fn add(&mut self, access: &GridAccess, number: u64) -> bool {
        let GridAccess { class, scope, block, warp, lane, at, pc, floor, observes } = *access;
        let own = (self.block, self.class, self.scope) == (block, class, scope);
        let seen = Observation { number, at, pc, warp, lane };
        let observed = match observes && scope == Scope::Device {
            true => seen,
            false if own => self.observed,
            false => Observation::default(),
        };
        if self.warps == 0 || own && self.first < floor {
            let (warps, first, last) = (1 << warp, at, number);
            let lanes = false;
            *self = Accesses { block, first, warps, pc, warp, lane, lanes, class, scope, last, observed };
            return true;
        }
        if !own {
            return false;
        }
        (self.last, self.observed) = (number, observed);
        self.warps |= 1 << warp;
        self.lanes |= warp == self.warp && lane != self.lane;
        true
    }

    /// Whether the last observation here is ordered before the access that asks.
    fn is_observation_ordered(&self, is_ordered: &mut impl FnMut(&Earlier) -> bool) -> bool {
        let Observation { number, at, pc, warp, lane } = self.observed;
        let Accesses { block, class, scope, .. } = *self;
        number > 0 && is_ordered(&Earlier { class, scope, block, warp, lane: Some(lane), at, pc })
    }
}
