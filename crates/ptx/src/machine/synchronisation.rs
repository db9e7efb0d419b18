//! Fences, and strong accesses that release and acquire: the memory model of PTX, by address and scope.
//!
//! A strong write releases what a fence before it covers, to whoever reads it with a strong access of a scope that includes both. The fence
//! may be that of another thread, if a barrier follows it. A strong read acquires at the next fence; `.release` and `.acquire` need none.
//!
//! An atomic whose result is used acquires at once: the last block of a reduction usually has no fence after its ticket, and reads what
//! its multiprocessor cannot hold a stale copy of.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use super::{
    access::{SharedPlace, WarpAccess, for_lanes},
    step::{Next, Step},
    unit::Unit,
    warp::Warp,
    warp_splits::Wait,
};
use crate::{
    check::{GridOrder, Known, Nearby, join},
    isa::{Op, Scope, Semantics},
    memory::GridRecords,
};

/// Strong reads in a turn after which a warp split gives way, since it may wait for what others write.
const POLLS: u32 = 16;

/// Addresses that a cluster remembers having listened at, for the sake of a better message.
const LISTENED: usize = 64;

/// What the clusters of a grid know of each other, and what they accessed.
#[derive(Debug, Default)]
pub(crate) struct GridState {
    pub order: GridOrder,
    pub records: GridRecords,
}

impl GridState {
    /// What could not be checked.
    pub fn unchecked(&self) -> Vec<String> {
        let dropped = self.records.dropped;
        let text = format!(
            "{dropped} accesses to memory that many blocks accessed at the same time were not recorded, so races with them would be missed"
        );
        if dropped == 0 { Vec::new() } else { vec![text] }
    }
}

/// A fence of a warp.
#[derive(Debug)]
struct MemoryFence {
    at: u32,
    scope: Scope,
    row: Rc<[u32]>,
}

/// What a strong read saw released, and a fence will acquire.
#[derive(Debug)]
struct Pending {
    at: u32,
    nearby: Option<Vec<u32>>,
    /// An address of global memory and how much of its log.
    log: Option<(usize, usize)>,
}

/// How the warps of a cluster synchronise through memory.
#[derive(Debug, Default)]
pub(crate) struct Synchronisation {
    /// The fences of each warp.
    fences: Vec<Vec<MemoryFence>>,
    /// What was released at addresses of shared memory.
    shared: HashMap<SharedPlace, Nearby>,
    /// By the warp that read, and the address.
    pending: BTreeMap<(usize, u64), Pending>,
    /// How much of each log each warp has acquired.
    heard: HashMap<(usize, usize), usize>,
    /// How many of an address's releases each warp has acquired, or noted for its next fence.
    acquired: HashMap<(usize, usize, bool), u64>,
    /// Where the cluster listened, and the last instruction that did.
    pub listened: Vec<(usize, u32)>,
    /// What warps know of other clusters.
    pub known: Vec<Known>,
}

/// What a strong write releases to the block, the cluster and the device.
type Released = [Option<Rc<[u32]>>; 3];

