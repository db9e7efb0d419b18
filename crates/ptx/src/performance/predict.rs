//! The prediction of a launch.

use super::{Calibration, Prediction, Resource, ResourceUse, footprint, sample::Sample};
use crate::{
    counters::Counters,
    error::PtxError,
    machine::{TimedRun, run_timed},
    occupancy::BlockResources,
    simulator::{Kernel, LaunchConfig, Module, Simulator},
    timing::{Clock, ClockUnit, Rates, SECTOR, costs},
};

/// Instructions of warps after which a multiprocessor gets no more blocks to run.
const BUDGET: u64 = 4_000_000;

/// How a prediction is made.
#[derive(Clone, Debug, Default)]
pub struct PredictOptions {
    /// Registers of a thread, as the assembler gives them; without it, as many as the PTX needs at a time.
    pub registers: Option<u32>,
    /// What is known of the device.
    pub calibration: Calibration,
    /// Whether the launch follows another that is waited for in the same stream.
    pub follows: bool,
}

impl Simulator {
    /// Predicts how long a launch takes, by a sample of its blocks. Nothing is computed and nothing checked: branches that
    /// depend on data go as zeros would have them go, where the data is not there.
    ///
    /// # Errors
    /// Where the launch is one that no chip would take, a multiprocessor cannot hold a block of it, or its blocks come to
    /// no end.
    pub fn predict(
        &self,
        module: &Module,
        kernel: &str,
        config: &LaunchConfig,
        options: &PredictOptions,
    ) -> Result<Prediction, PtxError> {
        let kernel = module.kernel(kernel)?;
        let launched = self.launched_timed(kernel, config)?;
        let geometry = launched.geometry;
        let refuse = |what: &str| PtxError::Launch { kernel: kernel.name.clone(), what: what.to_owned() };
        let profile = self.profile();
        let block = BlockResources {
            threads: geometry.threads() as u32,
            registers: options.registers.unwrap_or_else(|| estimated_registers(kernel)),
            shared_bytes: kernel.program.shared_bytes + geometry.dynamic_shared,
        };
        let occupancy = profile.occupancy(&block);
        if occupancy.blocks == 0 {
            return Err(refuse("no multiprocessor can hold a block of it"));
        }
        let per_cluster = geometry.cluster_blocks() as u64;
        let clusters = geometry.cluster_count();
        let multiprocessors = u64::from(profile.multiprocessors);
        let blocks = clusters * per_cluster;
        let resident = (u64::from(occupancy.blocks) / per_cluster).max(1);
        let sample = Sample { clusters, multiprocessors, resident, number: 0 };
        let held = resident.min(sample.share());
        let active = blocks.min(multiprocessors) as f64;
        let rates = Rates::new(profile, &options.calibration, held as usize * block.shared_bytes);
        let costs = costs(&kernel.program, &rates);
        let run = |number: u64| {
            let sample = Sample { number, ..sample };
            let clock = Clock::new(rates.clone(), costs.clone());
            (sample, run_timed(&launched, clock, sample.chosen(), resident as usize, BUDGET))
        };
        // One at the begin of the grid and one in its middle: at edges blocks may have less to do.
        let middle = clusters.min(multiprocessors) / 2;
        let runs = if middle == 0 {
            vec![run(0)]
        } else {
            <[_; 2]>::from(rayon::join(|| run(0), || run(middle))).into()
        };
        if runs.iter().any(|(_, run)| !run.finished) {
            return Err(refuse("its blocks come to no end"));
        }
        Ok(self.conclude(&runs, &Facts { block, occupancy, blocks, per_cluster, active, resident }, options))
    }
}

/// What is known of a launch before it runs.
struct Facts {
    block: BlockResources,
    occupancy: crate::occupancy::Occupancy,
    blocks: u64,
    per_cluster: u64,
    active: f64,
    resident: u64,
}

/// Registers by the PTX alone: those that are needed at a time, and a few for addresses.
fn estimated_registers(kernel: &Kernel) -> u32 {
    let needed = kernel.program.word_count + 2 * kernel.program.long_count;
    (needed as u32 + 8).clamp(16, 255)
}

