//! Which costs are worth asking about, by the counters of lines.

use kinora_ptx::{
    Assumption, Counters, InstructionClass, LinePrediction, Mended, OccupancyLimit, Prediction, SourceLine,
    StallReason, Traffic,
};

use super::{Figure, Rule, Subject};

/// What to ask the simulator.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// How long would it take without these costs?
    Mended(Vec<Mended>),
    /// How long if multiprocessors were full?
    FullOccupancy,
    /// Nothing: the time follows from the prediction.
    Seconds(f64),
    /// Nothing, and the time is not known.
    Unknown,
}

/// A cost that may be worth mending.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub rule: Rule,
    pub line: Option<SourceLine>,
    pub what: String,
    pub figures: Vec<Figure>,
    pub question: Question,
}

/// All candidates.
pub(super) fn candidates(subject: &Subject<'_>, base: &Prediction) -> Vec<Candidate> {
    let lines = base.by_line.as_ref().map_or(&[][..], |by_line| &by_line.source);
    let kernel = Kernel { subject, base, lines };
    let mut found = Vec::new();
    found.extend(kernel.launch_bound());
    found.extend(kernel.small_grid());
    found.extend(kernel.tail_wave());
    found.extend(kernel.low_occupancy());
    found.extend(kernel.spills());
    found.extend(kernel.divergence());
    found.extend(kernel.local_memory());
    found.extend(kernel.barrier_stalls());
    found.extend(kernel.narrow_access());
    found.extend(kernel.repeated_loads());
    found.extend(kernel.exposed_latency());
    for line in lines {
        found.extend(uncoalesced(line));
        found.extend(bank_conflicts(line));
        found.extend(atomic_contention(line));
        found.extend(slow_arithmetic(line));
        found.extend(tensor_cores_unused(line, base));
    }
    found
}

fn figure(
    name: &'static str,
    metric: impl Into<Option<&'static str>>,
    value: f64,
    ideal: impl Into<Option<f64>>,
) -> Figure {
    Figure { name, metric: metric.into(), value, ideal: ideal.into() }
}

fn without(assumption: Assumption, lines: impl IntoIterator<Item = SourceLine>) -> Question {
    Question::Mended(vec![Mended { assumption, lines: lines.into_iter().collect() }])
}

fn global(counters: &Counters) -> [&Traffic; 2] {
    [&counters.global_loads, &counters.global_stores]
}

/// What concerns the whole kernel.
struct Kernel<'a> {
    subject: &'a Subject<'a>,
    base: &'a Prediction,
    lines: &'a [LinePrediction],
}

