//! What every source line costs, and where warps wait, as text.

use kinora_ptx::{ByLine, LineCounters, LinePrediction, SourceLine, StallReason, Traffic};

/// The name of a line: its place in the source, or in the PTX if there is none.
fn name(line: &LineCounters) -> String {
    match &line.source {
        Some(SourceLine { file, line }) => format!("{file}:{line}"),
        None => format!("PTX line {} and others without a source line", line.ptx_line),
    }
}

/// The counters of every line.
pub fn counters(by_line: &ByLine<LineCounters>) -> String {
    let mut text = "by line\n".to_owned();
    for line in &by_line.source {
        text += &format!("  {}: {}\n", name(line), costs(line).join("; "));
    }
    text
}

fn costs(line: &LineCounters) -> Vec<String> {
    let counters = &line.counters;
    let mut parts = vec![format!(
        "{} warp instructions, {:.0} % of the lanes active",
        counters.warp_instructions(),
        100.0 * counters.lane_efficiency()
    )];
    for (name, traffic, piece) in [
        ("global loads", &counters.global_loads, "sectors"),
        ("global stores", &counters.global_stores, "sectors"),
        ("global atomics", &counters.global_atomics, "sectors"),
        ("local loads", &counters.local_loads, "sectors"),
        ("local stores", &counters.local_stores, "sectors"),
        ("shared loads", &counters.shared_loads, "wavefronts"),
        ("shared stores", &counters.shared_stores, "wavefronts"),
        ("shared atomics", &counters.shared_atomics, "wavefronts"),
    ] {
        if traffic.requests > 0 {
            parts.push(format!("{name} {}", per_request(traffic, piece)));
        }
    }
    if counters.global_atomic_passes > counters.global_atomics.requests {
        let passes = counters.global_atomic_passes as f64 / counters.global_atomics.requests.max(1) as f64;
        parts.push(format!("atomics of one address in {passes:.1} passes/request"));
    }
    if counters.divergent_branches > 0 {
        let (divergent, all) = (counters.divergent_branches, counters.branches);
        parts.push(format!("{divergent} of {all} branches divergent"));
    }
    let flops = line.flops;
    for (name, count) in
        [("f16", flops.half), ("f32", flops.single), ("f64", flops.double), ("matrix", flops.matrix)]
    {
        if count > 0 {
            parts.push(format!("{count} {name} FLOP"));
        }
    }
    parts
}

/// Such as `4.0 sectors/request (ideal 4.0)`.
pub fn per_request(traffic: &Traffic, piece: &str) -> String {
    let requests = traffic.requests.max(1) as f64;
    let (taken, ideal) =
        (traffic.transactions as f64 / requests, traffic.ideal_transactions as f64 / requests);
    format!("{taken:.1} {piece}/request (ideal {ideal:.1})")
}

/// Where warps wait: the lines with a hundredth of the time or more, the longest first.
pub fn waits(by_line: &ByLine<LinePrediction>) -> String {
    let all: f64 = by_line.source.iter().map(|line| line.stalls.total()).sum();
    let instructions: u64 = by_line.source.iter().map(|line| line.line.counters.warp_instructions()).sum();
    let issued: f64 = by_line.source.iter().map(|line| line.stalls.reason(StallReason::Selected)).sum();
    if all <= 0.0 || instructions == 0 {
        return String::new();
    }
    let mut lines: Vec<&LinePrediction> =
        by_line.source.iter().filter(|line| line.stalls.total() >= 0.01 * all).collect();
    lines.sort_by(|a, b| b.stalls.total().total_cmp(&a.stalls.total()));
    let mut text = format!(
        "where warps are: {all:.0} clocks each, {:.1} for each clock of issuing (Warp Cycles Per Issued Instruction)\n",
        all / issued.max(1.0)
    );
    for line in lines {
        let total = line.stalls.total();
        let most = StallReason::ALL
            .into_iter()
            .max_by(|a, b| line.stalls.reason(*a).total_cmp(&line.stalls.reason(*b)));
        let most = most.map_or("", StallReason::describe);
        text += &format!("  {}: {:.0} %, mostly {most}\n", name(&line.line), 100.0 * total / all);
    }
    text
}
