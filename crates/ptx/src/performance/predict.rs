//! Predicts how long a launch takes.

use super::{
    Assumed, Calibration, LinePrediction, Mended, Prediction, Resource, ResourceUse, footprint,
    sample::Sample,
};
use crate::{
    chip::ChipSpec,
    counters::{ByLine, Counters, CountersByInstruction, LineCounters},
    error::PtxError,
    machine::{TimedRun, run_timed},
    occupancy::{BlockResources, Occupancy},
    simulator::{Kernel, LaunchConfig, Module, Simulator, unsupported},
    timing::{
        Clock, ClockUnit, ContendedWords, Footprint, MendedCosts, Rates, SECTOR, Stalls, StallsByInstruction,
        costs,
    },
};

/// Warp instructions after which a multiprocessor starts no more blocks.
const BUDGET: u64 = 4_000_000;

/// How a prediction is made.
#[derive(Clone, Debug, Default)]
pub struct PredictOptions {
    /// Registers per thread as the assembler allocates them; if unknown, they are estimated from the PTX.
    pub registers: Option<u32>,
    /// The device's calibration.
    pub calibration: Calibration,
    /// Whether the launch follows another one in the same stream.
    pub follows: bool,
    /// Whether to divide counters and waits by line; it takes longer.
    pub by_line: bool,
    /// Costs that are left out, to see what the kernel would gain without them.
    pub mended: Vec<Mended>,
    /// Whether multiprocessors hold as many blocks as they have slots for warps, whatever else limits them.
    pub full_occupancy: bool,
}

impl Simulator {
    /// Predicts how long a launch takes from a sample of its blocks. Nothing is checked, matrix products are not computed, and
    /// [reserved](Simulator::reserve) memory reads as zeros, so branches that depend on data may go another way.
    ///
    /// # Errors
    /// If the chip would refuse the launch, a multiprocessor cannot hold one of its blocks, or a sampled block does not finish.
    pub fn predict(
        &self,
        module: &Module,
        kernel: &str,
        config: &LaunchConfig,
        options: &PredictOptions,
    ) -> Result<Prediction, PtxError> {
        let kernel = module.kernel(kernel)?;
        let launched = self.launched_timed(kernel, config, options.by_line)?;
        let geometry = launched.geometry;
        let refuse = |what: &str| PtxError::Launch { kernel: kernel.name.clone(), what: what.to_owned() };
        let chip = self.chip();
        let block = BlockResources {
            threads: geometry.threads() as u32,
            registers: options.registers.unwrap_or_else(|| estimated_registers(kernel)),
            shared_bytes: kernel.program.shared_bytes + geometry.dynamic_shared,
        };
        let mut occupancy = chip.occupancy(&block);
        if options.full_occupancy {
            occupancy = chip.full_occupancy(&block);
        }
        if occupancy.blocks == 0 {
            return Err(refuse("a multiprocessor cannot hold even one of its blocks"));
        }
        let per_cluster = geometry.cluster_blocks() as u64;
        let clusters = geometry.cluster_count();
        let multiprocessors = u64::from(chip.multiprocessors);
        let blocks = clusters * per_cluster;
        let resident = (u64::from(occupancy.blocks) / per_cluster).max(1);
        let sample = Sample { clusters, multiprocessors, resident, number: 0 };
        let held = resident.min(sample.share());
        let active = blocks.min(multiprocessors) as f64;
        let rates = Rates::new(chip, &options.calibration, held as usize * block.shared_bytes);
        let mended = mended_costs(kernel, module, options, chip);
        let mut costs = costs(&kernel.program, &rates);
        mended.apply(&kernel.program, &mut costs, chip.latencies.arithmetic);
        let run = |number: u64| {
            let sample = Sample { number, ..sample };
            let mut clock = Clock::new(rates.clone(), costs.clone(), &kernel.program);
            clock.mended = mended.clone();
            if options.by_line {
                clock.stalls = Some(Box::new(StallsByInstruction::new(&kernel.program)));
            }
            (sample, run_timed(&launched, clock, sample.chosen(), resident as usize, BUDGET))
        };
        // One multiprocessor at the start of the grid and one in its middle: blocks at edges may have less to do.
        let middle = clusters.min(multiprocessors) / 2;
        let runs = if middle == 0 {
            vec![run(0)]
        } else {
            <[_; 2]>::from(rayon::join(|| run(0), || run(middle))).into()
        };
        if let Some(failure) = runs.iter().filter_map(|(_, run)| run.failure).min() {
            return Err(unsupported(failure, module, kernel));
        }
        if runs.iter().any(|(_, run)| !run.finished) {
            return Err(refuse("its sampled blocks did not finish"));
        }
        let facts = Facts { block, occupancy, blocks, per_cluster, active, resident };
        let mut prediction = self.conclude(&runs, &facts, options);
        prediction.by_line = by_line(&runs, &facts, kernel, module);
        Ok(prediction)
    }
}

