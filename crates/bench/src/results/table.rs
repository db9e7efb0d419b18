//! Results as tables for the terminal.

use std::fmt::Write as _;

use kinora_profile::quantity::{change_percent, prefixed};

use super::{CPU, CaseResults, Comparison, Entry, KINORA, Results, SuiteResults, Verdict};
use crate::{Estimate, cases::STREAM, targets};

/// The width of the column of names.
const NAME: usize = 42;

/// What was measured, and on which machine.
pub fn header(results: &Results) -> String {
    let mut text =
        format!("Kinora {} ({}), {}\n", results.kinora.version, results.kinora.commit, results.date);
    if results.kinora.build != "release" {
        let _ = writeln!(text, "a {} build, whose times mean little", results.kinora.build);
    }
    let _ = writeln!(text, "{}, {} threads", results.processor, results.threads);
    if let Some(gpu) = &results.gpu {
        let _ =
            writeln!(text, "{} ({}), driver {}, {}", gpu.name, gpu.architecture, gpu.driver, gpu.libraries);
    }
    if let Some(torch) = results.peer.as_ref().and_then(|peer| peer["torch"].as_str()) {
        let _ = writeln!(text, "against PyTorch {torch}");
    }
    text
}

/// The heading of a suite's table.
pub fn suite_header(suite: &SuiteResults) -> String {
    let size = suite.size.as_deref().map(|size| format!(", {size}")).unwrap_or_default();
    let mut text = format!("\n{}: {}, {}{size}\n", suite.suite, suite.device, suite.precision);
    if let Some(why) = &suite.not_run {
        let _ = writeln!(text, "  not run: {why}");
        return text;
    }
    if let Some(ceilings) = &suite.ceilings {
        let _ = writeln!(
            text,
            "  at best {}, {}",
            prefixed(ceilings.flops_per_second, "FLOP/s"),
            prefixed(ceilings.bytes_per_second, "B/s"),
        );
    }
    let _ = writeln!(
        text,
        "  {:<NAME$} {:>9} {:>7} {:>12} {:>10} {:>7}   {:>9} {:>7}  best peer",
        "case", "median", "within", "FLOP/s", "B/s", "of best", "peer", "ratio"
    );
    text
}

