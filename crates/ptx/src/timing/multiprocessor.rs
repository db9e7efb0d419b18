//! One multiprocessor: when its units are free, and how long they are busy.

use super::{
    atomics::{ContendedWords, combined},
    cache::{Footprint, L1, SECTOR},
    cost::{Cost, Kind},
    mended::MendedCosts,
    queue::Queue,
    stalls::{StallsByInstruction, Start},
    warp::WarpClock,
    wide_loads::{Width, widths},
};
use crate::{
    chip::{ChipSpec, Latencies},
    counters,
    isa::{Operand, Path, Program},
    performance::{Assumption, Calibration},
};

/// The functional units of a scheduler.
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

/// The sets of the L1 cache's tags: it looks up four lines per clock if they are in different sets. (Four sets by Jia et al., "Dissecting
/// the NVIDIA Volta GPU architecture via microbenchmarking"; four tags of four sectors per clock by NVIDIA's engineers in its forum.)
const TAG_SETS: usize = 4;

/// Bytes of a line of L1.
const LINE: u64 = 128;

/// Clocks of stores that may be queued before a storing warp has to wait.
const STORE_QUEUE: f64 = 400.0;

/// What a multiprocessor does per clock, calibrated.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    pub schedulers: usize,
    /// Clocks that a warp instruction occupies a unit of a scheduler.
    pub intervals: [f64; UNITS],
    /// The same for packed 16-bit arithmetic.
    pub half: f64,
    /// Multiply-adds per clock of a scheduler's tensor cores.
    pub tensor: f64,
    pub tensor_by_warp: f64,
    /// Clocks of a shuffle.
    pub shuffle: f64,
    /// Bytes per clock of shared memory and L1.
    pub shared: f64,
    /// Bytes per clock to and from L2.
    pub l2: f64,
    /// Sectors that L2 moves in addition for a partly written one.
    pub merge: u64,
    pub latencies: Latencies,
    pub l1_bytes: usize,
}

impl Rates {
    /// The rates of a chip whose multiprocessors use `shared_bytes` of shared memory; the rest is L1.
    pub fn new(chip: &ChipSpec, calibration: &Calibration, shared_bytes: usize) -> Rates {
        let units = &chip.units;
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
            l2: chip.memory.l2_port,
            merge: 1,
            latencies: chip.latencies,
            l1_bytes: chip.memory.l1_bytes.saturating_sub(shared_bytes),
        }
    }
}

/// What an instruction did to memory.
#[derive(Clone, Copy, Debug, Default)]
struct MemoryUse {
    /// Shared-memory wavefronts.
    wavefronts: f64,
    /// It is a part of a wide load that this instruction does.
    part_of: Option<u32>,
    /// Clocks of L1.
    l1_clocks: f64,
    /// Sectors read from L2, and whether any of them is read for the first time.
    loaded: u64,
    new: bool,
    /// Sectors that atomics update in L2.
    updated: u64,
    /// Sectors written to L2, and those of them that are partly written.
    stored: u64,
    partly: u64,
}

/// How long units were busy, in clocks, over all schedulers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    pub issue: f64,
    pub units: [f64; UNITS],
    pub shared: f64,
    /// How long all warps together waited at barriers.
    pub barriers: f64,
}

/// The clock of a multiprocessor.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    pub rates: Rates,
    pub costs: Vec<Cost>,
    issue: Vec<Queue>,
    units: Vec<[Queue; UNITS]>,
    shared: Queue,
    l2: Queue,
    cache: L1,
    pub reads: Footprint,
    pub writes: Footprint,
    /// Sectors moved to and from L2.
    pub l2_sectors: u64,
    pub busy: Busy,
    /// What the current instruction has done to memory.
    used: MemoryUse,
    /// Where warps wait, if that is asked for.
    pub stalls: Option<Box<StallsByInstruction>>,
    /// The costs that are left out.
    pub mended: MendedCosts,
    /// By instruction: whether it leaves out L1, and whether the assembler combines its lanes' atomics.
    uncached: Vec<bool>,
    combined: Vec<bool>,
    /// By instruction: which loads of shared memory become wide ones.
    widths: Vec<Width>,
    pub words: ContendedWords,
}

impl Clock {
    pub fn new(rates: Rates, costs: Vec<Cost>, program: &Program) -> Clock {
        Clock {
            issue: vec![Queue::default(); rates.schedulers],
            units: vec![[Queue::default(); UNITS]; rates.schedulers],
            shared: Queue::default(),
            l2: Queue::default(),
            cache: L1::new(rates.l1_bytes),
            reads: Footprint::default(),
            writes: Footprint::default(),
            l2_sectors: 0,
            busy: Busy::default(),
            used: MemoryUse::default(),
            stalls: None,
            mended: MendedCosts::default(),
            uncached: program.instructions.iter().map(|it| it.path == Path::Uncached).collect(),
            combined: combined(program),
            widths: widths(program),
            words: ContendedWords::default(),
            rates,
            costs,
        }
    }