/// The costs that are left out.
fn mended_costs(kernel: &Kernel, module: &Module, options: &PredictOptions, chip: &ChipSpec) -> MendedCosts {
    if options.mended.is_empty() {
        return MendedCosts::default();
    }
    let assumed = |pc: usize| {
        let source = module.line_of(kernel, pc).0;
        let mut assumed = Assumed::default();
        for mended in &options.mended {
            if mended.lines.is_empty() || source.as_ref().is_some_and(|line| mended.lines.contains(line)) {
                assumed.add(mended.assumption);
            }
        }
        assumed
    };
    let assumed = (0..kernel.program.instructions.len()).map(assumed).collect();
    MendedCosts::new(&kernel.program, assumed, chip.units.float / chip.units.tensor.max(1.0))
}

/// What is known about a launch before it runs.
struct Facts {
    block: BlockResources,
    occupancy: Occupancy,
    blocks: u64,
    per_cluster: u64,
    /// Multiprocessors that get a block.
    active: f64,
    /// Clusters per multiprocessor at a time.
    resident: u64,
}

/// The resources of a multiprocessor, in the order of [`Totals::busy`].
const UNITS: [Resource; 7] = [
    Resource::Issue,
    Resource::Float,
    Resource::Integer,
    Resource::Double,
    Resource::Special,
    Resource::Tensor,
    Resource::Shared,
];

/// What the sampled multiprocessors did, together.
#[derive(Default)]
struct Totals {
    counters: Counters,
    /// Blocks that were run.
    sampled: f64,
    /// Clocks that a multiprocessor takes for its share of the grid.
    clocks: f64,
    /// Clocks that its units are busy with that share.
    busy: [f64; UNITS.len()],
    /// Clocks that warps waited at barriers.
    waited: f64,
    l2_sectors: f64,
    words: ContendedWords,
    /// Bytes read and written, by allocation, each once per multiprocessor.
    read: Vec<f64>,
    written: Vec<f64>,
}

impl Totals {
    fn new(runs: &[(Sample, TimedRun)], facts: &Facts, extents: &[(u64, u64)]) -> Totals {
        let mut totals =
            Totals { read: vec![0.0; extents.len()], written: vec![0.0; extents.len()], ..Totals::default() };
        for (sample, run) in runs {
            totals.add(sample, run, runs.len() as f64, facts, extents);
        }
        totals
    }

    /// Adds one of `runs` sampled multiprocessors.
    fn add(&mut self, sample: &Sample, run: &TimedRun, runs: f64, facts: &Facts, extents: &[(u64, u64)]) {
        let count = run.ends.len() as f64;
        let own = sample.extrapolated(&run.ends);
        // If all blocks run at once, the slowest multiprocessor counts; if they are scheduled as others end, the mean.
        let at_once = sample.share() <= facts.resident;
        self.clocks = if at_once { self.clocks.max(own) } else { self.clocks + own / runs };
        self.counters.merge(&run.counters);
        self.sampled += count * facts.per_cluster as f64;
        let Some(clock) = &run.clock else { return };
        let factor = sample.share() as f64 / count.max(1.0) / runs;
        let busy = &clock.busy;
        let schedulers = clock.rates.schedulers as f64;
        let unit = |unit: ClockUnit| busy.units[unit as usize] / schedulers;
        let own = [
            busy.issue / schedulers,
            unit(ClockUnit::Float),
            unit(ClockUnit::Integer),
            unit(ClockUnit::Double),
            unit(ClockUnit::Special),
            unit(ClockUnit::Tensor),
            busy.shared,
        ];
        self.busy.iter_mut().zip(own).for_each(|(all, own)| *all += own * factor);
        self.waited += busy.barriers;
        self.l2_sectors += clock.l2_sectors as f64;
        self.words.merge(&clock.words);
        let mended = &clock.mended;
        let add = |all: &mut [f64], footprint: &Footprint, share: f64| {
            let own = footprint::by_allocation(footprint, extents);
            all.iter_mut().zip(own).for_each(|(all, own)| *all += own * share);
        };
        add(&mut self.read, &clock.reads, 1.0);
        add(&mut self.read, &mended.reads.footprint, mended.reads.share());
        add(&mut self.written, &clock.writes, 1.0);
        add(&mut self.written, &mended.writes.footprint, mended.writes.share());
    }
}

/// The counters and waits of every line, if they were kept.
fn by_line(
    runs: &[(Sample, TimedRun)],
    facts: &Facts,
    kernel: &Kernel,
    module: &Module,
) -> Option<ByLine<LinePrediction>> {
    let mut counted = CountersByInstruction::new(&kernel.program);
    let mut stalls = StallsByInstruction::new(&kernel.program);
    let mut clusters = 0;
    for (_, run) in runs {
        counted.merge(run.by_instruction.as_ref()?);
        stalls.add(run.clock.as_ref()?.stalls.as_ref()?);
        clusters += run.ends.len() as u64;
    }
    let sampled = (clusters * facts.per_cluster).max(1) as f64;
    let warps = sampled * f64::from(facts.block.threads.div_ceil(32));
    let new = |line: LineCounters| LinePrediction { line, stalls: Stalls::default() };
    let add = |line: &mut LinePrediction, pc: usize| {
        if let Some(counters) = counted.get(pc) {
            line.line.add(&kernel.program.instructions[pc].op, counters);
        }
        line.stalls.add(&stalls.all[pc].scaled(1.0 / warps));
    };
    let mut folded = ByLine::fold(counted.executed(), |pc| module.line_of(kernel, pc), new, add);
    let factor = facts.blocks as f64 / sampled;
    folded.source.iter_mut().chain(&mut folded.ptx).for_each(|line| line.line.scale(factor));
    Some(folded)
}