impl Unit<'_> {
    /// `fence` and `membar`.
    pub(super) fn fence(&mut self, warp: &mut Warp, scope: Scope) {
        if !self.launched.races {
            return;
        }
        let pending = std::mem::take(&mut self.sync.pending);
        for (&(reader, _), pending) in &pending {
            if reader != warp.id && self.clocks.seen(warp.id, reader) < pending.at {
                continue;
            }
            if let Some(row) = &pending.nearby {
                self.clocks.acquire(warp.id, row);
            }
            if let Some((location, version)) = pending.log
                && scope == Scope::Device
            {
                self.hear(warp, location, version);
            }
        }
        self.sync.pending = pending;
        let row = self.clocks.release(warp.id);
        let fences = &mut self.sync.fences;
        if fences.is_empty() {
            fences.resize_with(self.warps.len(), Vec::new);
        }
        fences[warp.id].push(MemoryFence { at: row[warp.id], scope, row: row.into() });
        self.update_floor(warp);
    }

    /// A warp acquires what was released to the device at an address.
    fn hear(&mut self, warp: &Warp, location: usize, version: usize) {
        let Some(state) = &mut self.grid else { return };
        let heard = self.sync.heard.entry((warp.id, location)).or_insert(0);
        if *heard < version {
            *heard = version;
            let at = self.clocks.advance();
            state.order.acquire(self.number, warp.id, at, location, version);
        }
    }

    /// What a strong write of a warp releases.
    fn released(&mut self, warp: &Warp, semantics: Semantics) -> Released {
        if semantics.release {
            let row: Rc<[u32]> = self.clocks.release(warp.id).into();
            let upto = |scope| (scope <= semantics.scope).then(|| row.clone());
            return [Scope::Block, Scope::Cluster, Scope::Device].map(upto);
        }
        if self.sync.fences.is_empty() {
            return [None, None, None];
        }
        let sees = self.clocks.row(warp.id);
        [Scope::Block, Scope::Cluster, Scope::Device].map(|scope| {
            let mut all: Option<Vec<u32>> = None;
            if scope > semantics.scope {
                return None;
            }
            for (id, fences) in self.sync.fences.iter().enumerate() {
                let seen = fences.partition_point(|fence| fence.at <= sees[id]);
                let Some(fence) = fences[..seen].iter().rev().find(|fence| fence.scope >= scope) else {
                    continue;
                };
                match &mut all {
                    Some(row) => join(row, &fence.row),
                    None => all = Some(fence.row.to_vec()),
                }
            }
            all.map(Into::into)
        })
    }

    /// A strong write to shared memory has been executed.
    pub(super) fn release_shared(
        &mut self,
        warp: &Warp,
        mask: u32,
        places: &[SharedPlace; 32],
        semantics: Semantics,
    ) {
        if !self.launched.races {
            return;
        }
        let [block, cluster, _] = self.released(warp, semantics);
        for_lanes(mask, |lane| {
            if let Some(row) = &block {
                let nearby = self.sync.shared.entry(places[lane]).or_default();
                nearby.release_to_block(warp.block as u64, row);
                if let Some(row) = &cluster {
                    nearby.release_to_cluster(0, row);
                }
            }
        });
    }

    /// A strong write to global memory has been executed.
    pub(super) fn release_global(&mut self, warp: &Warp, access: &WarpAccess<'_>, semantics: Semantics) {
        if self.grid.is_none() {
            return;
        }
        let [block, cluster, device] = self.released(warp, semantics);
        let (number, now) = (self.blocks[warp.block].number, self.clocks.now());
        let Some(state) = &mut self.grid else { return };
        for_lanes(access.mask, |lane| {
            let address = access.addresses[lane];
            if let Some(row) = &block {
                let nearby = state.order.nearby(address);
                nearby.release_to_block(number, row);
                if let Some(row) = &cluster
                    && self.blocks.len() > 1
                {
                    nearby.release_to_cluster(self.number, row);
                }
            }
            if let Some(row) = &device {
                state.order.release(address, self.number, row.clone());
            }
            if !semantics.release {
                state.order.unfenced(address, self.number, now, access.pc);
            }
        });
    }

    /// A strong read of shared memory, or an atomic whose result is used, has been executed.
    pub(super) fn acquire_shared(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        places: &[SharedPlace; 32],
        semantics: Semantics,
    ) {
        if !self.launched.races || self.sync.shared.is_empty() {
            return;
        }
        for_lanes(mask, |lane| {
            let cluster = (semantics.scope > Scope::Block).then_some(0);
            let released = self.sync.shared.get(&places[lane]);
            let nearby = released.and_then(|released| released.released(warp.block as u64, cluster));
            if nearby.is_some() {
                let (block, offset) = places[lane];
                self.acquire(warp, mask, (block as u64) << 32 | offset as u64, nearby, None, semantics);
            }
        });
    }

    /// A strong read of global memory, or an atomic whose result is used, has been executed.
    pub(super) fn acquire_global(&mut self, warp: &mut Warp, access: &WarpAccess<'_>, semantics: Semantics) {
        if self.grid.is_none() {
            return;
        }
        let own = (self.blocks.len() > 1 && semantics.scope > Scope::Block).then_some(self.number);
        let number = self.blocks[warp.block].number;
        for_lanes(access.mask, |lane| {
            let address = access.addresses[lane];
            let Some(state) = &self.grid else { return };
            let Some((location, version, releases)) = state.order.version(address) else { return };
            let listened = &mut self.sync.listened;
            if let Some(known) = listened.iter_mut().find(|listened| listened.0 == location) {
                known.1 = access.pc;
            } else if listened.len() < LISTENED {
                listened.push((location, access.pc));
            }
            // Who polls has acquired what is there already.
            let key = (warp.id, location, semantics.acquire);
            if releases == 0 || self.sync.acquired.insert(key, releases) == Some(releases) {
                return;
            }
            let nearby = state.order.released_nearby(location, number, own);
            let log = (semantics.scope == Scope::Device && version > 0).then_some((location, version));
            if nearby.is_some() || log.is_some() {
                self.acquire(warp, access.mask, address, nearby, log, semantics);
            }
        });
    }

    /// Acquires what a lane read, or notes it for the next fence.
    fn acquire(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        address: u64,
        nearby: Option<Vec<u32>>,
        log: Option<(usize, usize)>,
        semantics: Semantics,
    ) {
        if !semantics.acquire {
            let at = self.clocks.now();
            self.sync.pending.insert((warp.id, address), Pending { at, nearby, log });
            return;
        }
        if let Some(row) = nearby {
            self.clocks.acquire(warp.id, &row);
            // Diverged lanes may hold a lock one after the other; lanes that execute together may not.
            if row[warp.id] > 0 && mask != warp.splits.live {
                let now = self.clocks.advance();
                warp.synchronise_lanes(u32::MAX, now);
            }
        }
        if let Some((location, version)) = log {
            self.hear(warp, location, version);
        }
        self.update_floor(warp);
    }

    /// A warp has read memory that others may be about to change: after a few times it gives way, so that they can.
    pub(super) fn polled(&mut self, warp: &Warp, step: Step<'_>, offset: i64) -> Next {
        self.polls += 1;
        if self.launched.timed {
            return Next::On;
        }
        let (lane, address) = (step.mask.trailing_zeros(), step.instruction.results as usize);
        let address = self.addresses(warp, step.operands[address], offset)[lane as usize];
        self.spins[warp.id] = Some((step.pc, lane, address));
        self.turn_polls += 1;
        if self.turn_polls < POLLS { Next::On } else { Next::Behind(Wait::Nothing) }
    }

    /// The scope of the access at an instruction.
    pub(super) fn scope_at(&self, pc: u32) -> Scope {
        match self.launched.program.instructions[pc as usize].op {
            Op::Load(access) | Op::Store(access) => access.semantics.scope,
            Op::Atomic { semantics, .. } => semantics.scope,
            _ => Scope::Device,
        }
    }

    /// Whether the access at an instruction is strong and tells its thread what it read.
    pub(super) fn observes(&self, pc: u32) -> bool {
        let program = self.launched.program;
        let instruction = &program.instructions[pc as usize];
        match instruction.op {
            Op::Load(access) => access.strong,
            Op::Atomic { reduction, .. } => {
                !reduction && !program.operands[instruction.first as usize].is_none()
            }
            _ => false,
        }
    }
}
