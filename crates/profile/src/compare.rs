//! Compares two profiles of the same work: what became faster, and what slower.

use std::{collections::HashMap, fmt::Write};

use serde::Serialize;

use crate::{
    Profile,
    bottlenecks::stages,
    groups::{By, Limit, groups},
    quantity::{bytes, change, change_percent, time},
    table::distinct,
};

/// How many layers the text shows.
const LAYERS: usize = 12;

/// What changed from one profile to another. Every list has the largest change first, for better or worse.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The earlier profile.
    pub before: Side,
    /// The later one.
    pub after: Side,
    /// The whole run.
    pub total: Change,
    /// Stage by stage.
    pub stages: Vec<Change>,
    /// By network and kind of op.
    pub ops: Vec<Change>,
    /// By network and layer.
    pub layers: Vec<Change>,
}

/// One of the two profiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// What ran.
    pub title: String,
    /// What it ran on.
    pub device: String,
    /// The peak memory, if any was recorded.
    pub peak_bytes: Option<u64>,
    /// The largest peak memory that the plans predicted.
    pub planned_peak_bytes: Option<u64>,
}

/// Something that is in one of the profiles or in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The network, if it belongs to one.
    pub program: String,
    /// What it is called.
    pub name: String,
    /// How long it took before. `None` if it did not exist.
    pub before: Option<Part>,
    /// How long it takes after. `None` if it is gone.
    pub after: Option<Part>,
    /// How much longer it takes after, in nanoseconds. A missing part counts as zero.
    pub difference_nanoseconds: i64,
    /// The same as a percentage of the time before, unless that was zero.
    pub percent: Option<f64>,
}

/// How long something takes in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The total time.
    pub nanoseconds: u64,
    /// Runs of layers, if it consists of layers.
    pub runs: Option<u64>,
    /// What limits it, if known.
    pub limit: Option<Limit>,
}

impl Change {
    fn new((program, name): (&str, &str), before: Option<Part>, after: Option<Part>) -> Change {
        // 2⁶³ nanoseconds are 292 years.
        let taken =
            |part: Option<Part>| part.map_or(0, |part| i64::try_from(part.nanoseconds).unwrap_or(i64::MAX));
        let difference_nanoseconds = taken(after) - taken(before);
        let percent = (taken(before) > 0 && after.is_some())
            .then(|| 100.0 * difference_nanoseconds as f64 / taken(before) as f64);
        let (program, name) = (program.to_owned(), name.to_owned());
        Change { program, name, before, after, difference_nanoseconds, percent }
    }
}

/// Compares two profiles. Parts are matched by name.
pub fn compare(before: &Profile, after: &Profile) -> Comparison {
    let whole = |profile: &Profile| Part { nanoseconds: profile.duration(), runs: None, limit: None };
    Comparison {
        before: side(before),
        after: side(after),
        total: Change::new(("", "total"), Some(whole(before)), Some(whole(after))),
        stages: changes(parts_by_stage(before), parts_by_stage(after)),
        ops: changes(parts(before, By::Op), parts(after, By::Op)),
        layers: changes(parts(before, By::Layer), parts(after, By::Layer)),
    }
}

fn side(profile: &Profile) -> Side {
    Side {
        title: profile.title.clone(),
        device: profile.machine.device.clone(),
        peak_bytes: profile.memory_peak().map(|(_, bytes)| bytes),
        planned_peak_bytes: profile.planned_peak_bytes,
    }
}

/// Parts by network and name.
type Parts = Vec<((String, String), Part)>;

fn parts_by_stage(profile: &Profile) -> Parts {
    let part = |stage: crate::bottlenecks::Stage| {
        let part = Part { nanoseconds: stage.nanoseconds, runs: None, limit: Some(stage.limit) };
        ((String::new(), stage.name), part)
    };
    stages(profile).into_iter().map(part).collect()
}

