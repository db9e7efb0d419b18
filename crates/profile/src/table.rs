//! A profile as text for a terminal.

use std::fmt::Write;

use crate::{
    Profile,
    bottlenecks::{bottlenecks, stages},
    copies::copies,
    groups::{By, Group, groups},
    quantity::{bytes, prefixed, time},
    totals::{Total, totals},
};

/// How many levels of spans, networks, kinds of layers, layers and bottlenecks are shown.
const DEPTH: usize = 3;
const NETWORKS: usize = 12;
const KINDS: usize = 16;
const LAYERS: usize = 12;
const BOTTLENECKS: usize = 8;

/// The profile as tables: time by span, by kind of layer and by layer, memory, and what to fix first.
pub fn text(profile: &Profile) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_all(profile, &mut text);
    text
}

fn write_all(profile: &Profile, text: &mut String) -> std::fmt::Result {
    if !profile.title.is_empty() {
        writeln!(text, "{}", profile.title)?;
    }
    if !profile.machine.device.is_empty() {
        write!(text, "on {}", profile.machine.device)?;
        if let Some(ceilings) = &profile.machine.ceilings {
            let flops = prefixed(ceilings.flops_per_second, "FLOP/s");
            write!(text, ": peak {flops} and {}", prefixed(ceilings.bytes_per_second, "B/s"))?;
        }
        writeln!(text)?;
    }
    write_spans(profile, text)?;
    let tables =
        [("by network", By::Program, NETWORKS), ("by kind", By::Op, KINDS), ("by layer", By::Layer, LAYERS)];
    for (heading, by, count) in tables {
        write_groups(heading, &groups(profile, by), count, text)?;
    }
    write_copies(profile, text)?;
    write_memory(profile, text)?;
    write_bottlenecks(profile, text)?;
    for note in &profile.notes {
        writeln!(text, "\nNote: {note}")?;
    }
    Ok(())
}

fn write_spans(profile: &Profile, text: &mut String) -> std::fmt::Result {
    let stages = stages(profile);
    writeln!(text, "\n{:<44} {:>6} {:>11} {:>11}  limited by", "time", "count", "total", "self")?;
    for lane in totals(profile) {
        if profile.lanes.len() > 1 {
            writeln!(text, "{}", profile.lanes[lane.lane].name)?;
        }
        for total in &lane.totals {
            write_total(total, 0, profile, &stages, text)?;
        }
    }
    Ok(())
}

fn write_total(
    total: &Total,
    depth: usize,
    profile: &Profile,
    stages: &[crate::bottlenecks::Stage],
    text: &mut String,
) -> std::fmt::Result {
    let stage = stages.iter().find(|stage| depth == 1 && stage.name == total.name);
    let limit = stage.map_or("", |stage| stage.limit.name());
    let name = shortened(&format!("{:indent$}{}", "", total.name, indent = 2 * depth), 44);
    let (all, own) = (time(total.nanoseconds), time(total.own_nanoseconds));
    let line = format!("{name:<44} {:>6} {all:>11} {own:>11}  {limit}", total.count);
    writeln!(text, "{}", line.trim_end())?;
    // Layers have tables of their own.
    let is_layer = |child: &&Total| profile.works.iter().any(|work| work.layer == child.name);
    if depth + 1 < DEPTH {
        for child in total.children.iter().filter(|child| !is_layer(child)) {
            write_total(child, depth + 1, profile, stages, text)?;
        }
    }
    Ok(())
}

fn write_groups(heading: &str, groups: &[Group], count: usize, text: &mut String) -> std::fmt::Result {
    if groups.is_empty() {
        return Ok(());
    }
    let all: u64 = groups.iter().map(|group| group.nanoseconds).sum();
    let name = |group: &Group| match &group.name {
        name if *name == group.program => name.clone(),
        name => format!("{}: {name}", group.program),
    };
    let names = distinct(groups.iter().take(count).map(name));
    writeln!(
        text,
        "\n{heading:<44} {:>6} {:>11} {:>6} {:>12} {:>10} {:>8}  limited by",
        "runs", "time", "share", "FLOP/s", "B/s", "of best"
    )?;
    for (group, name) in groups.iter().zip(names) {
        let share = 100.0 * group.nanoseconds as f64 / all.max(1) as f64;
        let best = group.efficiency().map_or_else(String::new, |e| format!("{:.0} %", 100.0 * e));
        let line = format!(
            "{name:<44} {:>6} {:>11} {share:>5.1}% {:>12} {:>10} {best:>8}  {}",
            group.runs,
            time(group.nanoseconds),
            if group.flops > 0 { prefixed(group.flops_per_second(), "FLOP/s") } else { String::new() },
            prefixed(group.bytes_per_second(), "B/s"),
            group.limit.map_or("", crate::groups::Limit::name),
        );
        writeln!(text, "{}", line.trim_end())?;
    }
    if groups.len() > count {
        let rest: u64 = groups[count..].iter().map(|group| group.nanoseconds).sum();
        writeln!(text, "{:<44} {:>6} {:>11}", format!("{} more", groups.len() - count), "", time(rest))?;
    }
    Ok(())
}

