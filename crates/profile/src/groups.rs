//! The layers of a profile, grouped and compared with the machine's ceilings.
//!
//! Grouped by network, kind of op or layer, a run of a layer takes as long as its span; bottlenecks and comparisons,
//! which are by kind and layer, count the same way. Grouped by kernel, it takes as long as its kernels
//! [ran](crate::kernel_times).

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::{Ceilings, LaneKind, Profile, Work, kernel_times::KernelRuns};

/// What layers are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The network.
    Program,
    /// The network and the kind of op.
    Op,
    /// The network and the layer.
    Layer,
    /// The kernel. If a layer has several kernels and they were traced, the gaps between them do not count.
    Kernel,
}

impl By {
    /// What the layers of a group share: a name, and the network unless layers are grouped by kernel.
    pub(crate) fn key(self, work: &Work) -> (&str, &str) {
        match self {
            By::Program => (&work.program, &work.program),
            By::Op => (&work.program, &work.op),
            By::Layer => (&work.program, &work.layer),
            By::Kernel => ("", work.kernel.as_deref().unwrap_or(&work.op)),
        }
    }
}

/// What keeps something from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Arithmetic.
    Compute,
    /// Memory.
    Bandwidth,
    /// The launch of each layer.
    Launch,
    /// The host's own work between layers.
    Host,
    /// Copies between host and device.
    Copies,
}

impl Limit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Compute => "compute",
            Limit::Bandwidth => "bandwidth",
            Limit::Launch => "launch",
            Limit::Host => "host",
            Limit::Copies => "copies",
        }
    }
}

/// The minimum time of a layer, and what determines it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Nanoseconds of one run.
    pub nanoseconds: f64,
    /// What determines it.
    pub limit: Limit,
}

impl Ceilings {
    /// The minimum time of a layer on this device: that of its arithmetic, its bytes, or its launch.
    pub fn floor(&self, work: &Work) -> Floor {
        let at = |amount: u64, per_second: f64| {
            if amount == 0 { 0.0 } else { amount as f64 / per_second * 1e9 }
        };
        let launch = self.launch_nanoseconds * work.launches.max(1) as f64;
        let floors = [
            (at(work.flops, self.flops_per_second), Limit::Compute),
            (at(work.bytes, self.bytes_per_second), Limit::Bandwidth),
            (launch, Limit::Launch),
        ];
        let largest = floors.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        let (nanoseconds, limit) = largest.unwrap_or((0.0, Limit::Launch));
        Floor { nanoseconds, limit }
    }
}

/// Layers that have something in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The network; empty if layers are grouped by kernel.
    pub program: String,
    /// What they have in common.
    pub name: String,
    /// Runs of layers.
    pub runs: u64,
    /// Their total time: of their spans or, grouped by kernel, of their kernels.
    pub nanoseconds: u64,
    /// Floating-point operations of all runs.
    pub flops: u64,
    /// Bytes of all runs.
    pub bytes: u64,
    /// What perfect kernels would take, if the device's ceilings are known.
    pub floor_nanoseconds: Option<f64>,
    /// What determines most of that.
    pub limit: Option<Limit>,
}

impl Group {
    /// Floating-point operations per second.
    pub fn flops_per_second(&self) -> f64 {
        per_second(self.flops, self.nanoseconds)
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.nanoseconds)
    }

    /// How close to the minimum time the layers are: 1 is perfect.
    pub fn efficiency(&self) -> Option<f64> {
        let floor = self.floor_nanoseconds?;
        (self.nanoseconds > 0).then(|| floor / self.nanoseconds as f64)
    }

    /// What perfect kernels would save.
    pub fn saving_nanoseconds(&self) -> Option<f64> {
        Some((self.nanoseconds as f64 - self.floor_nanoseconds?).max(0.0))
    }
}

fn per_second(amount: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 { 0.0 } else { amount as f64 / nanoseconds as f64 * 1e9 }
}

/// The runs of layers, in order: the layer, and how many nanoseconds count for this grouping.
pub(crate) fn runs(profile: &Profile, by: By) -> impl Iterator<Item = (&Work, u64)> {
    let kernels = (by == By::Kernel).then(|| KernelRuns::of(profile));
    profile.spans.iter().enumerate().filter_map(move |(number, span)| {
        let work = profile.works.get(span.work?)?;
        let taken = kernels.as_ref().map_or_else(|| span.nanoseconds(), |ran| ran.nanoseconds(number, span));
        Some((work, taken))
    })
}