fn parts(profile: &Profile, by: By) -> Parts {
    let part = |group: crate::groups::Group| {
        let part = Part { nanoseconds: group.nanoseconds, runs: Some(group.runs), limit: group.limit };
        ((group.program, group.name), part)
    };
    groups(profile, by).into_iter().map(part).collect()
}

fn changes(before: Parts, after: Parts) -> Vec<Change> {
    let mut later: HashMap<&(String, String), Part> = after.iter().map(|(key, part)| (key, *part)).collect();
    let mut changes = Vec::new();
    for (key, part) in &before {
        changes.push(Change::new((&key.0, &key.1), Some(*part), later.remove(key)));
    }
    for (key, part) in after.iter().filter(|(key, _)| later.contains_key(key)) {
        changes.push(Change::new((&key.0, &key.1), None, Some(*part)));
    }
    changes.sort_by_key(|change| std::cmp::Reverse(change.difference_nanoseconds.unsigned_abs()));
    changes
}

/// The comparison as tables for a terminal.
pub fn text(comparison: &Comparison) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_all(comparison, &mut text);
    text
}

fn write_all(comparison: &Comparison, text: &mut String) -> std::fmt::Result {
    for (when, side) in [("before", &comparison.before), ("after", &comparison.after)] {
        let title = if side.title.is_empty() { "untitled" } else { &side.title };
        write!(text, "{when:<6}  {title}")?;
        if !side.device.is_empty() {
            write!(text, ", on {}", side.device)?;
        }
        if let Some(peak) = side.peak_bytes {
            write!(text, ", {} peak memory", bytes(peak))?;
        }
        writeln!(text)?;
    }
    let devices = [&comparison.before.device, &comparison.after.device];
    if devices[0] != devices[1] && devices.iter().all(|device| !device.is_empty()) {
        writeln!(text, "note: the two runs were on different devices")?;
    }
    let total = std::slice::from_ref(&comparison.total);
    for (heading, changes, count) in [
        ("time", total, usize::MAX),
        ("by stage", &comparison.stages, usize::MAX),
        ("by kind", &comparison.ops, usize::MAX),
        ("by layer", &comparison.layers, LAYERS),
    ] {
        write_changes(heading, changes, count, text)?;
    }
    Ok(())
}