fn write_copies(profile: &Profile, text: &mut String) -> std::fmt::Result {
    let copies = copies(profile);
    if copies.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{:<44} {:>6} {:>11} {:>11} {:>12}", "copies", "count", "time", "bytes", "B/s")?;
    for of in copies {
        let name = shortened(&format!("{} {}", of.name, of.direction.name()), 44);
        let (taken, rate) = (time(of.nanoseconds), prefixed(of.bytes_per_second, "B/s"));
        writeln!(text, "{name:<44} {:>6} {taken:>11} {:>11} {rate:>12}", of.count, bytes(of.bytes))?;
    }
    Ok(())
}

fn write_memory(profile: &Profile, text: &mut String) -> std::fmt::Result {
    let Some((at, peak)) = profile.memory_peak() else { return Ok(()) };
    write!(text, "\n{} peak memory, after {}", bytes(peak), time(at))?;
    if let Some(planned) = profile.planned_peak_bytes {
        write!(text, " (planned: {})", bytes(planned))?;
    }
    writeln!(text, ":")?;
    for (owner, held) in profile.memory_at(at) {
        writeln!(text, "  {owner:<42} {:>10}", bytes(held))?;
    }
    Ok(())
}

fn write_bottlenecks(profile: &Profile, text: &mut String) -> std::fmt::Result {
    let found = bottlenecks(profile);
    if found.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nlargest possible savings")?;
    for (rank, bottleneck) in found.iter().take(BOTTLENECKS).enumerate() {
        let saving = time(bottleneck.saving_nanoseconds as u64);
        let (what, limit) = (&bottleneck.what, bottleneck.limit.name());
        writeln!(text, "{:>2}. {saving} of {}: {what} ({limit})", rank + 1, time(bottleneck.nanoseconds))?;
        writeln!(text, "    {}", bottleneck.advice)?;
    }
    Ok(())
}

/// Names shortened to 44 columns; those that would look alike then are left whole.
pub(crate) fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let names: Vec<String> = names.collect();
    let short: Vec<String> = names.iter().map(|name| shortened(name, 44)).collect();
    let alike = |text: &String| short.iter().filter(|other| *other == text).count() > 1;
    names
        .into_iter()
        .zip(&short)
        .map(|(name, short)| if alike(short) { name } else { short.clone() })
        .collect()
}

/// A name shortened to this many columns: its beginning says where a layer is, and its end what it is.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let kept = (width - 1) / 2;
    let beginning: String = name.chars().take(kept).collect();
    let end: String = name.chars().skip(length - (width - 1 - kept)).collect();
    format!("{beginning}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ceilings, Copied, DeviceSpan, Direction, Machine, Profiler, Work};

    #[test]
    fn the_table_has_all_that_was_recorded() {
        let profiler = Profiler::on();
        let ceilings = Ceilings { flops_per_second: 2e11, bytes_per_second: 2e10, launch_nanoseconds: 100.0 };
        profiler.describe("a clip", Machine { device: "a CPU".into(), ceilings: Some(ceilings) });
        let work = profiler.work(|| Work {
            program: "UNet".into(),
            layer: "down.0.conv".into(),
            op: "conv".into(),
            flops: 1000,
            bytes: 10,
            ..Work::default()
        });
        {
            let _clip = profiler.span("clip");
            let _denoise = profiler.span("denoise");
            let _step = profiler.span("step");
            let _layer = work.map(|work| profiler.layer(work));
            profiler.holds("UNet: weights", 2_000_000);
        }
        profiler.planned_peak(2_100_000);
        profiler.note("nothing traced the device");
        let Some(lane) = profiler.device_lane("GPU") else { panic!("it is on") };
        let copied = Some(Copied { direction: Direction::ToDevice, bytes: 2_000_000 });
        // Long after the clip, so that it does not change it.
        let (start, end) = (60_000_000_000, 60_001_000_000);
        let weights = DeviceSpan { name: "weights".into(), work: None, copied, start, end };
        profiler.device_spans(lane, weights, []);
        let text = text(&profiler.profile());
        for words in [
            "a clip\non a CPU: peak 200 GFLOP/s and 20.0 GB/s",
            "    step",
            "UNet: conv ",
            "UNet: down.0.conv",
            "2.00 MB peak memory",
            "(planned: 2.10 MB)",
            "UNet: weights",
            "weights to the device                             1     1.00 ms     2.00 MB    2.00 GB/s",
            "\nNote: nothing traced the device\n",
            "largest possible savings",
            "host in denoise (host)",
        ] {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    }

    #[test]
    fn a_long_name_keeps_both_ends() {
        assert_eq!(shortened("down_blocks.0.attentions.1.proj", 12), "down_…1.proj");
        assert_eq!(shortened("short", 12), "short");
        // Layers that differ in the middle alone.
        let layer = |block: usize| {
            format!("UNet: down_blocks.0.attentions.{block}.temporal_transformer_blocks.0.ff_in.net.2")
        };
        let names =
            [layer(0), layer(1), "UNet: up_blocks.0.attentions.1.transformer_blocks.0.norm".to_owned()];
        let shown = distinct(names.iter().cloned());
        assert_eq!(shown[..2], names[..2]);
        assert_eq!(shown[2].chars().count(), 44);
    }
}
