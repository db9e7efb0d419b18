//! The outcome as text.

use std::borrow::Cow;

use kinora_ptx::{Finding, SourceLine, excerpt};

use super::{
    CountedOutcome, DeviceOutcome, Outcome, Problem, ProblemKind, SizeOutcome, TimeOutcome, Verdict,
};
use crate::compile::Resources;

/// The most problems that are reported for one size.
const MOST_PROBLEMS: usize = 12;

/// The most lines of a compiler's warnings.
const MOST_WARNINGS: usize = 12;

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
    text += &warnings(&outcome.compiler_log);
    for problem in &outcome.problems {
        text += &format!("{RED}✗{OFF} {}\n", plain(&problem.message));
    }
    for device in &outcome.devices {
        text += &of_device(device, outcome.code.as_ref());
    }
    for time in &outcome.times {
        text += &of_time(time);
        if time.predicted {
            text += &of_resources(outcome.resources.as_ref());
        }
    }
    for peer in &outcome.peers {
        let [low, high] = peer.range;
        text += &format!(
            "{BOLD}{}{OFF} measured with {}, {} runs from {} to {}\n",
            seconds(peer.seconds),
            plain(&peer.name),
            peer.samples,
            seconds(low),
            seconds(high)
        );
        text += &format!("  the kernel is {:.2} times as fast\n", peer.speedup);
    }
    if let Some(counted) = &outcome.counted {
        text += &of_counted(counted);
    }
    if let Some(feedback) = &outcome.feedback {
        text += &format!("\n{}\n", plain(&feedback.text()));
    }
    for note in &outcome.notes {
        text += &format!("{YELLOW}note{OFF}: {}\n", plain(note));
    }
    text + &verdict(outcome)
}

/// What the compiler warns of, as far as one reads it.
fn warnings(log: &str) -> String {
    let mut lines = log.lines().filter(|line| !line.trim().is_empty());
    let shown: Vec<&str> = lines.by_ref().take(MOST_WARNINGS).collect();
    let mut text: String = shown.iter().map(|line| format!("{DIM}  {}{OFF}\n", plain(line))).collect();
    let more = lines.count();
    if more > 0 {
        text += &format!("{DIM}  and {more} more lines of warnings{OFF}\n");
    }
    text
}

fn of_resources(resources: Option<&Resources>) -> String {
    let Some(resources) = resources else { return String::new() };
    let mut text = format!("  {} registers per thread", resources.registers);
    if resources.spill_bytes > 0 {
        text += &format!(", {YELLOW}{} bytes spilled{OFF}", resources.spill_bytes);
    }
    text + "\n"
}

/// What the GPU's counters say of each kernel.
fn of_counted(counted: &CountedOutcome) -> String {
    let mut text = format!("counted by {}\n", plain(&counted.by));
    for kernel in &counted.kernels {
        text += &format!("  {}\n", plain(crate::compile::base_name(&kernel.kernel)));
        for (name, value) in &kernel.metrics {
            text += &format!("    {:<74} {}\n", plain(name), crate::feedback::number_text(*value));
        }
    }
    text
}

pub(super) fn verdict_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "right",
        Verdict::Unchecked => "nothing found",
        Verdict::Wrong => "wrong",
        Verdict::NotRun => "could not be run",
    }
}

fn verdict(outcome: &Outcome) -> String {
    let colour = match outcome.verdict {
        Verdict::Right => GREEN,
        Verdict::Unchecked => YELLOW,
        Verdict::Wrong | Verdict::NotRun => RED,
    };
    format!("{colour}{BOLD}{}{OFF}\n", verdict_words(outcome.verdict))
}

/// The sizes of a device. A finding that an earlier size has had is shortened.
fn of_device(device: &DeviceOutcome, code: Option<&(String, String)>) -> String {
    let mut text = format!("on {}\n", plain(&device.device));
    let width = device.sizes.iter().map(|size| size.sizes.to_string().chars().count()).max().unwrap_or(0);
    let mut told = Told { code, findings: Vec::new(), problems: Vec::new() };
    for size in &device.sizes {
        text += &of_size(size, width, &mut told);
    }
    text
}

/// What the sizes before had.
struct Told<'a> {
    code: Option<&'a (String, String)>,
    findings: Vec<&'a Finding>,
    problems: Vec<&'a str>,
}

fn of_size<'a>(size: &'a SizeOutcome, width: usize, told: &mut Told<'a>) -> String {
    let sizes = size.sizes.to_string();
    let mark = match size.verdict {
        Verdict::Right | Verdict::Unchecked => format!("{GREEN}✓{OFF}"),
        Verdict::Wrong | Verdict::NotRun => format!("{RED}✗{OFF}"),
    };
    if !size.problems.is_empty() {
        let mut text = format!("  {mark} {sizes}\n");
        let problems = apart(size);
        for (problem, finding) in problems.iter().take(MOST_PROBLEMS) {
            let told = of_problem(problem, *finding, told);
            // Equal texts are printed once.
            if !text.contains(&told) {
                text += &told;
            }
        }
        if problems.len() > MOST_PROBLEMS {
            text += &format!("      and {} more\n", problems.len() - MOST_PROBLEMS);
        }
        return text;
    }
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
    let mut text = format!("  {mark} {sizes:<width$}  {}", results.join(", ")).trim_end().to_owned();
    if size.deterministic == Some(false) {
        text += &format!("  {YELLOW}not the same bits in every run{OFF}");
    }
    text + "\n"
}