fn write_changes(heading: &str, changes: &[Change], count: usize, text: &mut String) -> std::fmt::Result {
    if changes.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{heading:<44} {:>11} {:>11} {:>11} {:>9}", "before", "after", "difference", "change")?;
    let taken = |part: Option<Part>| part.map_or_else(|| "–".to_owned(), |part| time(part.nanoseconds));
    let names = distinct(changes.iter().take(count).map(|line| match line.program.as_str() {
        "" => line.name.clone(),
        program => format!("{program}: {}", line.name),
    }));
    for (line, name) in changes.iter().zip(names) {
        let percent = match (line.before, line.percent) {
            (None, _) => "new".to_owned(),
            _ if line.after.is_none() => "gone".to_owned(),
            (_, percent) => percent.map_or_else(String::new, change_percent),
        };
        let line = format!(
            "{name:<44} {:>11} {:>11} {:>11} {percent:>9}",
            taken(line.before),
            taken(line.after),
            change(line.difference_nanoseconds),
        );
        writeln!(text, "{}", line.trim_end())?;
    }
    if changes.len() > count {
        let rest: i64 = changes[count..].iter().map(|line| line.difference_nanoseconds).sum();
        let more = format!("{} more", changes.len() - count);
        writeln!(text, "{more:<44} {:>11} {:>11} {:>11}", "", "", change(rest))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, LaneKind, MemorySample, Span, Work};

    /// A clip whose one stage runs layers of these times.
    fn profile(layers: &[(&str, u64)]) -> Profile {
        let work = |&(name, _): &(&str, u64)| Work {
            program: "unet".into(),
            layer: name.into(),
            op: name.split('.').next_back().unwrap_or_default().into(),
            ..Work::default()
        };
        let end = layers.iter().map(|(_, taken)| taken).sum();
        let span = |name: &str, parent, start, end, work| Span {
            name: name.into(),
            lane: 0,
            parent,
            start,
            end,
            work,
            copied: None,
        };
        let mut spans = vec![span("clip", None, 0, end, None), span("denoise", Some(0), 0, end, None)];
        let mut at = 0;
        for (number, (name, taken)) in layers.iter().enumerate() {
            spans.push(span(name, Some(1), at, at + taken, Some(number)));
            at += taken;
        }
        Profile {
            title: format!("{} layers", layers.len()),
            lanes: vec![Lane { name: "main".into(), kind: LaneKind::Host }],
            works: layers.iter().map(work).collect(),
            spans,
            memory: vec![MemorySample { at: 0, owner: "arena".into(), bytes: 5_000_000 }],
            ..Profile::default()
        }
    }

    #[test]
    fn the_largest_change_comes_first_and_what_is_missing_counts_as_nothing() {
        let before = profile(&[("a.conv", 4000), ("b.conv", 1000), ("c.norm", 500), ("d.norm", 100)]);
        let after = profile(&[("a.conv", 3000), ("b.conv", 1010), ("d.norm", 100), ("e.gemm", 700)]);
        let found = compare(&before, &after);
        let layers: Vec<_> =
            found.layers.iter().map(|c| (c.name.as_str(), c.difference_nanoseconds, c.percent)).collect();
        assert_eq!(
            layers,
            [
                ("a.conv", -1000, Some(-25.0)),
                ("e.gemm", 700, None),
                ("c.norm", -500, None),
                ("b.conv", 10, Some(1.0)),
                ("d.norm", 0, Some(0.0)),
            ]
        );
        assert!(found.layers[1].before.is_none() && found.layers[2].after.is_none());
        let ops: Vec<_> = found.ops.iter().map(|c| (c.name.as_str(), c.difference_nanoseconds)).collect();
        assert_eq!(ops, [("conv", -990), ("gemm", 700), ("norm", -500)]);
        assert_eq!((found.stages.len(), found.stages[0].difference_nanoseconds), (1, -790));
        assert_eq!(found.total.difference_nanoseconds, -790);
        // The changes of the parts add up to the change of the whole.
        for parts in [&found.ops, &found.layers] {
            assert_eq!(parts.iter().map(|change| change.difference_nanoseconds).sum::<i64>(), -790);
        }
    }

    #[test]
    fn the_text_has_both_sides() {
        let before = profile(&[("a.conv", 4000), ("c.norm", 500)]);
        let after = profile(&[("a.conv", 3000), ("e.gemm", 700)]);
        let text = text(&compare(&before, &after));
        let columns = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.join(" ")
        };
        let lines: Vec<String> = text.lines().map(columns).collect();
        for line in [
            "before 2 layers, 5.00 MB peak memory",
            "total 4.50 µs 3.70 µs −800 ns −17.8 %",
            "denoise 4.50 µs 3.70 µs −800 ns −17.8 %",
            "unet: conv 4.00 µs 3.00 µs −1.00 µs −25.0 %",
            "unet: e.gemm – 700 ns +700 ns new",
            "unet: c.norm 500 ns – −500 ns gone",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    }

    #[test]
    fn other_devices_are_reported() {
        let on = |device: &str| Profile {
            machine: crate::Machine { device: device.into(), ceilings: None },
            ..profile(&[("a.conv", 4000)])
        };
        let warns =
            |before: &str, after: &str| text(&compare(&on(before), &on(after))).contains("different devices");
        assert!(warns("a GPU", "a CPU"));
        assert!(!warns("a GPU", "a GPU") && !warns("", "a GPU"));
    }

    #[test]
    fn empty_profiles_can_be_compared() {
        let found = compare(&Profile::default(), &Profile::default());
        assert_eq!((found.total.difference_nanoseconds, found.total.percent), (0, None));
        assert!(found.layers.is_empty() && text(&found).contains("untitled"));
    }
}