/// Estimates the registers per thread from the PTX: those that are live at a time, and a few for addresses.
fn estimated_registers(kernel: &Kernel) -> u32 {
    let needed = kernel.program.word_count + 2 * kernel.program.long_count;
    (needed as u32 + 8).clamp(16, 255)
}

impl Simulator {
    fn conclude(&self, runs: &[(Sample, TimedRun)], facts: &Facts, options: &PredictOptions) -> Prediction {
        let (chip, calibration) = (self.chip(), &options.calibration);
        let extents: Vec<(u64, u64)> = self.extents().collect();
        let totals = Totals::new(runs, facts, &extents);
        let blocks = facts.blocks as f64;
        let sampled = f64::max(totals.sampled, 1.0);
        let seconds_of = |clocks: f64| clocks / chip.clock_hz;

        let multiprocessor_seconds = seconds_of(totals.clocks) / calibration.clock;
        let dram_bytes = self.dram_bytes(&totals, facts, &extents);
        let dram_seconds = dram_bytes / (chip.memory.dram_bytes * calibration.dram);
        let l2_bytes = totals.l2_sectors * SECTOR as f64 * blocks / sampled;
        // One operation per clock on the word that most atomics update; the other slices of L2 work meanwhile.
        let atomic_seconds = seconds_of(totals.words.most(blocks / sampled));
        let l2_seconds = seconds_of(l2_bytes / (chip.memory.l2_rate * calibration.l2)).max(atomic_seconds);
        let working = calibration.combined(multiprocessor_seconds, l2_seconds, dram_seconds);
        let launch_seconds = if options.follows {
            calibration.following_seconds.unwrap_or(chip.launch_seconds / 4.0)
        } else {
            calibration.launch_seconds.unwrap_or(chip.launch_seconds)
        };

        let units = UNITS.into_iter().zip(totals.busy);
        let units = units.map(|(resource, clocks)| (resource, seconds_of(clocks) / calibration.clock));
        let shared = [(Resource::L2, l2_seconds), (Resource::Dram, dram_seconds)];
        let mut uses: Vec<ResourceUse> = units
            .chain(shared)
            .map(|(resource, seconds)| ResourceUse { resource, seconds })
            .filter(|used| used.seconds > 0.0)
            .collect();
        uses.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let (limiter, next_limiter) = limiters(&uses, working, launch_seconds);
        let warps = f64::from(facts.block.threads.div_ceil(32));
        Prediction {
            seconds: launch_seconds + working,
            launch_seconds,
            multiprocessor_seconds,
            l2_seconds,
            atomic_seconds,
            dram_seconds,
            barrier_seconds: seconds_of(totals.waited / f64::max(totals.sampled * warps, 1.0))
                / calibration.clock,
            limiter,
            next_limiter,
            uses,
            occupancy: facts.occupancy,
            registers: facts.block.registers,
            waves: blocks / (f64::from(chip.multiprocessors) * f64::from(facts.occupancy.blocks)),
            blocks: facts.blocks,
            sampled_blocks: totals.sampled as u64,
            dram_bytes,
            l2_bytes,
            counters: totals.counters.scaled(blocks / sampled),
            by_line: None,
        }
    }

    /// The bytes that the whole grid moves between L2 and DRAM.
    fn dram_bytes(&self, totals: &Totals, facts: &Facts, extents: &[(u64, u64)]) -> f64 {
        let blocks = facts.blocks as f64;
        let each = totals.read.iter().sum::<f64>() / f64::max(totals.sampled, 1.0);
        let read = footprint::whole(&totals.read, extents, totals.sampled, blocks);
        let written: f64 = footprint::whole(&totals.written, extents, totals.sampled, blocks).iter().sum();
        let resident = blocks.min(facts.active * facts.resident as f64);
        footprint::reads(&read, each, blocks, resident, self.chip().memory.l2_bytes as f64) + written
    }
}

/// A resource that is busy for a smaller share of the time is not a limit.
const BUSY: f64 = 0.6;

/// What limits a launch, and what would limit it next: the launch itself if it takes longest, the busiest resource if it is busy most
/// of the time, latency if none is.
fn limiters(uses: &[ResourceUse], working: f64, launch: f64) -> (Resource, Resource) {
    let mut candidates: Vec<(Resource, f64)> =
        uses.iter().map(|used| (used.resource, used.seconds)).collect();
    candidates.push((Resource::Launch, launch));
    let busiest = uses.first().map_or(0.0, |used| used.seconds);
    if busiest < BUSY * working {
        candidates.push((Resource::Latency, working));
    }
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
    let at = |place: usize| candidates.get(place).map_or(Resource::Latency, |candidate| candidate.0);
    (at(0), at(1))
}