impl Kernel<'_> {
    /// The line that has the most of something, if any has.
    fn most(&self, amount: impl Fn(&LinePrediction) -> f64) -> Option<&LinePrediction> {
        let most = self.lines.iter().max_by(|a, b| amount(a).total_cmp(&amount(b)));
        most.filter(|line| amount(line) > 0.0)
    }

    fn launch_bound(&self) -> Option<Candidate> {
        let Prediction { seconds, launch_seconds, .. } = *self.base;
        (launch_seconds > 0.5 * seconds).then(|| Candidate {
            rule: Rule::LaunchBound,
            line: None,
            what: format!("the launch itself takes {:.1} of {:.1} µs", launch_seconds * 1e6, seconds * 1e6),
            figures: vec![figure("launch overhead, share of the time", None, launch_seconds / seconds, 0.0)],
            question: Question::Seconds(seconds - launch_seconds),
        })
    }

    fn multiprocessors(&self) -> f64 {
        f64::from(self.subject.simulator.chip().multiprocessors)
    }

    /// The time if the multiprocessors took some share of theirs.
    fn seconds_with(&self, share: f64) -> f64 {
        let Prediction { launch_seconds, multiprocessor_seconds, l2_seconds, dram_seconds, .. } = *self.base;
        launch_seconds + (multiprocessor_seconds * share).max(l2_seconds).max(dram_seconds)
    }

    /// The time that the launch and the busiest unit take.
    fn busiest(&self) -> f64 {
        self.base.launch_seconds + self.base.uses.first().map_or(0.0, |used| used.seconds)
    }

    fn small_grid(&self) -> Option<Candidate> {
        let (blocks, multiprocessors) = (self.base.blocks as f64, self.multiprocessors());
        (blocks < multiprocessors).then(|| Candidate {
            rule: Rule::SmallGrid,
            line: None,
            what: format!("{blocks} blocks for {multiprocessors} multiprocessors: the others are idle"),
            figures: vec![figure("blocks", "launch__grid_size", blocks, multiprocessors)],
            question: Question::Seconds(self.seconds_with(blocks / multiprocessors)),
        })
    }

    fn tail_wave(&self) -> Option<Candidate> {
        let each = self.base.blocks as f64 / self.multiprocessors();
        let most = each.ceil();
        (each > 1.0 && most / each > 1.03).then(|| Candidate {
            rule: Rule::TailWave,
            line: None,
            what: format!(
                "{} blocks are {each:.2} for each multiprocessor, so that some get {most} and the others wait for them",
                self.base.blocks
            ),
            figures: vec![
                figure("blocks per multiprocessor", None, each, most),
                figure("waves", "launch__waves_per_multiprocessor", self.base.waves, None),
            ],
            question: Question::Seconds(self.seconds_with(each / most)),
        })
    }

    fn low_occupancy(&self) -> Option<Candidate> {
        let occupancy = self.base.occupancy;
        let limit = match occupancy.limit {
            OccupancyLimit::Warps => "its slots for warps",
            OccupancyLimit::Blocks => "its slots for blocks",
            OccupancyLimit::Registers => "registers",
            OccupancyLimit::Shared => "shared memory",
        };
        let enough = self.base.blocks as f64 > self.multiprocessors() * f64::from(occupancy.blocks);
        (occupancy.share < 0.75 && enough).then(|| Candidate {
            rule: Rule::LowOccupancy,
            line: None,
            what: format!(
                "a multiprocessor holds only {} blocks, {:.0} % of its warps, limited by {limit}",
                occupancy.blocks,
                100.0 * occupancy.share
            ),
            figures: vec![
                figure("occupancy", "sm__maximum_warps_per_active_cycle_pct", 100.0 * occupancy.share, 100.0),
                figure(
                    "registers per thread",
                    "launch__registers_per_thread",
                    f64::from(self.base.registers),
                    None,
                ),
            ],
            question: Question::FullOccupancy,
        })
    }

    fn spills(&self) -> Option<Candidate> {
        let bytes = self.subject.spill_bytes;
        (bytes > 0).then(|| Candidate {
            rule: Rule::RegisterSpills,
            line: None,
            what: format!(
                "{} registers do not suffice: a thread stores {bytes} bytes and loads them again, which the prediction leaves out",
                self.base.registers
            ),
            figures: vec![figure("spilled bytes per thread", None, f64::from(bytes), 0.0)],
            question: Question::Unknown,
        })
    }

    fn divergence(&self) -> Option<Candidate> {
        let lost = |line: &LinePrediction| {
            let counters = &line.line.counters;
            32.0 * counters.warp_instructions() as f64 - counters.thread_instructions as f64
        };
        let efficiency = self.base.counters.lane_efficiency();
        let branches = |line: &LinePrediction| line.line.counters.divergent_branches as f64;
        let at = self.most(branches).or_else(|| self.most(lost))?;
        (efficiency < 0.9 && self.base.counters.divergent_branches > 0).then(|| Candidate {
            rule: Rule::Divergence,
            line: at.line.source.clone(),
            what: format!(
                "warps diverge here {} times; on average {:.1} of 32 lanes execute an instruction",
                at.line.counters.divergent_branches,
                32.0 * efficiency
            ),
            figures: vec![
                figure(
                    "active threads per warp",
                    "smsp__thread_inst_executed_per_inst_executed.ratio",
                    32.0 * efficiency,
                    32.0,
                ),
                figure("divergent branches", None, self.base.counters.divergent_branches as f64, 0.0),
            ],
            question: without(Assumption::FullWarps, []),
        })
    }

    fn local_memory(&self) -> Option<Candidate> {
        let bytes = |line: &LinePrediction| {
            (line.line.counters.local_load_bytes + line.line.counters.local_store_bytes) as f64
        };
        let at = self.most(bytes)?;
        let all = (self.base.counters.local_load_bytes + self.base.counters.local_store_bytes) as f64;
        Some(Candidate {
            rule: Rule::LocalMemory,
            line: at.line.source.clone(),
            what: format!("a per-thread array lies in local memory: {} of traffic", bytes_text(all)),
            figures: vec![figure("bytes of local memory", "smsp__inst_executed_op_local_ld + _st", all, 0.0)],
            question: without(Assumption::NoLocalMemory, []),
        })
    }

    fn barrier_stalls(&self) -> Option<Candidate> {
        let at = self.most(|line| line.stalls.reason(StallReason::Barrier))?;
        let total: f64 = self.lines.iter().map(|line| line.stalls.total()).sum();
        let waits: f64 = self.lines.iter().map(|line| line.stalls.reason(StallReason::Barrier)).sum();
        (waits > 0.1 * total).then(|| Candidate {
            rule: Rule::BarrierStalls,
            line: at.line.source.clone(),
            what: format!("warps wait at barriers for {:.0} % of their time", 100.0 * waits / total),
            figures: vec![figure(
                "cycles at barriers, per warp",
                "smsp__average_warps_issue_stalled_barrier_per_issue_active",
                waits,
                0.0,
            )],
            // If the warps shared the work, each would take what it is busy on average, unless a unit limits them.
            question: Question::Seconds(self.seconds_with(1.0 - waits / total).max(self.busiest())),
        })
    }

    fn narrow_access(&self) -> Option<Candidate> {
        let at = self.most(|line| global(&line.line.counters).iter().map(|all| all.requests as f64).sum())?;
        let [loads, stores] = global(&at.line.counters);
        let (requests, bytes) = (loads.requests + stores.requests, loads.bytes + stores.bytes);
        let lane = bytes as f64 / (32 * requests) as f64;
        let even = loads.efficiency().min(stores.efficiency()) > 0.7;
        // What runs more often than the access, such as a loop over what it loaded, is not done less often then.
        let as_often = |line: &&LinePrediction| {
            line.line.source.is_some() && line.line.counters.warp_instructions() <= 16 * requests
        };
        let lines: Vec<SourceLine> =
            self.lines.iter().filter(as_often).filter_map(|line| line.line.source.clone()).collect();
        (lane <= 8.0 && even).then(|| Candidate {
            rule: Rule::NarrowAccess,
            line: at.line.source.clone(),
            what: format!(
                "each lane accesses {} bytes at a time; one instruction can move 16",
                super::text::number_text(lane)
            ),
            figures: vec![figure("bytes per lane and request", None, lane, 16.0)],
            question: without(Assumption::WideAccesses, lines),
        })
    }

    fn repeated_loads(&self) -> Option<Candidate> {
        let bytes = |line: &LinePrediction| line.line.counters.global_loads.bytes as f64;
        let at = self.most(bytes)?;
        let asked: f64 = self.lines.iter().map(bytes).sum();
        let times = asked / self.base.dram_bytes.max(1.0);
        (times > 2.0).then(|| Candidate {
            rule: Rule::RepeatedLoads,
            line: at.line.source.clone(),
            what: format!(
                "threads ask for {}, {times:.0} times what comes from device memory",
                bytes_text(asked)
            ),
            figures: vec![
                figure("bytes asked for", None, asked, self.base.dram_bytes),
                figure("bytes from L2", "lts__t_bytes", self.base.l2_bytes, self.base.dram_bytes),
            ],
            question: without(Assumption::KeptInSharedMemory, []),
        })
    }

    fn exposed_latency(&self) -> Option<Candidate> {
        let at =
            self.most(
                |line| {
                    if line.line.counters.global_loads.requests > 0 { line.stalls.exposed } else { 0.0 }
                },
            )?;
        let total: f64 = self.lines.iter().map(|line| line.stalls.total()).sum();
        let share = at.stalls.exposed / total.max(f64::MIN_POSITIVE);
        (share > 0.2).then(|| Candidate {
            rule: Rule::ExposedLatency,
            line: at.line.source.clone(),
            what: format!("warps wait for the loads of this line for {:.0} % of their time", 100.0 * share),
            figures: vec![figure(
                "cycles waiting for these loads, per warp",
                "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active",
                at.stalls.exposed,
                0.0,
            )],
            question: without(Assumption::LoadsInFlight, at.line.source.clone()),
        })
    }
}

