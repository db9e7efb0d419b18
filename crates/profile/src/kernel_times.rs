//! How long kernels ran: according to the device's own trace if it saw them, otherwise as long as their layers' spans.
//!
//! The span of a layer with several kernels includes the gaps between them. The gaps are part of the layer's time, and
//! so of every table except those by kernel.

use std::collections::HashMap;

use serde::Serialize;

use crate::{Activity, ActivityKind, LaneKind, Profile, Span, groups::By};

/// The layers that one implementation ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelTime {
    /// The implementation.
    pub kernel: String,
    /// Runs of layers.
    pub runs: u64,
    /// How long their kernels took, as in [groups](crate::groups) by kernel: runs that were not traced count by their
    /// spans.
    pub nanoseconds: u64,
    /// How long they took as layers: if a layer has several kernels, including the gaps between them.
    pub layer_nanoseconds: u64,
    /// How many kernels the trace saw for them.
    pub traced_kernels: u64,
    /// How long these took, from the first instruction to the last.
    pub traced_nanoseconds: u64,
}

/// The layers of devices by kernel, the longest kernel time first. Empty if no device was traced.
pub fn kernel_times(profile: &Profile) -> Vec<KernelTime> {
    if profile.activity.is_empty() {
        return Vec::new();
    }
    let ran = KernelRuns::of(profile);
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut times: Vec<KernelTime> = Vec::new();
    for (number, span, work) in device_layers(profile) {
        let (_, kernel) = By::Kernel.key(&profile.works[work]);
        let place = *places.entry(kernel).or_insert_with(|| {
            times.push(KernelTime {
                kernel: kernel.to_owned(),
                runs: 0,
                nanoseconds: 0,
                layer_nanoseconds: 0,
                traced_kernels: 0,
                traced_nanoseconds: 0,
            });
            times.len() - 1
        });
        times[place].runs += 1;
        times[place].nanoseconds += ran.nanoseconds(number, span);
        times[place].layer_nanoseconds += span.nanoseconds();
    }
    for (kernel, work) in traced_kernels(profile) {
        let work = profile.works.get(work);
        let Some(&place) = work.and_then(|work| places.get(By::Kernel.key(work).1)) else { continue };
        times[place].traced_kernels += 1;
        times[place].traced_nanoseconds += kernel.nanoseconds();
    }
    times.sort_by_key(|time| std::cmp::Reverse(time.nanoseconds));
    times
}

/// How long the kernels of each run of a layer ran.
pub(crate) struct KernelRuns {
    /// By the number of the run's span, if all its kernels were traced.
    traced: HashMap<usize, u64>,
}

/// A run of a layer, and the traced kernels of it.
struct Run {
    number: usize,
    start: u64,
    end: u64,
    kernels: u64,
    nanoseconds: u64,
}

impl KernelRuns {
    pub(crate) fn of(profile: &Profile) -> KernelRuns {
        let mut layers: HashMap<usize, Vec<Run>> = HashMap::new();
        for (number, &Span { start, end, .. }, work) in device_layers(profile) {
            layers.entry(work).or_default().push(Run { number, start, end, kernels: 0, nanoseconds: 0 });
        }
        for (kernel, work) in traced_kernels(profile) {
            let Some(run) = layers.get_mut(&work).and_then(|runs| nearest(runs, kernel)) else { continue };
            run.kernels += 1;
            run.nanoseconds += kernel.nanoseconds();
        }
        // A layer launches the same kernels each time: a run with fewer traced kernels than another, or than it
        // launches, was traced in part or not at all.
        let whole = layers.into_iter().flat_map(|(work, runs)| {
            let most = runs.iter().map(|run| run.kernels).max().unwrap_or(0);
            let all = most.max(profile.works[work].launches).max(1);
            runs.into_iter().filter(move |run| run.kernels == all)
        });
        KernelRuns { traced: whole.map(|run| (run.number, run.nanoseconds)).collect() }
    }

