//! What the page of a profile shows, computed here rather than in the page.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

use super::{
    flame::{Flame, flames},
    memory::{Memory, memory},
    timeline::{Timeline, timeline},
};
use crate::{
    Ceilings, LaneKind, Profile,
    bottlenecks::{Bottleneck, Stage, bottlenecks, stages},
    groups::{By, Group, Limit, groups, layer_nanoseconds, runs},
};

/// The most rows in a table. If there are more, the longest are shown.
const ROWS: usize = 5000;

/// Everything that the page of a profile shows.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    device: &'a str,
    ceilings: Option<Ceilings>,
    /// Notes for the reader on how it was recorded.
    notes: &'a [String],
    summary: Summary<'a>,
    stages: Vec<Stage>,
    bottlenecks: Vec<Bottleneck>,
    /// The kinds of op, the longest first. Other fields refer to them by number.
    ops: Vec<&'a str>,
    works: Vec<Layer<'a>>,
    timeline: Timeline<'a>,
    flames: Vec<Flame<'a>>,
    memory: Memory<'a>,
    by_kind: Table,
    by_layer: Table,
    by_kernel: Table,
}

/// A layer: its network, name, kind and kernel, its floating-point operations and its bytes.
#[derive(Debug, Serialize)]
struct Layer<'a>(&'a str, &'a str, usize, Option<&'a str>, u64, u64);

/// The numbers of the heading.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    nanoseconds: u64,
    /// The time of layers, and whose it is: a device's if one ran any.
    layer_nanoseconds: u64,
    layer_kind: LaneKind,
    /// Runs of layers, and their launches.
    runs: u64,
    launches: u64,
    flops_per_second: f64,
    bytes_per_second: f64,
    efficiency: Option<f64>,
    spans: usize,
    lanes: usize,
    peak: Option<Peak<'a>>,
    planned_peak_bytes: Option<u64>,
}

/// When the most memory was held, and by whom.
#[derive(Debug, Serialize)]
struct Peak<'a> {
    at: u64,
    bytes: u64,
    owners: Vec<(&'a str, u64)>,
}

/// Groups of layers.
#[derive(Debug, Serialize)]
struct Table {
    rows: Vec<Row>,
    /// How many groups there are beyond the rows, and their total time.
    left_out: usize,
    left_out_nanoseconds: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    program: String,
    name: String,
    /// The kind of op on which the most time was spent.
    op: usize,
    runs: u64,
    nanoseconds: u64,
    share: f64,
    flops: u64,
    bytes: u64,
    flops_per_second: f64,
    bytes_per_second: f64,
    efficiency: Option<f64>,
    saving_nanoseconds: Option<f64>,
    limit: Option<Limit>,
}

pub(super) fn report(profile: &Profile) -> Report<'_> {
    let ops = ops(profile);
    let places: HashMap<&str, usize> = ops.iter().enumerate().map(|(place, &op)| (op, place)).collect();
    let op = |name: &str| places.get(name).copied().unwrap_or_default();
    let table = |by| table(profile, by, &op, ROWS);
    Report {
        device: &profile.machine.device,
        ceilings: profile.machine.ceilings,
        notes: &profile.notes,
        summary: summary(profile),
        stages: stages(profile),
        bottlenecks: bottlenecks(profile),
        works: profile
            .works
            .iter()
            .map(|work| {
                let kernel = work.kernel.as_deref();
                Layer(&work.program, &work.layer, op(&work.op), kernel, work.flops, work.bytes)
            })
            .collect(),
        timeline: timeline(profile),
        flames: flames(profile),
        memory: memory(profile),
        by_kind: table(By::Op),
        by_layer: table(By::Layer),
        by_kernel: table(By::Kernel),
        ops,
    }
}

fn summary(profile: &Profile) -> Summary<'_> {
    let device = layer_nanoseconds(profile, LaneKind::Device);
    let (layer_kind, layer_nanoseconds) = match device {
        0 => (LaneKind::Host, layer_nanoseconds(profile, LaneKind::Host)),
        device => (LaneKind::Device, device),
    };
    let works = || profile.spans.iter().filter_map(|span| profile.works.get(span.work?));
    // All networks as one group, whose rates are those of the whole run.
    let programs = groups(profile, By::Program);
    let sum = |of: fn(&Group) -> u64| programs.iter().map(of).sum::<u64>();
    let all = Group {
        program: String::new(),
        name: String::new(),
        runs: sum(|group| group.runs),
        nanoseconds: sum(|group| group.nanoseconds),
        flops: sum(|group| group.flops),
        bytes: sum(|group| group.bytes),
        floor_nanoseconds: programs.iter().map(|group| group.floor_nanoseconds).sum(),
        limit: None,
    };
    Summary {
        nanoseconds: profile.duration(),
        layer_nanoseconds,
        layer_kind,
        runs: all.runs,
        launches: works().map(|work| work.launches).sum(),
        flops_per_second: all.flops_per_second(),
        bytes_per_second: all.bytes_per_second(),
        efficiency: all.efficiency(),
        spans: profile.spans.len() + profile.activity.len(),
        lanes: profile.lanes.len() + usize::from(!profile.activity.is_empty()),
        peak: profile.memory_peak().map(|(at, bytes)| Peak { at, bytes, owners: profile.memory_at(at) }),
        planned_peak_bytes: profile.planned_peak_bytes,
    }
}

