//! The report of a simulated launch, as text.

use kinora::quantity::{bytes, prefixed};
use kinora_ptx::{Counters, DeviceOutput, Finding, InstructionClass, Report, SourceLine, Traffic, excerpt};

use super::lines;

/// The findings, what the kernel printed, then the counters. `text_of` has the text of a source file, if it is at hand.
pub fn text(kernel: &str, chip: &str, report: &Report, text_of: impl Fn(&str) -> Option<String>) -> String {
    let mut text = format!("{kernel} on a simulated {chip}\n");
    match report.findings.as_slice() {
        [] => text += "nothing found\n",
        findings => {
            for finding in findings {
                text += &format!("✗ {finding}\n{}", source(finding, &text_of));
            }
        }
    }
    text += &printed(&report.printf);
    text += &costs(&report.counters);
    text + &report.by_line.as_ref().map_or_else(String::new, lines::counters)
}

/// The source lines of a finding, and of the earlier access of a race.
fn source(finding: &Finding, text_of: &impl Fn(&str) -> Option<String>) -> String {
    let mut places: Vec<&SourceLine> = finding.source.iter().chain(&finding.called_at).collect();
    places.extend(finding.earlier.iter().filter_map(|earlier| earlier.source.as_ref()));
    places.dedup();
    let shown = |place: &SourceLine| match text_of(&place.file).map(|text| excerpt(&text, place.line)) {
        Some(excerpt) if !excerpt.is_empty() => format!("  {}:{}\n{excerpt}", place.file, place.line),
        _ => String::new(),
    };
    places.into_iter().map(shown).collect()
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
        ("texture loads", &counters.texture_loads, "sector"),
        ("surface loads", &counters.surface_loads, "sector"),
        ("surface stores", &counters.surface_stores, "sector"),
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
        "{} in {} and {}{conflicts} (ideal: {}), {:.1} {piece}s/request",
        bytes(traffic.bytes),
        counted(traffic.requests, "request"),
        counted(traffic.transactions, piece),
        traffic.ideal_transactions,
        traffic.transactions as f64 / traffic.requests.max(1) as f64
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