impl Simulator {
    fn conclude(&self, runs: &[(Sample, TimedRun)], facts: &Facts, options: &PredictOptions) -> Prediction {
        let (profile, calibration) = (self.profile(), &options.calibration);
        let blocks = facts.blocks as f64;
        let extents: Vec<(u64, u64)> = self.extents().collect();
        let mut counters = Counters::default();
        let mut uses = [0.0; 7];
        let (mut sampled, mut waited) = (0.0, 0.0);
        let (mut clocks, mut l2_sectors) = (0.0f64, 0.0);
        let (mut read, mut written, mut each) = (vec![0.0; extents.len()], vec![0.0; extents.len()], 0.0);
        for (sample, run) in runs {
            let count = run.ends.len() as f64;
            let own = sample.extrapolated(&run.ends);
            // Where all blocks run at once, the slowest multiprocessor counts; where they are dealt out as others end, the mean.
            let single = sample.share() <= facts.resident;
            clocks = if single { clocks.max(own) } else { clocks + own / runs.len() as f64 };
            counters.merge(&run.counters);
            sampled += count * facts.per_cluster as f64;
            let Some(clock) = &run.clock else { continue };
            let factor = sample.share() as f64 / count.max(1.0) / runs.len() as f64;
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
            waited += busy.barriers;
            uses.iter_mut().zip(own).for_each(|(all, own)| *all += own * factor);
            l2_sectors += clock.l2_sectors as f64;
            let reads = footprint::by_allocation(&clock.reads, &extents);
            each += reads.iter().sum::<f64>();
            read.iter_mut().zip(reads).for_each(|(all, own)| *all += own);
            let writes = footprint::by_allocation(&clock.writes, &extents);
            written.iter_mut().zip(writes).for_each(|(all, own)| *all += own);
        }
        let each = each / f64::max(sampled, 1.0);
        let read = footprint::whole(&read, &extents, sampled, blocks);
        let written: f64 = footprint::whole(&written, &extents, sampled, blocks).iter().sum();
        let resident = blocks.min(facts.active * facts.resident as f64);
        let cache = profile.memory.l2_bytes as f64;
        let dram_bytes = footprint::reads(&read, each, blocks, resident, cache) + written;

        let seconds_of = |clocks: f64| clocks / profile.clock_hz;
        let multiprocessor_seconds = seconds_of(clocks) / calibration.clock;
        let dram_seconds = dram_bytes / (profile.memory.dram_bytes * calibration.dram);
        let launch = calibration.launch_seconds.unwrap_or(profile.launch_seconds);
        let launch_seconds = if options.follows {
            calibration.following_seconds.unwrap_or(profile.launch_seconds / 4.0)
        } else {
            launch
        };
        let l2_bytes = l2_sectors * SECTOR as f64 * blocks / f64::max(sampled, 1.0);
        let l2_seconds = seconds_of(l2_bytes / (profile.memory.l2_rate * calibration.l2));
        let working = calibration.combined(multiprocessor_seconds, l2_seconds, dram_seconds);
        const RESOURCES: [Resource; 7] = [
            Resource::Issue,
            Resource::Float,
            Resource::Integer,
            Resource::Double,
            Resource::Special,
            Resource::Tensor,
            Resource::Shared,
        ];
        let mut uses: Vec<ResourceUse> = RESOURCES
            .into_iter()
            .zip(uses)
            .map(|(resource, clocks)| ResourceUse {
                resource,
                seconds: seconds_of(clocks) / calibration.clock,
            })
            .chain([
                ResourceUse { resource: Resource::L2, seconds: l2_seconds },
                ResourceUse { resource: Resource::Dram, seconds: dram_seconds },
            ])
            .filter(|used| used.seconds > 0.0)
            .collect();
        uses.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let seconds = launch_seconds + working;
        let warps = f64::from(facts.block.threads.div_ceil(32));
        let (limiter, next_limiter) = limiters(&uses, working, launch_seconds);
        Prediction {
            seconds,
            launch_seconds,
            multiprocessor_seconds,
            l2_seconds,
            dram_seconds,
            barrier_seconds: seconds_of(waited / f64::max(sampled * warps, 1.0)) / calibration.clock,
            limiter,
            next_limiter,
            uses,
            occupancy: facts.occupancy,
            registers: facts.block.registers,
            waves: blocks / (f64::from(profile.multiprocessors) * f64::from(facts.occupancy.blocks)),
            blocks: facts.blocks,
            sampled_blocks: sampled as u64,
            dram_bytes,
            l2_bytes,
            counters: counters.scaled(blocks / f64::max(sampled, 1.0)),
        }
    }
}

/// A resource that is busy for less than this share of the time does not limit it.
const BUSY: f64 = 0.6;

/// What limits a launch, and what comes next: the launch itself where it takes the longest, the busiest resource where that
/// is busy most of the time, and waiting where none is.
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
