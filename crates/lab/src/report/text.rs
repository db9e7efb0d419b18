//! The outcome as text.

use std::borrow::Cow;

use super::{DeviceOutcome, Outcome, SizeOutcome, TimeOutcome, Verdict};

/// The most problems that are told of a size.
const MOST_PROBLEMS: usize = 12;

/// Escape sequences: what does not go to a terminal has them stripped.
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const OFF: &str = "\x1b[0m";

/// The longest text of a compiler or a program that is shown.
const LONGEST: usize = 8000;

/// Text of unknown origin: a compiler's, a kernel's, a path. Nothing in it reaches the terminal as a command.
fn plain(text: &str) -> Cow<'_, str> {
    match kinora_outside::shortened(text, LONGEST) {
        Cow::Borrowed(text) => kinora_outside::printable(text),
        Cow::Owned(text) => Cow::Owned(kinora_outside::printable(&text).into_owned()),
    }
}

pub(super) fn text(outcome: &Outcome) -> String {
    let mut text = format!("{BOLD}{}{OFF} {DIM}({}){OFF}\n", plain(&outcome.task), plain(&outcome.source));
    for problem in &outcome.problems {
        text += &format!("{RED}✗{OFF} {}\n", plain(&problem.message));
    }
    for device in &outcome.devices {
        text += &of_device(device);
    }
    for time in &outcome.times {
        text += &of_time(time);
    }
    if let Some(resources) = &outcome.resources {
        text += &format!("  {} registers a thread", resources.registers);
        if resources.spill_bytes > 0 {
            text += &format!(", {YELLOW}{} bytes spilled{OFF}", resources.spill_bytes);
        }
        text += "\n";
    }
    for note in &outcome.notes {
        text += &format!("{YELLOW}note{OFF}: {}\n", plain(note));
    }
    text + &verdict(outcome)
}

fn verdict(outcome: &Outcome) -> String {
    match outcome.verdict {
        Verdict::Right => format!("{GREEN}{BOLD}right{OFF}\n"),
        Verdict::Unchecked => format!("{YELLOW}{BOLD}nothing found{OFF}\n"),
        Verdict::Wrong => format!("{RED}{BOLD}wrong{OFF}\n"),
        Verdict::NotRun => format!("{RED}{BOLD}could not be run{OFF}\n"),
    }
}

fn of_device(device: &DeviceOutcome) -> String {
    let mut text = format!("on {}\n", plain(&device.device));
    let width = device.sizes.iter().map(|size| size.sizes.to_string().chars().count()).max().unwrap_or(0);
    for size in &device.sizes {
        text += &of_size(size, width);
    }
    text
}

fn of_size(size: &SizeOutcome, width: usize) -> String {
    let sizes = size.sizes.to_string();
    let mark = match size.verdict {
        Verdict::Right | Verdict::Unchecked => format!("{GREEN}✓{OFF}"),
        Verdict::Wrong | Verdict::NotRun => format!("{RED}✗{OFF}"),
    };
    let mut text = format!("  {mark} {sizes:<width$}");
    if size.problems.is_empty() {
        let results: Vec<String> = size
            .results
            .iter()
            .filter_map(|result| {
                let comparison = result.comparison.as_ref()?;
                Some(match comparison.of_bound {
                    0.0 => format!("{} exact", result.name),
                    of_bound => format!("{} at {} of what is allowed", result.name, percent(of_bound)),
                })
            })
            .collect();
        if !results.is_empty() {
            text += &format!("  {}", results.join(", "));
        }
        if size.deterministic == Some(false) {
            text += &format!("  {YELLOW}not the same bits in every run{OFF}");
        }
    }
    text.push('\n');
    for problem in size.problems.iter().take(MOST_PROBLEMS) {
        text += &format!("      {}\n", plain(&problem.message));
    }
    if size.problems.len() > MOST_PROBLEMS {
        text += &format!("      and {} more\n", size.problems.len() - MOST_PROBLEMS);
    }
    text
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent >= 1.0 { format!("{percent:.0} %") } else { "less than 1 %".to_owned() }
}

fn of_time(time: &TimeOutcome) -> String {
    let how = if time.predicted { "predicted" } else { "measured" };
    let mut text = format!(
        "{BOLD}{}{OFF} {how} on {} {DIM}({}){OFF}",
        seconds(time.seconds),
        plain(&time.device),
        time.sizes
    );
    if let Some([low, high]) = time.range {
        text += &format!(", {} runs from {} to {}", time.samples, seconds(low), seconds(high));
    }
    text.push('\n');
    if let Some(roofline) = &time.roofline {
        text += &format!(
            "  {} of what the chip's {} allows ({})\n",
            percent(roofline.share),
            roofline.limit,
            seconds(roofline.seconds)
        );
    }
    for launch in &time.launches {
        let prediction = &launch.prediction;
        let often = if launch.launches > 1 { format!("{} × ", launch.launches) } else { String::new() };
        text += &format!(
            "  {often}{}: {}, limited by {}, then by {}; {:.0} % of the warps\n",
            plain(crate::compile::base_name(&launch.kernel)),
            seconds(prediction.seconds),
            prediction.limiter.describe(),
            prediction.next_limiter.describe(),
            100.0 * prediction.occupancy.share
        );
    }
    for note in &time.notes {
        text += &format!("  {YELLOW}note{OFF}: {note}\n");
    }
    text
}

/// A time with a unit and three digits.
pub(crate) fn seconds(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    };
    match number {
        n if n >= 100.0 => format!("{n:.0} {unit}"),
        n if n >= 10.0 => format!("{n:.1} {unit}"),
        n => format!("{n:.2} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (time, text) in [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (4.567e-4, "457 µs"), (2e-9, "2.00 ns")] {
            assert_eq!(seconds(time), text);
        }
    }
}