    /// An instruction that needs nothing but its operands. `all` holds its results, then its operands.
    #[inline]
    pub fn plain(&mut self, warp: &mut WarpClock, pc: u32, guard: Operand, all: &[Operand], results: usize) {
        let cost = self.costs[pc as usize];
        let operands = warp.last(guard, &all[results..]);
        if cost.kind == Kind::Free {
            warp.set_results(&all[..results], operands.0, operands.1);
            return;
        }
        let start = self.start(warp, pc, operands, 0.0);
        let done = start + cost.latency;
        warp.set_results(&all[..results], done, Some(pc));
        if cost.kind == Kind::Loop {
            warp.settle();
        }
    }

    /// Issues an instruction on its scheduler and its unit; returns when it starts. Its operands are ready at some time, made by
    /// some instruction, and its memory operations have room from `queued` on.
    #[inline(always)]
    fn start(&mut self, warp: &mut WarpClock, pc: u32, operands: (f64, Option<u32>), queued: f64) -> f64 {
        let cost = &self.costs[pc as usize];
        let base = warp.base();
        let ready = operands.0.max(queued).max(base);
        let share = self.mended.share();
        let (slots, interval) = (cost.slots * share, cost.interval * share);
        let issued = self.issue[warp.scheduler].take(base, ready, slots);
        self.busy.issue += slots;
        let mut start = issued;
        if let Some(unit) = cost.unit {
            start = self.units[warp.scheduler][unit as usize].take(base, start, interval);
            self.busy.units[unit as usize] += interval;
        }
        if let Some(stalls) = &mut self.stalls {
            stalls.start(warp, &Start { pc, operands, queued, issued, at: start, slots: cost.slots });
        }
        warp.started(start);
        start
    }

    /// Shared memory and L1 work for some clocks, no earlier than `from`. Returns when they are done.
    fn serve_shared(&mut self, base: f64, from: f64, interval: f64) -> f64 {
        let start = self.shared.take(base, from, interval);
        self.busy.shared += interval;
        start + interval
    }

    /// L2 serves some sectors, no earlier than `from`. Returns when it is done, without its latency.
    fn serve_l2(&mut self, base: f64, from: f64, sectors: u64) -> f64 {
        let interval = (sectors * SECTOR) as f64 / self.rates.l2;
        let start = self.l2.take(base, from, interval);
        self.l2_sectors += sectors;
        start + interval
    }

    /// Notes an access of lanes to global memory.
    pub fn global(&mut self, pc: u32, addresses: &[u64; 32], mask: u32, bytes: u64, writes: bool) {
        let (seen, count) = sectors(addresses, mask, bytes);
        let asked = u64::from(mask.count_ones()) * bytes;
        if self.mended.is_some() && self.mended_global(&seen[..count], asked, writes) {
            return;
        }
        let bypass = self.uncached[pc as usize];
        seen[..count].iter().for_each(|&sector| self.sector(sector, writes, bypass));
        if writes && asked < count as u64 * SECTOR {
            self.used.partly += count as u64;
        }
        let mut clocks = self.l1_clocks(&seen[..count], asked);
        if self.mended.assumes(Assumption::WideAccesses) {
            clocks = (clocks * self.mended.share()).max(asked as f64 / self.rates.shared);
        }
        self.used.l1_clocks += clocks;
    }

    /// Notes an access to global memory if one of its costs is left out; returns whether that is so.
    fn mended_global(&mut self, sectors: &[u64], asked: u64, writes: bool) -> bool {
        if !writes && self.mended.assumes(Assumption::KeptInSharedMemory) {
            let new: Vec<u64> =
                sectors.iter().copied().filter(|&sector| self.mended.is_new_to_block(sector)).collect();
            new.iter().for_each(|&sector| self.sector(sector, false, false));
            self.used.wavefronts += 1.0;
            return true;
        }
        if !self.mended.assumes(Assumption::Coalesced) {
            return false;
        }
        let ideal = asked.div_ceil(SECTOR).min(sectors.len() as u64);
        let trimmed = if writes { &mut self.mended.writes } else { &mut self.mended.reads };
        trimmed.asked += asked;
        let mut new = false;
        sectors.iter().for_each(|&sector| new |= trimmed.footprint.touch(sector));
        if writes {
            self.used.stored += ideal;
        } else {
            // Neighbouring requests share lines of the cache, so that a request misses as a whole or not at all.
            let misses = sectors.iter().filter(|&&sector| !self.cache.read(sector)).count() as u64;
            self.used.loaded += misses.min(ideal);
            self.used.new |= new;
        }
        self.used.l1_clocks += asked as f64 / self.rates.shared;
        true
    }

