//! The outcome as one HTML page: the verdict, what was found, the times, what to try, and the source beside its counters.
//!
//! The page has no script and loads nothing, which its content security policy says as well. Everything that comes from a task or a kernel
//! is escaped.

use std::fmt::Write;

use kinora_ptx::Finding;

use super::{
    Outcome, Problem, SizeOutcome, TimeOutcome, Verdict,
    text::{apart, percent, place, seconds, verdict_words},
};
use crate::feedback::page::{escape, listing, page};

/// The most problems that are reported for one size.
const MOST_PROBLEMS: usize = 50;

pub(super) fn of(outcome: &Outcome) -> String {
    let mut body = format!(
        "<h1>{} <span class=\"verdict {}\">{}</span></h1>",
        escape(&outcome.task),
        class(outcome.verdict),
        verdict_words(outcome.verdict)
    );
    // Writing to a String cannot fail.
    let _ = write!(body, "<p class=lead>{}", escape(&outcome.source));
    for text in outcome.compiler.iter() {
        let _ = write!(body, ", compiled by {}", escape(text));
    }
    if let Some(resources) = &outcome.resources {
        let _ = write!(body, ", {} registers per thread", resources.registers);
        if resources.spill_bytes > 0 {
            let _ = write!(body, ", {} bytes spilled", resources.spill_bytes);
        }
    }
    body += "</p>";
    for problem in &outcome.problems {
        let _ = write!(body, "<pre class=problem>{}</pre>", escape(&problem.message));
    }
    if !outcome.times.is_empty() || !outcome.peers.is_empty() {
        body += "<div class=times>";
        outcome.times.iter().for_each(|time| body += &of_time(time));
        for peer in &outcome.peers {
            let _ = write!(
                body,
                "<div><b>{}</b><span>measured with {}</span><span>the kernel is {:.2}× as fast</span></div>",
                seconds(peer.seconds),
                escape(&peer.name),
                peer.speedup
            );
        }
        body += "</div>";
    }
    for device in &outcome.devices {
        let _ = write!(body, "<h2>On {}</h2><table class=sizes>", escape(&device.device));
        for size in &device.sizes {
            body += &of_size(size);
        }
        body += "</table>";
    }
    if let Some(feedback) = &outcome.feedback {
        body += &feedback.section();
    }
    if let Some(counted) = &outcome.counted {
        let _ = write!(body, "<h2>Counted by {}</h2><table class=sizes>", escape(&counted.by));
        for kernel in &counted.kernels {
            let name = crate::compile::base_name(&kernel.kernel);
            for (metric, value) in &kernel.metrics {
                let value = crate::feedback::number_text(*value);
                let _ =
                    write!(body, "<tr><td>{}<td><code>{}</code><td>{value}", escape(name), escape(metric));
            }
        }
        body += "</table>";
    }
    if !outcome.notes.is_empty() {
        body += "<h2>Notes</h2><ul>";
        outcome.notes.iter().for_each(|note| body += &format!("<li>{}", escape(note)));
        body += "</ul>";
    }
    if !outcome.compiler_log.trim().is_empty() {
        let _ = write!(body, "<h2>What the compiler says</h2><pre>{}</pre>", escape(&outcome.compiler_log));
    }
    if let Some((name, text)) = &outcome.code {
        let sizes = outcome.devices.iter().flat_map(|device| &device.sizes);
        let findings = sizes.flat_map(|size| &size.findings);
        let lines = findings.flat_map(|finding| {
            let earlier = finding.earlier.as_ref().and_then(|earlier| earlier.source.as_ref());
            finding.source.iter().chain(&finding.called_at).chain(earlier)
        });
        let found: Vec<u32> = lines.filter(|line| line.file == *name).map(|line| line.line).collect();
        body += &listing(name, text, outcome.feedback.as_ref(), &found);
    }
    page(&outcome.task, &body)
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "good",
        Verdict::Unchecked => "unsure",
        Verdict::Wrong | Verdict::NotRun => "bad",
    }
}

fn of_time(time: &TimeOutcome) -> String {
    let how = if time.predicted { "predicted" } else { "measured" };
    let mut text = format!(
        "<div><b>{}</b><span>{how} on {}</span><span>{}</span>",
        seconds(time.seconds),
        escape(&time.device),
        escape(&time.sizes.to_string())
    );
    if let Some([low, high]) = time.range {
        let _ = write!(text, "<span>{} runs, {} to {}</span>", time.samples, seconds(low), seconds(high));
    }
    if let Some(roofline) = &time.roofline {
        let _ = write!(
            text,
            "<span>{} of what the chip's {} allows</span>",
            percent(roofline.share),
            roofline.limit
        );
    }
    for note in &time.notes {
        let _ = write!(text, "<span>{}</span>", escape(note));
    }
    text + "</div>"
}

fn of_size(size: &SizeOutcome) -> String {
    let mut text = format!(
        "<tr class={}><th>{}<td>{}<td>",
        class(size.verdict),
        escape(&size.sizes.to_string()),
        if size.verdict <= Verdict::Unchecked { "✓" } else { "✗" }
    );
    let problems = apart(size);
    for (problem, finding) in problems.iter().take(MOST_PROBLEMS) {
        text += &of_problem(problem, *finding);
    }
    if problems.len() > MOST_PROBLEMS {
        let _ = write!(text, "<p>and {} more", problems.len() - MOST_PROBLEMS);
    }
    if size.problems.is_empty() {
        let results = size.results.iter().filter_map(|result| {
            let of_bound = result.comparison.as_ref()?.of_bound;
            Some(match of_bound {
                0.0 => format!("{} exact", escape(&result.name)),
                _ => format!("{} at {} of what is allowed", escape(&result.name), percent(of_bound)),
            })
        });
        text += &results.collect::<Vec<_>>().join(", ");
        if size.deterministic == Some(false) {
            text += "; not the same bits in every run";
        }
    }
    text
}

/// A problem. A finding names its line, which lies further down on the page.
fn of_problem(problem: &Problem, finding: Option<&Finding>) -> String {
    match finding {
        Some(finding) => {
            let place = escape(&place(finding));
            let place = match &finding.source {
                Some(source) => format!("<a href=\"#L{}\">{place}</a>", source.line),
                None => place,
            };
            format!(
                "<p><b>{:?}</b> {place}: {}<br><small>Try: {}</small>",
                finding.kind,
                escape(&finding.message),
                escape(&finding.suggestion)
            )
        }
        None => format!("<p>{}", escape(&problem.message)),
    }
}