/// A case: our time, its share of the device's best, and the fastest peer's time; then our other kernels, if they were
/// timed.
pub fn row(case: &CaseResults) -> String {
    let mut text = String::new();
    for entry in case.entries.iter().filter(|entry| entry.by.starts_with(KINORA)) {
        let main = entry.by == KINORA;
        let kernel = entry.by.trim_start_matches(KINORA).trim();
        let name = if main { case.name.clone() } else { format!("  {kernel}") };
        let _ = write!(text, "  {name:<NAME$} {}", figures(entry));
        if main && let (Some((peer, time)), Some(ratio)) = (case.best_peer(), case.ratio()) {
            let _ = write!(text, "   {:>9} {ratio:>6.2}×  {}", milliseconds(time.median), peer.by);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for entry in case.entries.iter().filter(|_| case.family == STREAM) {
        if let Some((time, p99)) = entry.milliseconds.as_ref().and_then(|time| Some((time, time.p99?))) {
            let (p50, p99) = (milliseconds(time.median), milliseconds(p99));
            let _ = writeln!(text, "    {}: p50 {p50}, p99 {p99} of {} frames", entry.by, time.runs);
        }
    }
    for entry in &case.entries {
        if let Some(why) = &entry.failed
            && entry.distance.is_some()
        {
            let _ = writeln!(text, "    ✗ {}: {why}", entry.by);
        }
    }
    text
}

fn figures(entry: &Entry) -> String {
    let Some(time) = &entry.milliseconds else {
        return format!("not run: {}", entry.failed.as_deref().unwrap_or("no time"));
    };
    let rate =
        |rate: Option<f64>, unit: &str| rate.map_or_else(|| "–".to_owned(), |rate| prefixed(rate, unit));
    format!(
        "{:>9} {:>7} {:>12} {:>10} {:>7}",
        milliseconds(time.median),
        spread(time),
        rate(entry.flops_per_second, "FLOP/s"),
        rate(entry.bytes_per_second, "B/s"),
        entry.of_ceiling.map_or_else(|| "–".to_owned(), |part| format!("{:.0} %", 100.0 * part)),
    )
}

/// Half of the interval, as a share of the median.
fn spread(time: &Estimate) -> String {
    let [low, high] = time.interval;
    format!("±{:.1} %", 50.0 * (high - low) / time.median)
}

/// A time with three digits.
pub(super) fn milliseconds(time: f64) -> String {
    kinora_profile::quantity::time((time * 1e6).round() as u64)
}

/// Below a suite's table: the mean of the ratios, and whether the clock was steady.
pub fn suite_footer(suite: &SuiteResults) -> String {
    let mut text = String::new();
    if let Some(why) = &suite.failed {
        let _ = writeln!(text, "  failed: {why}");
    }
    for note in &suite.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text += &targets::table(&suite.targets, suite.device == CPU);
    let ratios: Vec<f64> = suite.cases.iter().filter_map(CaseResults::ratio).collect();
    if !ratios.is_empty() {
        let mean = geometric_mean(&ratios);
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let behind = ratios.iter().filter(|&&ratio| ratio < 1.0).count();
        let surely = suite.cases.iter().filter(|case| case.is_surely_behind()).count();
        let _ = writeln!(
            text,
            "  the best peer takes {mean:.2}× as long (geometric mean; least {least:.2}×; behind in {behind} of {} cases, \
             surely in {surely})",
            ratios.len()
        );
    }
    if let Some(clock) = suite.clock.filter(|clock| !clock.is_steady()) {
        let _ = writeln!(
            text,
            "  warning: the clock moved by {} during the run; its times mean little",
            change_percent(100.0 * clock.change())
        );
    }
    text
}

fn geometric_mean(numbers: &[f64]) -> f64 {
    let logarithms: f64 = numbers.iter().map(|number| number.ln()).sum();
    (logarithms / numbers.len() as f64).exp()
}

/// Two runs side by side.
pub fn comparison_text(comparison: &Comparison) -> String {
    let mut text = format!("\n  {:<NAME$} {:>9} {:>9} {:>9}\n", "case", "before", "now", "change");
    for change in &comparison.changes {
        let verdict = match change.verdict {
            Verdict::Faster => "faster",
            Verdict::Slower if change.regression => "slower ✗",
            Verdict::Slower => "slower, within the threshold",
            Verdict::Unchanged => "unchanged",
        };
        let _ = writeln!(
            text,
            "  {:<NAME$} {:>9} {:>9} {:>9}  {verdict}",
            change.case,
            milliseconds(change.before.median),
            milliseconds(change.after.median),
            change_percent(100.0 * change.change),
        );
    }
    match comparison.gone.as_slice() {
        [] => {}
        [case] => _ = writeln!(text, "  not in this run: {case}"),
        // Usually because only some cases were chosen.
        cases => _ = writeln!(text, "  not in this run: {} earlier cases", cases.len()),
    }
    for note in &comparison.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::compare::tests::*, *};
    use crate::results::compare;

    #[test]
    fn a_row_describes_a_case() {
        let mut results = results(&[("conv 3×3", estimate(0.9, 1.0, 1.1))]);
        let suite = &mut results.suites[0];
        assert_eq!(
            row(&suite.cases[0]).split_whitespace().collect::<Vec<_>>().join(" "),
            "conv 3×3 1.00 ms ±10.0 % 2.00 GFLOP/s 1.00 MB/s – 2.10 ms 2.10× PyTorch eager"
        );
        assert!(suite_footer(suite).contains("2.10× as long"));
        suite.clock = Some(super::super::Clock { before: 1.0, after: 0.9 });
        assert!(suite_footer(suite).contains("clock moved by −10.0 %"));
        suite.cases[0].family = STREAM.into();
        suite.cases[0].entries[0].milliseconds.as_mut().unwrap().p99 = Some(1.5);
        assert!(row(&suite.cases[0]).contains("    kinora: p50 1.00 ms, p99 1.50 ms of 120 frames\n"));
        // A result that differs must be visible.
        suite.cases[0].entries[1].failed = Some("differs from kinora by 1.0e-1".into());
        suite.cases[0].entries[1].distance = Some(0.1);
        assert!(row(&suite.cases[0]).contains("✗ PyTorch eager: differs"));
    }

    #[test]
    fn means_are_geometric() {
        assert!((geometric_mean(&[1.0, 4.0]) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn changes_are_named() {
        let before = results(&[("a", estimate(0.9, 1.0, 1.1)), ("b", estimate(0.9, 1.0, 1.1))]);
        let after = results(&[("a", estimate(1.9, 2.0, 2.1)), ("b", estimate(0.9, 1.0, 1.1))]);
        let text = comparison_text(&compare(&before, &after, 0.05));
        assert!(text.contains("+100.0 %  slower ✗") && text.contains("0.0 %  unchanged"), "{text}");
    }
}