    /// Notes atomics of lanes on global memory.
    pub fn atomic(&mut self, pc: u32, addresses: &[u64; 32], mask: u32, bytes: u64, cluster: u64) {
        let (seen, count) = sectors(addresses, mask, bytes);
        for &sector in &seen[..count] {
            self.sector(sector, false, true);
            self.writes.touch(sector);
        }
        self.used.updated += count as u64;
        self.used.l1_clocks += self.l1_clocks(&seen[..count], u64::from(mask.count_ones()) * bytes);
        if !self.mended.assumes(Assumption::UncontendedAtomics) {
            self.words.add(addresses, mask, self.combined[pc as usize], cluster);
        }
    }

    /// Notes an access of lanes to their local memory. Words of 4 bytes of the 32 lanes are next to each other.
    pub fn local(&mut self, base: u64, offsets: &[u64; 32], mask: u32, bytes: u64, writes: bool) {
        if self.mended.assumes(Assumption::NoLocalMemory) {
            return;
        }
        let (mut seen, mut count) = ([0; 128], 0);
        for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
            let last = offsets[lane].saturating_add(bytes.max(1) - 1) / 4;
            for word in (offsets[lane] / 4..=last).take(4) {
                let address = base.wrapping_add(word.wrapping_mul(LINE)).wrapping_add(4 * lane as u64);
                let sector = address / SECTOR;
                if !seen[..count].contains(&sector) {
                    seen[count] = sector;
                    count += 1;
                }
            }
        }
        for &sector in &seen[..count] {
            // What is written stays in L1 until another line needs its place.
            if !self.cache.read(sector) {
                *(if writes { &mut self.used.stored } else { &mut self.used.loaded }) += 1;
            }
        }
        self.used.l1_clocks += self.l1_clocks(&seen[..count], u64::from(mask.count_ones()) * bytes);
    }

    /// Clocks of L1 for a request. It looks up one line of each set per clock, and moves so many bytes.
    fn l1_clocks(&self, sectors: &[u64], asked: u64) -> f64 {
        let (mut lines, mut count) = ([0; 128], 0);
        let mut passes = [0u32; TAG_SETS];
        for &sector in sectors {
            let line = sector / (LINE / SECTOR);
            if !lines[..count].contains(&line) {
                lines[count] = line;
                count += 1;
                passes[line as usize % TAG_SETS] += 1;
            }
        }
        let most = passes.into_iter().max().unwrap_or(0);
        f64::from(most).max(asked as f64 / self.rates.shared)
    }

    /// Notes bytes of global memory that a bulk copy reads or writes.
    pub fn bulk_bytes(&mut self, address: u64, bytes: u64, writes: bool) {
        for sector in address / SECTOR..address.saturating_add(bytes).div_ceil(SECTOR) {
            self.sector(sector, writes, true);
        }
        self.used.l1_clocks += bytes as f64 / self.rates.shared;
    }

    fn sector(&mut self, sector: u64, writes: bool, bypass: bool) {
        if writes {
            self.writes.touch(sector);
            self.used.stored += 1;
        } else if bypass || !self.cache.read(sector) {
            self.used.loaded += 1;
            self.used.new |= self.reads.touch(sector);
        }
    }

    /// Notes a request to shared memory, with its wavefronts as it stands in the PTX, and how many of them are conflicts.
    pub fn shared(&mut self, pc: u32, addresses: &[u64; 32], mask: u32, wavefronts: (u64, u64)) {
        let Width::Part { bytes, after, first } = self.widths[pc as usize] else {
            return self.shared_wavefronts(wavefronts);
        };
        let (bytes, starts) = (u64::from(bytes), addresses.map(|address| address.wrapping_sub(after.into())));
        let aligned = (0..32).all(|lane| mask >> lane & 1 == 0 || starts[lane] % bytes == 0);
        if !aligned {
            self.shared_wavefronts(wavefronts);
        } else if pc == first {
            let (taken, groups) = counters::wavefronts(&starts, mask, bytes, true);
            self.shared_wavefronts((taken, taken - groups.min(taken)));
        } else {
            self.used.part_of = Some(first);
        }
    }

    /// Notes the wavefronts of an access to shared memory, and how many of them are conflicts.
    pub fn shared_wavefronts(&mut self, (wavefronts, conflicts): (u64, u64)) {
        let left_out = self.mended.assumes(Assumption::ConflictFree)
            || self.mended.assumes(Assumption::UncontendedAtomics);
        let served = wavefronts - if left_out { conflicts } else { 0 };
        // Tensor cores take what threads share from shared memory once.
        let share = if self.mended.assumes(Assumption::TensorCores) { self.mended.share() } else { 1.0 };
        self.used.wavefronts += served as f64 * share;
    }

    /// An instruction whose memory accesses were noted. Returns when it is done.
    pub fn memory(
        &mut self,
        warp: &mut WarpClock,
        pc: u32,
        guard: Operand,
        all: &[Operand],
        results: usize,
    ) -> f64 {
        let latency = self.costs[pc as usize].latency;
        let operands = warp.last(guard, &all[results..]);
        let MemoryUse { wavefronts, part_of, l1_clocks, loaded, new, updated, stored, partly } =
            std::mem::take(&mut self.used);
        if let Some(first) = part_of {
            let done = warp.wide_load(first).unwrap_or(operands.0);
            warp.set_results(&all[..results], done, Some(first));
            return done;
        }
        let queued = if stored > 0 { self.l2.free() - STORE_QUEUE } else { 0.0 };
        let start = self.start(warp, pc, operands, queued);
        let base = warp.base();
        let latencies = self.rates.latencies;
        let shared_clocks = wavefronts * 128.0 / self.rates.shared;
        let mut done = start + latency;
        if shared_clocks > 0.0 || l1_clocks > 0.0 {
            let latency = if l1_clocks > 0.0 { latencies.l1 } else { latencies.shared };
            done = self.serve_shared(base, start, shared_clocks + l1_clocks) + latency;
        }
        // L2 reads and writes what an atomic updates.
        self.l2_sectors += updated;
        if loaded > 0 {
            let latency = if new { latencies.dram } else { latencies.l2 };
            done = self.serve_l2(base, start, loaded) + latency * self.mended.latency();
        }
        if stored > 0 {
            // A partly written sector is read and merged.
            self.serve_l2(base, start, stored + self.rates.merge * partly);
        }
        if let Width::Part { .. } = self.widths[pc as usize] {
            warp.add_wide_load(pc, done);
        }
        warp.set_results(&all[..results], done, Some(pc));
        done
    }

    /// A shuffle, or another instruction of the same unit.
    pub fn shuffle(
        &mut self,
        warp: &mut WarpClock,
        pc: u32,
        guard: Operand,
        all: &[Operand],
        results: usize,
    ) {
        let operands = warp.last(guard, &all[results..]);
        let start = self.start(warp, pc, operands, 0.0);
        let done = self.serve_shared(warp.base(), start, self.rates.shuffle) + self.rates.latencies.shared;
        warp.set_results(&all[..results], done, Some(pc));
    }

    /// A `wgmma`, which reads `bytes` of shared memory for this warp.
    pub fn wgmma(&mut self, warp: &mut WarpClock, pc: u32, inputs: &[Operand], bytes: f64) {
        let cost = self.costs[pc as usize];
        let operands = warp.last(Operand::NONE, inputs);
        let read = self.serve_shared(warp.base(), warp.base(), bytes / self.rates.shared);
        let start = self.start(warp, pc, operands, 0.0).max(read - cost.interval);
        warp.wgmma.add(start + cost.interval + cost.latency);
    }

    /// A bulk copy that was noted with [`Clock::bulk_bytes`]. Returns when it lands.
    pub fn bulk_copy(&mut self, warp: &WarpClock) -> f64 {
        let MemoryUse { l1_clocks, loaded, new, stored, .. } = std::mem::take(&mut self.used);
        let (base, now) = (warp.base(), warp.now());
        let latencies = self.rates.latencies;
        let latency = latencies.bulk_copy + if new { latencies.dram } else { latencies.l2 };
        let there = self.serve_l2(base, now, loaded + stored);
        self.serve_shared(base, now, l1_clocks).max(there) + latency
    }
}

/// The sectors that lanes access.
fn sectors(addresses: &[u64; 32], mask: u32, bytes: u64) -> ([u64; 64], usize) {
    let mut last = u64::MAX;
    let mut seen = [u64::MAX; 64];
    let mut count = 0;
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        // An access near the highest address must not overflow.
        for sector in addresses[lane] / SECTOR..=addresses[lane].saturating_add(bytes - 1) / SECTOR {
            if sector != last && count < seen.len() && !seen[..count].contains(&sector) {
                seen[count] = sector;
                count += 1;
            }
            last = sector;
        }
    }
    (seen, count)
}
