//! One multiprocessor: when its units are free, and how long they were busy.

use super::{
    cache::{FirstLevel, Footprint, SECTOR},
    cost::{Cost, Kind},
    queue::Queue,
    warp::WarpClock,
};
use crate::{
    isa::Operand,
    performance::Calibration,
    profile::{Latencies, Profile},
};

/// The units of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Unit {
    Float,
    Integer,
    Double,
    Special,
    Tensor,
}

const UNITS: usize = Unit::Tensor as usize + 1;

/// Clocks by which stores may be behind before those who store wait.
const STORE_QUEUE: f64 = 400.0;

/// What a multiprocessor does in a clock, calibrated.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    pub schedulers: usize,
    /// Clocks that a unit of a scheduler has an instruction of a warp.
    pub intervals: [f64; UNITS],
    /// The same for two 16-bit numbers at a time.
    pub half: f64,
    /// Multiply-adds of a scheduler's tensor cores.
    pub tensor: f64,
    pub tensor_by_warp: f64,
    /// Clocks of a shuffle.
    pub shuffle: f64,
    /// Bytes of shared memory.
    pub shared: f64,
    /// Bytes from and to the second-level cache.
    pub l2: f64,
    /// Sectors more that the second level moves for one of which only a part is written.
    pub merge: u64,
    pub latencies: Latencies,
    pub first_level_bytes: usize,
}

impl Rates {
    /// Those of a chip whose multiprocessors hold blocks that take so much shared memory.
    pub fn new(profile: &Profile, calibration: &Calibration, shared_bytes: usize) -> Rates {
        let units = &profile.units;
        let schedulers = f64::from(units.schedulers.max(1));
        let interval = |lanes: f64| 32.0 * schedulers / lanes.max(1e-3);
        Rates {
            schedulers: units.schedulers.max(1) as usize,
            intervals: [units.float, units.integer, units.double, units.special, 1.0].map(interval),
            half: interval(units.half),
            tensor: units.tensor / schedulers * calibration.tensor,
            tensor_by_warp: units.tensor_by_warp,
            shuffle: 32.0 / units.shuffle,
            shared: units.shared_bytes,
            l2: profile.memory.l2_port,
            merge: 1,
            latencies: profile.latencies,
            first_level_bytes: profile.memory.l1_bytes.saturating_sub(shared_bytes),
        }
    }
}

/// What an instruction did to memory.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    /// Rounds through the banks of shared memory.
    rounds: u64,
    /// Bytes through the first level.
    first: f64,
    /// Sectors that the second level gave or took, and whether any of them was touched for the first time.
    second: u64,
    new: bool,
    stored: u64,
    /// Of these, sectors of which only a part was written.
    parts: u64,
}

/// How long units were busy, in clocks: of all schedulers together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    pub issue: f64,
    pub units: [f64; UNITS],
    pub shared: f64,
    /// Not a unit: how long warps waited at barriers, all together.
    pub barriers: f64,
}

/// The time of a multiprocessor.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    pub rates: Rates,
    pub costs: Vec<Cost>,
    issue: Vec<Queue>,
    units: Vec<[Queue; UNITS]>,
    shared: Queue,
    l2: Queue,
    cache: FirstLevel,
    pub reads: Footprint,
    pub writes: Footprint,
    /// Sectors that came from the second level and went there.
    pub l2_sectors: u64,
    pub busy: Busy,
    touched: Touched,
}

impl Clock {
    pub fn new(rates: Rates, costs: Vec<Cost>) -> Clock {
        Clock {
            issue: vec![Queue::default(); rates.schedulers],
            units: vec![[Queue::default(); UNITS]; rates.schedulers],
            shared: Queue::default(),
            l2: Queue::default(),
            cache: FirstLevel::new(rates.first_level_bytes),
            reads: Footprint::default(),
            writes: Footprint::default(),
            l2_sectors: 0,
            busy: Busy::default(),
            touched: Touched::default(),
            rates,
            costs,
        }
    }

    /// An instruction that needs nothing but its operands. `all` has its results first, then its operands.
    #[inline]
    pub fn plain(&mut self, warp: &mut WarpClock, pc: u32, guard: Operand, all: &[Operand], results: usize) {
        let cost = self.costs[pc as usize];
        let mut ready = warp.ready(guard);
        for &operand in &all[results..] {
            ready = ready.max(warp.ready(operand));
        }
        if cost.kind == Kind::Free {
            all[..results].iter().for_each(|&result| warp.set_ready(result, ready));
            return;
        }
        let start = self.start(warp, &cost, ready);
        let done = start + cost.latency;
        all[..results].iter().for_each(|&result| warp.set_ready(result, done));
        if cost.kind == Kind::Loop {
            warp.settle();
        }
    }

    /// Starts an instruction on its scheduler and its unit.
    fn start(&mut self, warp: &mut WarpClock, cost: &Cost, ready: f64) -> f64 {
        let base = warp.base();
        let mut start = self.issue[warp.scheduler].take(base, ready.max(base), cost.slots);
        self.busy.issue += cost.slots;
        if let Some(unit) = cost.unit {
            start = self.units[warp.scheduler][unit as usize].take(base, start, cost.interval);
            self.busy.units[unit as usize] += cost.interval;
        }
        warp.started(start);
        start
    }