fn uncoalesced(line: &LinePrediction) -> Option<Candidate> {
    let [loads, stores] = global(&line.line.counters);
    let worse =
        if loads.transactions - loads.ideal_transactions > stores.transactions - stores.ideal_transactions {
            loads
        } else {
            stores
        };
    let is_load = std::ptr::eq(worse, loads);
    if worse.requests == 0 || worse.efficiency() > 0.8 {
        return None;
    }
    let each = |sectors: u64| sectors as f64 / worse.requests as f64;
    let (taken, ideal) = (each(worse.transactions), each(worse.ideal_transactions));
    let metric = if is_load {
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
    } else {
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"
    };
    Some(Candidate {
        rule: Rule::UncoalescedAccess,
        line: line.line.source.clone(),
        what: format!(
            "a {} of a warp takes {taken:.1} sectors of 32 bytes where {ideal:.1} would do",
            if is_load { "load" } else { "store" }
        ),
        figures: vec![figure("sectors per request", metric, taken, ideal)],
        question: without(Assumption::Coalesced, line.line.source.clone()),
    })
}

fn bank_conflicts(line: &LinePrediction) -> Option<Candidate> {
    let counters = &line.line.counters;
    let (loads, stores) = (&counters.shared_loads, &counters.shared_stores);
    let conflicts = loads.conflicts + stores.conflicts;
    let taken = loads.transactions + stores.transactions;
    let requests = loads.requests + stores.requests;
    (conflicts * 10 > taken).then(|| {
        let each = |count: u64| count as f64 / requests as f64;
        Candidate {
            rule: Rule::BankConflicts,
            line: line.line.source.clone(),
            what: format!(
                "a request takes {:.1} passes through the banks where {:.1} would do",
                each(taken),
                each(taken - conflicts)
            ),
            figures: vec![figure(
                "bank conflicts",
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared",
                conflicts as f64,
                0.0,
            )],
            question: without(Assumption::ConflictFree, line.line.source.clone()),
        }
    })
}

