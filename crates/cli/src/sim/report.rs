//! What a simulated kernel did, in words.

use kinora::{
    ptx::{Counters, InstructionClass, Report, Traffic},
    quantity::{bytes, prefixed},
};

/// The findings, then what the kernel cost.
pub fn text(kernel: &str, chip: &str, report: &Report) -> String {
    let mut text = format!("{kernel} on a simulated {chip}\n");
    match report.findings.as_slice() {
        [] => text += "nothing found\n",
        findings => {
            for finding in findings {
                text += &format!("✗ {finding}\n");
            }
        }
    }
    text + &costs(&report.counters)
}

fn costs(counters: &Counters) -> String {
    let mut lines = vec![(
        "instructions of warps".to_owned(),
        format!(
            "{}, {:.0} % of the lanes at work",
            counters.warp_instructions(),
            100.0 * counters.lane_efficiency()
        ),
    )];
    for class in InstructionClass::ALL {
        if counters.class(class) > 0 {
            lines.push((
                format!("  {}", format!("{class:?}").to_lowercase()),
                counters.class(class).to_string(),
            ));
        }
    }
    if counters.branches > 0 {
        let parted = format!("{}, of which {} parted a warp", counters.branches, counters.divergent_branches);
        lines.push(("branches".to_owned(), parted));
    }
    for (name, traffic, piece) in [
        ("global loads", &counters.global_loads, "sectors"),
        ("global stores", &counters.global_stores, "sectors"),
        ("global atomics", &counters.global_atomics, "sectors"),
        ("shared loads", &counters.shared_loads, "rounds"),
        ("shared stores", &counters.shared_stores, "rounds"),
        ("shared atomics", &counters.shared_atomics, "rounds"),
    ] {
        if traffic.requests > 0 {
            lines.push((name.to_owned(), moved(traffic, piece)));
        }
    }
    for (name, amount, unit) in [
        ("read from local memory", counters.local_load_bytes, "B"),
        ("written to local memory", counters.local_store_bytes, "B"),
        ("copied beside the threads", counters.copied_bytes, "B"),
        ("matrix products", counters.matrix_flops, "FLOP"),
        ("arithmetic of threads", counters.thread_flops, "FLOP"),
    ] {
        if amount > 0 {
            lines.push((name.to_owned(), prefixed(amount as f64, unit)));
        }
    }
    for (name, count) in [("atomics", counters.atomics), ("barriers", counters.barriers)] {
        if count > 0 {
            lines.push((name.to_owned(), count.to_string()));
        }
    }
    lines.into_iter().map(|(name, value)| format!("{name:<28} {value}\n")).collect()
}

fn moved(traffic: &Traffic, piece: &str) -> String {
    let conflicts = match traffic.conflicts {
        0 => String::new(),
        conflicts => format!(", {conflicts} of them by bank conflicts"),
    };
    format!(
        "{} in {} requests and {} {piece}{conflicts}, where {} would do",
        bytes(traffic.bytes),
        traffic.requests,
        traffic.transactions,
        traffic.ideal_transactions
    )
}