/// Groups the layers that ran, the longest total first.
pub fn groups(profile: &Profile, by: By) -> Vec<Group> {
    let ceilings = profile.machine.ceilings;
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    let mut groups: Vec<(Group, BTreeMap<Limit, f64>)> = Vec::new();
    for (work, taken) in runs(profile, by) {
        let (program, name) = by.key(work);
        let place = *places.entry((program, name)).or_insert_with(|| {
            let group = Group {
                program: program.to_owned(),
                name: name.to_owned(),
                runs: 0,
                nanoseconds: 0,
                flops: 0,
                bytes: 0,
                floor_nanoseconds: ceilings.map(|_| 0.0),
                limit: None,
            };
            groups.push((group, BTreeMap::new()));
            groups.len() - 1
        });
        let (group, limits) = &mut groups[place];
        group.runs += 1;
        group.nanoseconds = group.nanoseconds.saturating_add(taken);
        group.flops = group.flops.saturating_add(work.flops);
        group.bytes = group.bytes.saturating_add(work.bytes);
        if let (Some(ceilings), Some(sum)) = (ceilings, &mut group.floor_nanoseconds) {
            let Floor { nanoseconds, limit } = ceilings.floor(work);
            // A launch that overlaps other layers costs less than a single launch, and nothing in a trace: what took
            // less than one launch has nothing to save there.
            let least = if limit == Limit::Launch { nanoseconds.min(taken as f64) } else { nanoseconds };
            *sum += least;
            *limits.entry(limit).or_default() += least;
        }
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|(group, limits)| {
            let most = limits.into_iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
            Group { limit: most.map(|(limit, _)| limit), ..group }
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.nanoseconds));
    groups
}

/// The total span time of all layers in lanes of one kind.
pub fn layer_nanoseconds(profile: &Profile, kind: LaneKind) -> u64 {
    let layers = profile.spans.iter().filter(|span| span.work.is_some());
    layers.filter(|span| profile.lanes[span.lane].kind == kind).map(crate::Span::nanoseconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, Machine, Span};

    const CEILINGS: Ceilings =
        Ceilings { flops_per_second: 1e12, bytes_per_second: 1e11, launch_nanoseconds: 100.0 };

    fn work(op: &str, layer: &str, flops: u64, bytes: u64) -> Work {
        let text = str::to_owned;
        Work { program: "unet".into(), layer: text(layer), op: text(op), flops, bytes, ..Work::default() }
    }

    /// Runs of layers, each with its start and its end.
    fn profile(works: Vec<Work>, runs: &[(usize, u64, u64)]) -> Profile {
        let span = |&(work, start, end): &_| Span {
            name: String::new(),
            lane: 0,
            parent: None,
            start,
            end,
            work: Some(work),
            copied: None,
        };
        let machine = Machine { device: "x".into(), ceilings: Some(CEILINGS) };
        let lanes = vec![Lane { name: "main".into(), kind: LaneKind::Host }];
        Profile { machine, lanes, works, spans: runs.iter().map(span).collect(), ..Profile::default() }
    }

    #[test]
    fn a_layer_that_took_less_than_its_launch_is_as_fast_as_can_be() {
        let profile =
            profile(vec![work("lookup", "a", 0, 8), work("lookup", "b", 0, 8)], &[(0, 0, 40), (1, 100, 400)]);
        let by_layer = groups(&profile, By::Layer);
        let [b, a] = &by_layer[..] else { panic!("{by_layer:?}") };
        assert_eq!(
            (a.efficiency(), a.saving_nanoseconds(), a.limit),
            (Some(1.0), Some(0.0), Some(Limit::Launch))
        );
        assert_eq!((b.floor_nanoseconds, b.saving_nanoseconds()), (Some(100.0), Some(200.0)));
    }

    #[test]
    fn the_floor_is_the_largest_of_three() {
        let floor = |flops, bytes| CEILINGS.floor(&work("conv", "c", flops, bytes));
        assert_eq!(floor(1_000_000, 10), Floor { nanoseconds: 1000.0, limit: Limit::Compute });
        assert_eq!(floor(10, 1_000_000), Floor { nanoseconds: 10_000.0, limit: Limit::Bandwidth });
        assert_eq!(floor(0, 0), Floor { nanoseconds: 100.0, limit: Limit::Launch });
    }

    #[test]
    fn groups_add_up_and_the_longest_comes_first() {
        let works = vec![
            work("norm", "norm1", 1000, 100_000),
            work("conv", "conv1", 4_000_000, 1000),
            work("conv", "conv2", 2_000_000, 1000),
        ];
        let profile =
            profile(works, &[(0, 0, 4000), (1, 4000, 9000), (2, 9000, 12_000), (1, 12_000, 17_000)]);
        let by_op = groups(&profile, By::Op);
        let [conv, norm] = &by_op[..] else { panic!("{by_op:?}") };
        assert_eq!((conv.name.as_str(), conv.runs, conv.nanoseconds), ("conv", 3, 13_000));
        assert_eq!((conv.flops, conv.limit), (10_000_000, Some(Limit::Compute)));
        assert_eq!(conv.floor_nanoseconds, Some(10_000.0));
        assert_eq!(conv.saving_nanoseconds(), Some(3000.0));
        assert_eq!(norm.limit, Some(Limit::Bandwidth));
        assert_eq!(norm.efficiency(), Some(0.25));
        assert_eq!(norm.bytes_per_second(), 2.5e10);
        let names = |by| groups(&profile, by).into_iter().map(|group| group.name).collect::<Vec<_>>();
        assert_eq!(names(By::Layer), ["conv1", "norm1", "conv2"]);
        assert_eq!(names(By::Program), ["unet"]);
        assert_eq!(names(By::Kernel), ["conv", "norm"]);
        assert_eq!(layer_nanoseconds(&profile, LaneKind::Host), 17_000);
        assert_eq!(layer_nanoseconds(&profile, LaneKind::Device), 0);
        let unknown = Profile { machine: Machine::default(), ..profile };
        assert_eq!(groups(&unknown, By::Op)[0].efficiency(), None);
    }
}