fn atomic_contention(line: &LinePrediction) -> Option<Candidate> {
    let counters = &line.line.counters;
    let (shared, device) = (&counters.shared_atomics, &counters.global_atomics);
    if shared.conflicts == 0 && device.requests == 0 {
        return None;
    }
    let (requests, passes, space) = if shared.requests >= device.requests {
        (shared.requests, shared.transactions, "shared memory")
    } else {
        (device.requests, counters.global_atomic_passes, "global memory")
    };
    let each = passes as f64 / requests as f64;
    Some(Candidate {
        rule: Rule::AtomicContention,
        line: line.line.source.clone(),
        what: format!(
            "{requests} atomic instructions on {space}; in each, {each:.1} lanes wait for one another"
        ),
        figures: vec![figure("serialised passes per instruction", None, each, 1.0)],
        question: without(Assumption::UncontendedAtomics, line.line.source.clone()),
    })
}

fn slow_arithmetic(line: &LinePrediction) -> Option<Candidate> {
    let counters = &line.line.counters;
    let double = counters.class(InstructionClass::Double);
    let special = counters.class(InstructionClass::Special);
    let all = counters.warp_instructions();
    if (double + special) * 150 < all || all == 0 {
        return None;
    }
    let (what, name, count) = if double >= special {
        ("f64 instructions", "f64 instructions of warps", double)
    } else {
        ("divisions and special functions", "special instructions of warps", special)
    };
    Some(Candidate {
        rule: Rule::SlowArithmetic,
        line: line.line.source.clone(),
        what: format!(
            "{:.0} % of the warp instructions of this line are {what}",
            100.0 * count as f64 / all as f64
        ),
        figures: vec![figure(name, None, count as f64, 0.0)],
        question: without(Assumption::PlainArithmetic, line.line.source.clone()),
    })
}

fn tensor_cores_unused(line: &LinePrediction, base: &Prediction) -> Option<Candidate> {
    let counters = &line.line.counters;
    let flops = line.line.flops.single + line.line.flops.half;
    let all = &base.counters;
    // Numbers of 16 bits are converted before they are multiplied, or multiplied as they are.
    let converts = all.class(InstructionClass::Convert) + all.class(InstructionClass::Half);
    let loads = counters.shared_loads.requests + counters.global_loads.requests;
    let main = flops * 2 > all.thread_flops && all.matrix_flops == 0;
    let dense = flops * 4 > counters.thread_instructions;
    (main && dense && converts * 64 * 8 > flops && loads > 0).then(|| Candidate {
        rule: Rule::TensorCoresUnused,
        line: line.line.source.clone(),
        what: "products of 16-bit numbers are added up by ordinary multiply-add instructions".to_owned(),
        figures: vec![
            figure("operations of threads", None, flops as f64, 0.0),
            figure("tensor instructions", "sm__inst_executed_pipe_tensor.sum", 0.0, None),
        ],
        question: without(Assumption::TensorCores, []),
    })
}

/// A number of bytes for people.
pub(super) fn bytes_text(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{:.1} GB", bytes / 1e9),
        bytes if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        bytes if bytes >= 1e3 => format!("{:.1} kB", bytes / 1e3),
        bytes => format!("{bytes:.0} bytes"),
    }
}