    /// Shared memory serves so many bytes, from a moment on at the earliest. Gives when it is done.
    fn share(&mut self, base: f64, from: f64, bytes: f64) -> f64 {
        let interval = bytes / self.rates.shared;
        let start = self.shared.take(base, from, interval);
        self.busy.shared += interval;
        start + interval
    }

    /// The second level serves so many sectors. Gives when it is done, without its latency.
    fn second(&mut self, base: f64, from: f64, sectors: u64) -> f64 {
        let interval = (sectors * SECTOR) as f64 / self.rates.l2;
        let start = self.l2.take(base, from, interval);
        self.l2_sectors += sectors;
        start + interval
    }

    /// Lanes touch global memory.
    pub fn global(&mut self, addresses: &[u64; 32], mask: u32, bytes: u64, writes: bool, bypass: bool) {
        let mut last = u64::MAX;
        let mut seen = [u64::MAX; 64];
        let mut count = 0;
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            // The end of an access near the last address is no number; such an access is none.
            for sector in addresses[lane] / SECTOR..=addresses[lane].saturating_add(bytes - 1) / SECTOR {
                if sector != last && count < seen.len() && !seen[..count].contains(&sector) {
                    seen[count] = sector;
                    count += 1;
                }
                last = sector;
            }
        }
        seen[..count].iter().for_each(|&sector| self.sector(sector, writes, bypass));
        let asked = u64::from(mask.count_ones()) * bytes;
        if writes && asked < count as u64 * SECTOR {
            self.touched.parts += count as u64;
        }
        self.touched.first += asked as f64;
    }

    /// The copy engine touches bytes of global memory.
    pub fn run(&mut self, address: u64, bytes: u64, writes: bool) {
        for sector in address / SECTOR..address.saturating_add(bytes).div_ceil(SECTOR) {
            self.sector(sector, writes, true);
        }
        self.touched.first += bytes as f64;
    }

    fn sector(&mut self, sector: u64, writes: bool, bypass: bool) {
        if writes {
            self.writes.touch(sector);
            self.touched.stored += 1;
        } else if bypass || !self.cache.read(sector) {
            self.touched.second += 1;
            self.touched.new |= self.reads.touch(sector);
        }
    }

    /// Lanes touch shared memory, in so many rounds through its banks.
    pub fn banks(&mut self, rounds: u64) {
        self.touched.rounds += rounds;
    }

    /// An instruction that touched memory, or not, by its class. Gives when it is done.
    pub fn memory(
        &mut self,
        warp: &mut WarpClock,
        pc: u32,
        guard: Operand,
        all: &[Operand],
        results: usize,
    ) -> f64 {
        let cost = self.costs[pc as usize];
        let mut ready = warp.ready(guard);
        for &operand in &all[results..] {
            ready = ready.max(warp.ready(operand));
        }
        let Touched { rounds, first, second, new, stored, parts } = std::mem::take(&mut self.touched);
        if stored > 0 {
            ready = ready.max(self.l2.free() - STORE_QUEUE);
        }
        let start = self.start(warp, &cost, ready);
        let base = warp.base();
        let latencies = self.rates.latencies;
        let rounds = rounds as f64 * 128.0;
        let mut done = start + cost.latency;
        if rounds > 0.0 || first > 0.0 {
            done = self.share(base, start, rounds + first) + latencies.shared;
        }
        if second > 0 {
            let latency = if new { latencies.dram } else { latencies.l2 };
            done = self.second(base, start, second) + latency;
        }
        if stored > 0 {
            // A sector is read and merged where not all of it is written.
            self.second(base, start, stored + self.rates.merge * parts);
        }
        all[..results].iter().for_each(|&result| warp.set_ready(result, done));
        done
    }

    /// A shuffle, or what else goes through the same unit.
    pub fn exchange(
        &mut self,
        warp: &mut WarpClock,
        pc: u32,
        guard: Operand,
        all: &[Operand],
        results: usize,
    ) {
        let cost = self.costs[pc as usize];
        let ready =
            all[results..].iter().fold(warp.ready(guard), |ready, &operand| ready.max(warp.ready(operand)));
        let start = self.start(warp, &cost, ready);
        let bytes = self.rates.shuffle * self.rates.shared;
        let done = self.share(warp.base(), start, bytes) + self.rates.latencies.shared;
        all[..results].iter().for_each(|&result| warp.set_ready(result, done));
    }

    /// A product of a warpgroup, which reads so many bytes of shared memory for this warp.
    pub fn product(&mut self, warp: &mut WarpClock, pc: u32, ready: f64, bytes: f64) {
        let cost = self.costs[pc as usize];
        let read = self.share(warp.base(), warp.base(), bytes);
        let start = self.start(warp, &cost, ready).max(read - cost.interval);
        warp.products.add(start + cost.interval + cost.latency);
    }

    /// A copy of the engine that was noted by [`Clock::run`], started by a warp. Gives when it is there.
    pub fn bulk_copy(&mut self, warp: &WarpClock) -> f64 {
        let Touched { first, second, new, stored, .. } = std::mem::take(&mut self.touched);
        let (base, now) = (warp.base(), warp.now());
        let latencies = self.rates.latencies;
        let latency = latencies.bulk_copy + if new { latencies.dram } else { latencies.l2 };
        let there = self.second(base, now, second + stored);
        self.share(base, now, first).max(there) + latency
    }
}