    /// How long the kernels of a run took; the run is given by the number of its span.
    pub(crate) fn nanoseconds(&self, number: usize, span: &Span) -> u64 {
        self.traced.get(&number).copied().unwrap_or_else(|| span.nanoseconds())
    }
}

/// The run that a kernel was part of. The clocks of the trace and the spans may differ by some ten microseconds, but
/// the runs of a layer are a step apart.
fn nearest<'a>(runs: &'a mut [Run], kernel: &Activity) -> Option<&'a mut Run> {
    let middle = kernel.start + kernel.nanoseconds() / 2;
    let after = runs.partition_point(|run| run.start <= middle);
    let beside = after.saturating_sub(1)..runs.len().min(after + 1);
    let away = |run: &&mut Run| run.start.saturating_sub(middle).max(middle.saturating_sub(run.end));
    runs[beside].iter_mut().min_by_key(away)
}

/// The spans of devices in which layers ran, with their numbers and those of the layers.
fn device_layers(profile: &Profile) -> impl Iterator<Item = (usize, &Span, usize)> {
    let is_device = |span: &Span| {
        let lane = profile.lanes.get(span.lane);
        lane.is_some_and(|lane| lane.kind == LaneKind::Device)
    };
    profile.spans.iter().enumerate().filter_map(move |(number, span)| {
        let work = span.work.filter(|&work| work < profile.works.len() && is_device(span))?;
        Some((number, span, work))
    })
}