/// Whether two findings are of one kind, at one line, and differ by numbers at most, as those of an unrolled loop do.
fn is_same(one: &Finding, other: &Finding) -> bool {
    let words = |finding: &Finding| finding.message.replace(|letter: char| letter.is_ascii_digit(), "");
    (one.kind, &one.source, &one.function) == (other.kind, &other.source, &other.function)
        && (one.source.is_some() || one.ptx_line == other.ptx_line)
        && words(one) == words(other)
}

/// The problems of a size, each with its finding if it is one. Of several findings at one line, the first alone.
pub(super) fn apart(size: &SizeOutcome) -> Vec<(&Problem, Option<&Finding>)> {
    let mut apart: Vec<(&Problem, Option<&Finding>)> = Vec::new();
    for problem in &size.problems {
        let is_it = |finding: &&Finding| {
            problem.kind == ProblemKind::Finding && finding.to_string() == problem.message
        };
        let finding = size.findings.iter().find(is_it);
        let known = |finding: &Finding| {
            apart.iter().filter_map(|(_, known)| *known).any(|known| is_same(known, finding))
        };
        if !finding.is_some_and(known) {
            apart.push((problem, finding));
        }
    }
    apart
}

/// A problem. A finding comes with its lines of the source, unless an earlier size had it too.
fn of_problem<'a>(problem: &'a Problem, finding: Option<&'a Finding>, told: &mut Told<'a>) -> String {
    let Some(finding) = finding else {
        let message = problem.message.as_str();
        if told.problems.contains(&message) {
            return "      the same as before\n".to_owned();
        }
        told.problems.push(message);
        let lines: Vec<Cow<'_, str>> = message.lines().map(plain).collect();
        return format!("      {}\n", lines.join("\n      "));
    };
    let place = place(finding);
    if told.findings.iter().any(|known| is_same(known, finding)) {
        return format!("      {:?} {}, as before\n", finding.kind, plain(&place));
    }
    told.findings.push(finding);
    let message = match &finding.same_value {
        true => format!("{}; both write the same value, so it need not change a result", finding.message),
        false => finding.message.clone(),
    };
    let mut text = format!("      {BOLD}{:?}{OFF} {}: {}\n", finding.kind, plain(&place), plain(&message));
    if let Some((name, code)) = told.code {
        let mut lines: Vec<&SourceLine> = finding.source.iter().chain(&finding.called_at).collect();
        lines.extend(finding.earlier.iter().filter_map(|earlier| earlier.source.as_ref()));
        lines.dedup();
        let shown: Vec<String> =
            lines.iter().filter(|line| line.file == *name).map(|line| excerpt(code, line.line)).collect();
        // Between two places of the same file.
        for line in shown.join("    ⋮\n").lines() {
            text += &format!("      {}\n", plain(line));
        }
    }
    let axes = |[x, y, z]: [u32; 3]| match (y, z) {
        (0, 0) => x.to_string(),
        (_, 0) => format!("({x}, {y})"),
        _ => format!("({x}, {y}, {z})"),
    };
    let often =
        if finding.count > 1 { format!("{} times, first in ", finding.count) } else { "in ".to_owned() };
    text += &format!("        {often}block {}, thread {}\n", axes(finding.block), axes(finding.thread));
    text += &format!("        try: {}\n", plain(&finding.suggestion));
    text
}

/// Where a finding is: the line, the kernel, and the line of the call.
pub(super) fn place(finding: &Finding) -> String {
    let mut text = match &finding.source {
        Some(source) => format!("at {}:{}", source.file, source.line),
        None => format!("at PTX line {}", finding.ptx_line),
    };
    text += &format!(" in {}", finding.function.split('(').next().unwrap_or_default());
    if let Some(caller) = &finding.called_at {
        text += &format!(", called at line {}", caller.line);
    }
    if let Some(earlier) = finding.earlier.as_ref().and_then(|earlier| earlier.source.as_ref())
        && finding.source.as_ref().is_none_or(|source| source != earlier)
    {
        text += &format!(", against line {}", earlier.line);
    }
    text
}

pub(super) fn percent(share: f64) -> String {
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
        let often =
            if launch.launches > 1 { format!(", {} launches", launch.launches) } else { String::new() };
        text += &format!(
            "  {}{often}: {}, limited by {}, then by {}; {:.0} % occupancy\n",
            plain(crate::compile::base_name(&launch.kernel)),
            seconds(launch.seconds),
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
