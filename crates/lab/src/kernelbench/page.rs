//! The report as one HTML page, without anything from elsewhere.

use std::fmt::Write;

use super::{Outcome, Report, TaskResult};

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1c2430;--soft:#5a6675;--line:#d9dee5;--back:#fff;--row:#f6f8fa;--good:#12794a;--bad:#b3261e;--bar:#3b73c4;--track:#e6eaf0}
@media(prefers-color-scheme:dark){:root{--text:#e4e8ee;--soft:#9aa6b5;--line:#333c47;--back:#14181d;--row:#1b2027;--good:#5fcf98;--bad:#ff8a80;--bar:#6ea3ef;--track:#2a323c}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:1100px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:.2rem}.soft{color:var(--soft)}
.cards{display:flex;flex-wrap:wrap;gap:.8rem;margin:1.2rem 0}.card{border:1px solid var(--line);border-radius:8px;padding:.6rem 1rem;min-width:9rem}
.card b{display:block;font-size:1.5rem;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.3rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;position:sticky;top:0;background:var(--back)}th:nth-child(2),td:nth-child(2),td.text,th.text{text-align:left}
td.text{white-space:normal}tbody tr:nth-child(even){background:var(--row)}.good{color:var(--good)}.bad{color:var(--bad)}
.bar{display:inline-block;width:7rem;height:.7rem;background:var(--track);border-radius:3px;vertical-align:middle;overflow:hidden}.bar i{display:block;height:100%;background:var(--bar)}
";

/// The page of a report.
pub fn page(report: &Report) -> String {
    let summary = report.summary();
    let mut out = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">";
    let title = format!("KernelBench, level {}", report.level);
    let _ = write!(out, "<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>");
    let _ = write!(
        out,
        "<p class=\"soft\">{} · PyTorch {} · times are medians of single runs with the L2 cache flushed</p><div class=\"cards\">",
        escaped(&report.device),
        escaped(&report.torch)
    );
    card(&mut out, &format!("{} of {}", summary.right, summary.tasks), "right");
    for (way, against) in &summary.against {
        if against.timed > 0 {
            card(
                &mut out,
                &format!("{:.2}×", against.geometric_mean),
                &format!("against {way}, geometric mean of {}", against.timed),
            );
        }
    }
    out += "</div>";
    if !summary.against.is_empty() {
        out += "<h2>Share of tasks that are right and at least p times as fast</h2><div class=\"wide\"><table><thead><tr><th class=\"text\">against</th>";
        for threshold in super::THRESHOLDS {
            let _ = write!(out, "<th>p = {threshold}</th>");
        }
        out += "</tr></thead><tbody>";
        for (way, against) in &summary.against {
            let _ = write!(out, "<tr><td class=\"text\">{}</td>", escaped(way));
            for (_, share) in &against.fast {
                let _ = write!(out, "<td>{:.0} %</td>", 100.0 * share);
            }
            out += "</tr>";
        }
        out += "</tbody></table></div>";
    }
    let mut ways: Vec<&String> = report.tasks.iter().flat_map(|task| task.baselines.keys()).collect();
    ways.sort();
    ways.dedup();
    out += "<h2>Tasks</h2><div class=\"wide\"><table><thead><tr><th>#</th><th>task</th><th class=\"text\">solution</th><th class=\"text\">results</th><th>ms</th>";
    for way in &ways {
        let _ = write!(out, "<th>{}</th>", escaped(way));
    }
    out += "<th>speed-up</th><th></th><th>predicted ms</th></tr></thead><tbody>";
    for task in &report.tasks {
        row(&mut out, task, &ways);
    }
    out += "</tbody></table></div></body></html>\n";
    out
}

fn card(out: &mut String, number: &str, what: &str) {
    let _ =
        write!(out, "<div class=\"card\"><b>{number}</b><span class=\"soft\">{}</span></div>", escaped(what));
}

fn row(out: &mut String, task: &TaskResult, ways: &[&String]) {
    let class = match task.outcome {
        Outcome::Right => "good",
        Outcome::Refused | Outcome::Failed => "bad",
        Outcome::Missing => "soft",
    };
    let word = task.outcome.word();
    let reason = task.reasons.first().map_or(String::new(), |reason| format!(": {}", escaped(reason)));
    let _ = write!(
        out,
        "<tr><td>{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text {class}\">{word}{reason}</td>",
        task.number,
        escaped(&task.name.replace('_', " ")),
        escaped(&task.solution)
    );
    cell(
        out,
        task.timing.as_ref().map(|timing| {
            format!("<span title=\"{:.4} to {:.4}\">{:.4}</span>", timing.low, timing.high, timing.median)
        }),
    );
    for way in ways {
        cell(out, task.baselines.get(*way).map(|timing| format!("{:.4}", timing.median)));
    }
    let speedup = task.speedup();
    cell(out, speedup.map(|speedup| format!("{speedup:.2}×")));
    // Twice as fast fills half of the bar.
    let filled = speedup.map(|speedup| {
        format!(
            "<span class=\"bar\"><i style=\"width:{:.0}%\"></i></span>",
            100.0 * (1.0 - 1.0 / (1.0 + speedup.max(0.0) / 2.0))
        )
    });
    cell(out, filled);
    cell(out, task.predicted.as_ref().map(|predicted| format!("{:.4}", predicted.milliseconds)));
    *out += "</tr>";
}

fn cell(out: &mut String, text: Option<String>) {
    let _ = write!(out, "<td>{}</td>", text.unwrap_or_default());
}

/// Text as HTML has it: names and reasons come from tasks and solutions.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::*, *};

    #[test]
    fn a_page_has_every_task_and_nothing_of_theirs_is_markup() {
        let mut refused = task(2, Outcome::Refused, 1.0, 1.0, 1.0);
        refused.reasons.push("<script>alert(1)</script>".to_owned());
        let page = page(&report(vec![task(1, Outcome::Right, 1.0, 2.0, 4.0), refused]));
        assert!(page.contains("<td>2.00×</td>"), "{page}");
        assert!(page.contains("refused: &lt;script&gt;"));
        assert!(!page.contains("<script>"));
        assert!(page.contains("1 of 2"));
        // Nothing is loaded from elsewhere.
        assert!(!page.contains("http"));
        let open = page.matches("<tr>").count() + page.matches("<tr ").count();
        assert_eq!(open, page.matches("</tr>").count());
    }
}
