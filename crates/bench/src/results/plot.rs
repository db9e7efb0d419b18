//! Results as a plot: a bar for everyone who ran a case, on an axis of times.

use std::fmt::Write as _;

use kinora_outside::printable;

use super::{CaseResults, Entry, KINORA, Results, table::milliseconds};

/// Widths and heights, in pixels.
const LABELS: f64 = 300.0;
const BARS: f64 = 520.0;
const REMARKS: f64 = 360.0;
const TOP: f64 = 64.0;
/// The margin on the left.
const MARGIN: f64 = -12.0;
const BAR: f64 = 13.0;
const BETWEEN: f64 = 9.0;
const HEADING: f64 = 46.0;

/// Greys and a blue that are legible on white and on black, so that the plot needs no background.
const STYLE: &str = "\
text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #7b7f87; }
.title { font-size: 16px; font-weight: 600; }
.suite { font-size: 13px; font-weight: 600; }
.remark { font-size: 11px; }
.ours { fill: #2f81d6; font-weight: 600; }
.bar { fill: #9aa0a8; }
.bar.ours { fill: #2f81d6; }
.line { stroke: #7b7f87; stroke-opacity: 0.3; stroke-width: 1; }
.interval { stroke: #5a5e66; stroke-width: 1.5; }";

/// The times as an SVG file.
pub fn svg(results: &Results) -> String {
    let axis = Axis::of(results);
    let mut body = String::new();
    let mut y = TOP;
    for suite in results.suites.iter().filter(|suite| !suite.cases.is_empty()) {
        let from = y;
        let size = suite.size.as_deref().map(|size| format!(", {size}")).unwrap_or_default();
        let title = format!("{}: {}, {}{size}", suite.suite, suite.device, suite.precision);
        let _ = writeln!(body, r#"<text class="suite" x="0" y="{:.1}">{}</text>"#, y + 14.0, escaped(&title));
        y += HEADING;
        let mut cases = String::new();
        for case in &suite.cases {
            y = group(&mut cases, case, &axis, y) + BETWEEN;
        }
        axis.lines(&mut body, from + HEADING - 6.0, y - BETWEEN + 4.0);
        body += &cases;
        y += BETWEEN;
    }
    let (width, height) = (LABELS + BARS + REMARKS - MARGIN, y + 8.0);
    let kinora = &results.kinora;
    let machine = results.gpu.as_ref().map_or(&results.processor, |gpu| &gpu.name);
    let build = if kinora.build == "release" { String::new() } else { format!(", {} build", kinora.build) };
    let title = format!("Kinora {} ({}{build}) on {machine}", kinora.version, kinora.commit);
    let remark =
        "medians with their intervals on a logarithmic axis, shorter is faster; × is the time over Kinora's";
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="{MARGIN:.0} 0 {width:.0} {height:.0}">
<title>{title}</title>
<style>{STYLE}</style>
<text class="title" x="0" y="20">{title}</text>
<text class="remark" x="0" y="40">{date}; {remark}</text>
{body}</svg>
"#,
        title = escaped(&title),
        date = escaped(&results.date),
    )
}

/// A case: its name beside its bars. Returns where the next one begins.
fn group(body: &mut String, case: &CaseResults, axis: &Axis, mut y: f64) -> f64 {
    let name = escaped(&case.name);
    let _ = writeln!(
        body,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{name}</text>"#,
        LABELS - 10.0,
        y + BAR - 2.5
    );
    let ours = case.ours().and_then(|entry| entry.milliseconds.as_ref()).map(|time| time.median);
    for entry in &case.entries {
        if bar(body, entry, ours, axis, y) {
            y += BAR + 2.0;
        }
    }
    y
}

/// One bar with its interval and label; nothing for an entry without a time.
fn bar(body: &mut String, entry: &Entry, ours: Option<f64>, axis: &Axis, y: f64) -> bool {
    let Some(time) = &entry.milliseconds else { return false };
    let end = axis.at(time.median);
    let class = if entry.by.starts_with(KINORA) { " ours" } else { "" };
    let _ = writeln!(
        body,
        r#"<rect class="bar{class}" x="{LABELS:.1}" y="{y:.1}" width="{:.1}" height="{BAR:.1}" rx="1.5"/>"#,
        (end - LABELS).max(1.0)
    );
    let [low, high] = time.interval.map(|time| axis.at(time));
    let middle = y + BAR / 2.0;
    let _ = writeln!(
        body,
        r#"<line class="interval" x1="{low:.1}" y1="{middle:.1}" x2="{high:.1}" y2="{middle:.1}"/>"#
    );
    let mut remark = format!("{} · {}", escaped(&entry.by), milliseconds(time.median));
    if let (Some(ours), true) = (ours, entry.by != KINORA) {
        let _ = write!(remark, " · {:.2}×", time.median / ours);
    } else if let Some(part) = entry.of_ceiling {
        let _ = write!(remark, " · {:.0} % of the device's best", 100.0 * part);
    }
    let _ = writeln!(
        body,
        r#"<text class="remark{class}" x="{:.1}" y="{:.1}">{remark}</text>"#,
        end.max(high) + 6.0,
        y + BAR - 3.0
    );
    true
}

/// Times on a logarithmic axis, in milliseconds.
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    /// It begins below the shortest time, so that every bar has a visible length.
    fn of(results: &Results) -> Axis {
        let entries = results.suites.iter().flat_map(|suite| &suite.cases).flat_map(|case| &case.entries);
        let times = entries.filter_map(|entry| Some(entry.milliseconds.as_ref()?.median));
        let (least, most) = times
            .filter(|time| *time > 0.0)
            .fold((f64::INFINITY, 0.0f64), |(least, most), time| (least.min(time), most.max(time)));
        if most == 0.0 {
            return Axis { least: 1.0, most: 10.0 };
        }
        Axis { least: least / 2.0, most: most.max(4.0 * least) }
    }

    fn at(&self, time: f64) -> f64 {
        let part = (time.max(self.least) / self.least).ln() / (self.most / self.least).ln();
        LABELS + BARS * part.clamp(0.0, 1.0)
    }

    /// Lines at 1, 2 and 5 of every decade, with the labels that have room.
    fn lines(&self, body: &mut String, top: f64, bottom: f64) {
        let mut right = f64::NEG_INFINITY;
        // From a picosecond to a day, more than any run takes.
        for decade in -9..=8 {
            for digit in [1.0, 2.0, 5.0] {
                let time = digit * 10f64.powi(decade);
                if time < self.least || time > self.most {
                    continue;
                }
                let x = self.at(time);
                let _ = writeln!(
                    body,
                    r#"<line class="line" x1="{x:.1}" y1="{top:.1}" x2="{x:.1}" y2="{bottom:.1}"/>"#
                );
                if x - right > 56.0 {
                    right = x;
                    let _ = writeln!(
                        body,
                        r#"<text class="remark" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                        top - 4.0,
                        tick(time)
                    );
                }
            }
        }
    }
}

/// A round time without decimals: `20 µs`.
fn tick(time: f64) -> String {
    let (value, unit) = match time {
        time if time < 0.9e-3 => (time * 1e6, "ns"),
        time if time < 0.9 => (time * 1e3, "µs"),
        time if time < 0.9e3 => (time, "ms"),
        time => (time / 1e3, "s"),
    };
    format!("{value:.0} {unit}")
}

/// Text with XML's special characters escaped, and those that XML does not allow shown.
fn escaped(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{super::compare::tests::*, *};

    #[test]
    fn bars_are_as_long_as_their_times() {
        let results = results(&[("a < b & c", estimate(0.9, 1.0, 1.1)), ("d", estimate(2.9, 3.0, 3.1))]);
        let svg = svg(&results);
        assert_eq!(svg.matches("<rect class=\"bar").count(), 4, "{svg}");
        assert_eq!(svg.matches("<rect class=\"bar ours").count(), 2);
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains("2.10 ms · 2.10×"));
        let axis = Axis::of(&results);
        assert!(axis.at(1.0) > LABELS && axis.at(1.0) < axis.at(2.1) && axis.at(3.0) <= LABELS + BARS);
    }

    #[test]
    fn results_without_times_can_be_plotted() {
        assert_eq!(svg(&results(&[])).matches("<rect").count(), 0);
    }

    #[test]
    fn ticks_are_round() {
        for (time, text) in [(1e-5, "10 ns"), (0.02, "20 µs"), (5.0, "5 ms"), (2000.0, "2 s"), (1.0, "1 ms")]
        {
            assert_eq!(tick(time), text);
        }
    }
}