/// The kinds of op by the time of their layers, those of layers that did not run last.
fn ops(profile: &Profile) -> Vec<&str> {
    let mut taken: HashMap<&str, u64> = profile.works.iter().map(|work| (work.op.as_str(), 0)).collect();
    for span in &profile.spans {
        let Some(work) = span.work.and_then(|work| profile.works.get(work)) else { continue };
        *taken.entry(&work.op).or_default() += span.nanoseconds();
    }
    let mut ops: Vec<(&str, u64)> = taken.into_iter().collect();
    ops.sort_by_key(|&(op, taken)| (Reverse(taken), op));
    ops.into_iter().map(|(op, _)| op).collect()
}

fn table(profile: &Profile, by: By, op: &impl Fn(&str) -> usize, most: usize) -> Table {
    let mut taken: HashMap<(&str, &str), HashMap<&str, u64>> = HashMap::new();
    for (work, nanoseconds) in runs(profile, by) {
        *taken.entry(by.key(work)).or_default().entry(&work.op).or_default() += nanoseconds;
    }
    let kind = |group: &Group| {
        let ops = taken.get(&(group.program.as_str(), group.name.as_str()))?;
        ops.iter().max_by_key(|&(name, taken)| (taken, Reverse(name))).map(|(name, _)| op(name))
    };
    let groups = groups(profile, by);
    let all: u64 = groups.iter().map(|group| group.nanoseconds).sum();
    let row = |group: &Group| Row {
        op: kind(group).unwrap_or_default(),
        runs: group.runs,
        nanoseconds: group.nanoseconds,
        share: 100.0 * group.nanoseconds as f64 / all.max(1) as f64,
        flops: group.flops,
        bytes: group.bytes,
        flops_per_second: group.flops_per_second(),
        bytes_per_second: group.bytes_per_second(),
        efficiency: group.efficiency(),
        saving_nanoseconds: group.saving_nanoseconds(),
        limit: group.limit,
        program: group.program.clone(),
        name: group.name.clone(),
    };
    let (shown, rest) = groups.split_at(groups.len().min(most));
    Table {
        rows: shown.iter().map(row).collect(),
        left_out: rest.len(),
        left_out_nanoseconds: rest.iter().map(|group| group.nanoseconds).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, ActivityKind, Lane, Span, Work};

    fn profile() -> Profile {
        let work = |layer: &str, op: &str| Work {
            program: "unet".into(),
            layer: layer.into(),
            op: op.into(),
            kernel: Some("wgmma".into()),
            flops: 1000,
            bytes: 10,
            launches: 2,
        };
        let span = |work, start, end| Span {
            name: "s".into(),
            lane: 0,
            parent: None,
            start,
            end,
            work,
            copied: None,
        };
        Profile {
            lanes: vec![Lane { name: "gpu".into(), kind: LaneKind::Device }],
            works: vec![work("a", "add"), work("b", "conv"), work("c", "gemm")],
            spans: vec![
                span(Some(0), 0, 10),
                span(Some(1), 10, 40),
                span(Some(1), 40, 60),
                span(None, 60, 90),
            ],
            ..Profile::default()
        }
    }

    #[test]
    fn the_heading_adds_up() {
        let profile = profile();
        let summary = summary(&profile);
        assert_eq!((summary.nanoseconds, summary.layer_nanoseconds, summary.runs), (90, 60, 3));
        assert_eq!((summary.layer_kind, summary.launches), (LaneKind::Device, 6));
        assert_eq!((summary.flops_per_second, summary.efficiency), (5e10, None));
    }

    #[test]
    fn kinds_are_numbered_by_their_time() {
        let profile = profile();
        let found = report(&profile);
        assert_eq!(found.ops, ["conv", "add", "gemm"]);
        assert_eq!(found.works.iter().map(|work| work.2).collect::<Vec<_>>(), [1, 0, 2]);
        // A kernel is shown as the kind of op that it is used for the most.
        assert_eq!((found.by_kernel.rows.len(), found.by_kernel.rows[0].op), (1, 0));
    }

    #[test]
    fn kernels_are_shown_by_the_time_that_they_ran() {
        let mut profile = profile();
        let kernel = |work, start, end| Activity {
            name: "k".into(),
            kind: ActivityKind::Kernel,
            work: Some(work),
            bytes: None,
            start,
            end,
        };
        // Most of the convolution's time is between its kernels.
        profile.activity = vec![
            kernel(0, 0, 5),
            kernel(0, 5, 10),
            kernel(1, 10, 11),
            kernel(1, 39, 40),
            kernel(1, 40, 41),
            kernel(1, 59, 60),
        ];
        let found = report(&profile);
        let [row] = &found.by_kernel.rows[..] else { panic!("{found:?}") };
        assert_eq!((row.nanoseconds, row.share, found.ops[row.op]), (14, 100.0, "add"));
        assert_eq!(row.flops_per_second, 3000.0 / 14.0 * 1e9);
        let layers: Vec<_> = found.by_layer.rows.iter().map(|row| row.nanoseconds).collect();
        assert_eq!((layers, found.summary.layer_nanoseconds), (vec![50, 10], 60));
    }

    #[test]
    fn of_too_many_layers_the_longest_are_shown() {
        let profile = profile();
        let found = table(&profile, By::Layer, &|_| 0, 1);
        assert_eq!((found.rows.len(), found.rows[0].name.as_str()), (1, "b"));
        assert_eq!((found.left_out, found.left_out_nanoseconds), (1, 10));
    }
}