/// The traced kernels that belong to layers, with the numbers of the layers.
fn traced_kernels(profile: &Profile) -> impl Iterator<Item = (&Activity, usize)> {
    let kernels = profile.activity.iter().filter(|activity| activity.kind == ActivityKind::Kernel);
    kernels.filter_map(|kernel| Some((kernel, kernel.work?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, Work, groups::groups};

    fn work(kernel: &str, launches: u64) -> Work {
        Work { kernel: Some(kernel.into()), flops: 1000, bytes: 100, launches, ..Work::default() }
    }

    fn span(lane: usize, work: usize, start: u64, end: u64) -> Span {
        Span { name: String::new(), lane, parent: None, start, end, work: Some(work), copied: None }
    }

    fn activity(work: Option<usize>, kind: ActivityKind, start: u64, end: u64) -> Activity {
        Activity { name: "entry".into(), kind, work, bytes: None, start, end }
    }

    fn kernel(work: usize, start: u64, end: u64) -> Activity {
        activity(Some(work), ActivityKind::Kernel, start, end)
    }

    /// Layers of a device.
    fn profile(works: Vec<Work>, spans: Vec<Span>, activity: Vec<Activity>) -> Profile {
        let lane = |kind| Lane { name: String::new(), kind };
        let lanes = vec![lane(LaneKind::Host), lane(LaneKind::Device)];
        let profile = Profile { lanes, works, spans, activity, ..Profile::default() };
        profile.check().unwrap();
        profile
    }

    /// What groups by kernel say that the only kernel took.
    fn by_kernel(profile: &Profile) -> u64 {
        let groups = groups(profile, By::Kernel);
        let [group] = &groups[..] else { panic!("{groups:?}") };
        if let [time] = &kernel_times(profile)[..] {
            assert_eq!(time.nanoseconds, group.nanoseconds);
        }
        group.nanoseconds
    }

    #[test]
    fn both_clocks_are_added_up_by_implementation() {
        let profile = profile(
            vec![work("wgmma", 1), work("rows", 1), work("wgmma", 2)],
            vec![span(1, 0, 0, 10), span(1, 1, 10, 14), span(1, 2, 14, 40), span(0, 0, 0, 100)],
            vec![
                kernel(0, 1, 9),
                kernel(1, 11, 13),
                // Two launches of one layer, and a copy, which is not a kernel.
                kernel(2, 15, 20),
                kernel(2, 21, 38),
                activity(Some(2), ActivityKind::Copy, 38, 39),
                activity(None, ActivityKind::Kernel, 39, 40),
            ],
        );
        let time = |kernel: &str, runs, nanoseconds, layer_nanoseconds, traced_kernels| KernelTime {
            kernel: kernel.into(),
            runs,
            nanoseconds,
            layer_nanoseconds,
            traced_kernels,
            traced_nanoseconds: nanoseconds,
        };
        assert_eq!(kernel_times(&profile), [time("wgmma", 2, 30, 36, 3), time("rows", 1, 2, 4, 1)]);
        assert_eq!(kernel_times(&Profile { activity: Vec::new(), ..profile }), []);
    }

    #[test]
    fn the_gap_between_two_kernels_is_the_layers_and_not_theirs() {
        // A product and the sum of its parts, ten microseconds apart, in two steps. The trace's clock is behind.
        let spans = vec![span(1, 0, 20_000, 50_000), span(1, 0, 90_000, 120_000)];
        let kernels = [(5_000, 20_000), (30_000, 35_000), (75_000, 91_000), (100_000, 105_000)];
        let kernels = kernels.map(|(start, end)| kernel(0, start, end));
        let profile = profile(vec![work("split", 2)], spans, kernels.into());
        assert_eq!(by_kernel(&profile), 41_000);
        let rates = |by| {
            let group = &groups(&profile, by)[0];
            (group.nanoseconds, group.flops_per_second(), group.bytes_per_second())
        };
        assert_eq!(rates(By::Kernel), (41_000, 2e12 / 41_000.0, 2e11 / 41_000.0));
        for by in [By::Program, By::Op, By::Layer] {
            assert_eq!(rates(by), (60_000, 2e12 / 60_000.0, 2e11 / 60_000.0));
        }
    }

    #[test]
    fn without_a_trace_kernels_take_as_long_as_their_spans() {
        let spans = vec![span(1, 0, 0, 300), span(1, 0, 1000, 1500)];
        let untraced = profile(vec![work("split", 2)], spans, Vec::new());
        assert_eq!(by_kernel(&untraced), 800);
        // What ran for other layers, or for none, says nothing about these.
        let elsewhere = vec![activity(None, ActivityKind::Kernel, 10, 20), kernel(1, 30, 40)];
        let works = vec![work("split", 2), work("never run", 1)];
        assert_eq!(by_kernel(&Profile { works, activity: elsewhere, ..untraced }), 800);
    }

    #[test]
    fn a_run_that_was_not_traced_as_a_whole_takes_as_long_as_its_span() {
        let spans = vec![span(1, 0, 0, 300), span(1, 0, 1000, 1400), span(1, 0, 2000, 2500)];
        let part = |launches, kernels: &[(u64, u64)]| {
            let kernels = kernels.iter().map(|&(start, end)| kernel(0, start, end)).collect();
            by_kernel(&profile(vec![work("split", launches)], spans.clone(), kernels))
        };
        let whole = [(0, 100), (200, 300), (1000, 1100), (1300, 1400), (2000, 2100), (2450, 2500)];
        assert_eq!(part(2, &whole), 200 + 200 + 150);
        // The trace ended after the first step, or began after it.
        assert_eq!(part(2, &whole[..2]), 200 + 400 + 500);
        assert_eq!(part(2, &whole[2..]), 300 + 200 + 150);
        // A record is lost, of a library too, whose launches are not known.
        for launches in [1, 2] {
            assert_eq!(part(launches, &whole[..5]), 200 + 200 + 500);
        }
        // As many kernels as runs, and yet not one of each run.
        assert_eq!(part(1, &[(0, 100), (200, 300), (1000, 1100)]), 200 + 400 + 500);
        // Of each run one of its two kernels.
        assert_eq!(part(2, &[(0, 100), (1000, 1100), (2000, 2100)]), 300 + 400 + 500);
    }
}
