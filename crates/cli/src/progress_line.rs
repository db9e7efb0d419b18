//! The line of a stage that runs, as wide as its terminal.

use crate::{
    display::{NAME, Unit},
    quantities::Bytes,
    terminal,
};

/// Said after the first Ctrl-C in a benchmark, while the work goes on to its next case.
const STOPPING: &str = "stopping after this case; Ctrl-C again stops now";
const STOPPING_BRIEFLY: &str = "stopping after this case";

/// The longest and the shortest bar.
const BAR: std::ops::RangeInclusive<usize> = 8..=32;

/// How far a stage is.
pub struct Line<'a> {
    pub name: &'a str,
    pub unit: Unit,
    pub done: u64,
    pub total: u64,
    /// The time that has passed, and what is left.
    pub times: String,
    /// Whether the program was asked to end.
    pub stopping: bool,
}

impl Line<'_> {
    /// The line, at most `width` columns wide: with a bar if there is room for one, and as much of the rest as fits.
    pub fn text(&self, width: usize) -> String {
        let name = self.name;
        if self.stopping {
            let padded = format!("{name:<NAME$} {STOPPING}");
            let brief =
                if terminal::visible_width(&padded) > width { STOPPING_BRIEFLY } else { return padded };
            return first_that_fits([format!("{name}: {brief}"), brief.to_owned()], width);
        }
        let Some(count) = self.count() else {
            return first_that_fits(
                [format!("{name:<NAME$} {}", self.times), format!("{name} {}", self.times)],
                width,
            );
        };
        let rest = format!("{count}  {}", self.times);
        let room = width.saturating_sub(NAME + 2 + rest.chars().count()).min(*BAR.end());
        if room >= *BAR.start() {
            return format!("{name:<NAME$} {} {rest}", self.bar(room));
        }
        let briefly = format!("{name} {}/{}", self.done, self.total);
        first_that_fits([format!("{name} {rest}"), format!("{name} {count}"), briefly], width)
    }

    /// What is done of what there is; `None` if that says nothing.
    fn count(&self) -> Option<String> {
        let (done, total) = (self.done, self.total);
        match self.unit {
            Unit::Steps => Some(format!("step {done}/{total}")),
            Unit::Frames => Some(format!("{done}/{total} frames")),
            Unit::Bytes => Some(format!("{}/{}", Bytes(done), Bytes(total))),
            Unit::Compiled | Unit::Kernels => Some(format!("{done}/{total} kernels")),
            Unit::Cases => Some(format!("{done}/{total} cases")),
            Unit::Photo | Unit::Parts => None,
        }
    }

    fn bar(&self, width: usize) -> String {
        let cyan = anstyle::Style::new().fg_color(Some(anstyle::AnsiColor::Cyan.into()));
        let dim = anstyle::Style::new().dimmed();
        let done = self.done.min(self.total) as f64 / self.total.max(1) as f64;
        let filled = ((done * width as f64).round() as usize).min(width);
        format!("{cyan}{}{cyan:#}{dim}{}{dim:#}", "━".repeat(filled), "─".repeat(width - filled))
    }
}

/// The first of these that fits; if none does, as much of the last as there is room for.
fn first_that_fits<const N: usize>(texts: [String; N], width: usize) -> String {
    let fits = texts.iter().find(|text| text.chars().count() <= width).cloned();
    fits.unwrap_or_else(|| terminal::cut(texts.last().map_or("", String::as_str), width))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: [Unit; 8] = [
        Unit::Steps,
        Unit::Frames,
        Unit::Bytes,
        Unit::Photo,
        Unit::Parts,
        Unit::Compiled,
        Unit::Kernels,
        Unit::Cases,
    ];

    fn line(unit: Unit, stopping: bool) -> Line<'static> {
        let times = "1:23:45, about 2:05:09 left".to_owned();
        Line { name: "downloading", unit, done: 123_456_789, total: 987_654_321_000, times, stopping }
    }

    #[test]
    fn a_line_never_takes_more_than_its_terminal_has() {
        for width in 1..200 {
            for unit in UNITS {
                for stopping in [false, true] {
                    let text = line(unit, stopping).text(width);
                    assert!(terminal::visible_width(&text) <= width, "{width}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_narrow_terminal_sees_what_matters() {
        let steps = |width| {
            let times = "12 s, about 48 s left".to_owned();
            Line { name: "denoising", unit: Unit::Steps, done: 5, total: 25, times, stopping: false }
                .text(width)
        };
        let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
        assert_eq!(
            plain(steps(77)),
            "denoising            ━━━━━────────────────── step 5/25  12 s, about 48 s left"
        );
        assert_eq!(plain(steps(48)), "denoising step 5/25  12 s, about 48 s left");
        assert_eq!(plain(steps(37)), "denoising step 5/25");
        assert_eq!(plain(steps(15)), "denoising 5/25");
        assert_eq!(plain(steps(8)), "denoisi…");
        let stopping = |width| Line { stopping: true, ..line(Unit::Steps, true) }.text(width);
        assert!(stopping(77).contains("Ctrl-C again"));
        assert_eq!(stopping(37), "downloading: stopping after this case");
        assert_eq!(stopping(30), "stopping after this case");
    }
}
