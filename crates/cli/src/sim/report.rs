//! The report of a simulated launch, as text.

use kinora::quantity::{bytes, prefixed};
use kinora_ptx::{Counters, DeviceOutput, InstructionClass, Report, Traffic};

/// The findings, what the kernel printed, then the counters.
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
    text + &printed(&report.printf) + &costs(&report.counters)
}

/// What the kernel printed, under a heading.
fn printed(output: &DeviceOutput) -> String {
    let DeviceOutput { text, dropped_calls, dropped_bytes } = output;
    let mut shown = String::new();
    if !text.is_empty() {
        shown = format!("printed by the kernel:\n{text}{}", if text.ends_with('\n') { "" } else { "\n" });
    }
    if *dropped_calls > 0 {
        shown += &format!(
            "note: {} more that printf printed, from {}, is left out; a device would overwrite the oldest text instead\n",
            bytes(*dropped_bytes),
            counted(*dropped_calls, "call")
        );
    }
    shown
}

fn costs(counters: &Counters) -> String {
    let mut lines = vec![(
        "warp instructions".to_owned(),
        format!(
            "{}, {:.0} % of the lanes active",
            counters.warp_instructions(),
            100.0 * counters.lane_efficiency()
        ),
    )];
    for class in InstructionClass::ALL {
        if counters.class(class) > 0 {
            lines.push((format!("  {}", class.name()), counters.class(class).to_string()));
        }
    }
    if counters.branches > 0 {
        let divergent = format!("{}, {} of them divergent", counters.branches, counters.divergent_branches);
        lines.push(("branches".to_owned(), divergent));
    }
    for (name, traffic, piece) in [
        ("global loads", &counters.global_loads, "sector"),
        ("global stores", &counters.global_stores, "sector"),
        ("global atomics", &counters.global_atomics, "sector"),
        ("shared loads", &counters.shared_loads, "wavefront"),
        ("shared stores", &counters.shared_stores, "wavefront"),
        ("shared atomics", &counters.shared_atomics, "wavefront"),
    ] {
        if traffic.requests > 0 {
            lines.push((name.to_owned(), moved(traffic, piece)));
        }
    }
    for (name, amount, unit) in [
        ("local loads", counters.local_load_bytes, "B"),
        ("local stores", counters.local_store_bytes, "B"),
        ("asynchronous copies", counters.copied_bytes, "B"),
        ("matrix instructions", counters.matrix_flops, "FLOP"),
        ("thread arithmetic", counters.thread_flops, "FLOP"),
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

/// Bytes, requests and sectors or wavefronts, with the fewest that could have carried the same bytes.
fn moved(traffic: &Traffic, piece: &str) -> String {
    let conflicts = match traffic.conflicts {
        0 => String::new(),
        conflicts => format!(", {conflicts} from bank conflicts"),
    };
    format!(
        "{} in {} and {}{conflicts} (ideal: {})",
        bytes(traffic.bytes),
        counted(traffic.requests, "request"),
        counted(traffic.transactions, piece),
        traffic.ideal_transactions
    )
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_text_has_a_heading_and_a_note() {
        assert_eq!(printed(&DeviceOutput::default()), "");
        let output = DeviceOutput { text: "a\nb".to_owned(), dropped_calls: 1, dropped_bytes: 12 };
        let shown = printed(&output);
        assert!(shown.starts_with("printed by the kernel:\na\nb\nnote: 12 B more"), "{shown}");
        assert!(shown.contains("from 1 call,"), "{shown}");
    }
}
