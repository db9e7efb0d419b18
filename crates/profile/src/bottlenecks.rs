//! What limits a run, ranked by how much time fixing it would save.

use serde::Serialize;

use crate::{
    LaneKind, Profile, Span,
    groups::{By, Group, Limit, groups},
};

/// How close to a ceiling a group of layers must be to count as having reached it.
const REACHED: f64 = 0.7;

/// The share of a stage that must be spent outside of layers for the host to be its limit.
const IDLE: f64 = 0.5;

/// A stage of a run, and what limits it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub nanoseconds: u64,
    /// The part of that spent in layers, on the host or a device.
    pub layer_nanoseconds: u64,
    /// The part of that spent copying between host and device.
    pub copy_nanoseconds: u64,
    /// What limits it.
    pub limit: Limit,
}

/// Something that takes longer than it should.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// Layers of one kind, or the part of a stage in which no layer ran.
    pub what: String,
    /// What limits it.
    pub limit: Limit,
    /// How long it takes.
    pub nanoseconds: u64,
    /// The time that a perfect kernel, or a host that never makes the device wait, would save.
    pub saving_nanoseconds: f64,
    /// What to do about it.
    pub advice: String,
}

/// The parts of the outermost span of the busiest thread, and what limits each.
pub fn stages(profile: &Profile) -> Vec<Stage> {
    let Some((root, _)) = outermost(profile) else { return Vec::new() };
    let parts = profile.spans.iter().filter(|span| span.parent == Some(root));
    let mut stages: Vec<(String, Vec<&Span>)> = Vec::new();
    for span in parts {
        match stages.iter_mut().find(|(name, _)| *name == span.name) {
            Some((_, spans)) => spans.push(span),
            None => stages.push((span.name.clone(), vec![span])),
        }
    }
    stages.into_iter().map(|(name, spans)| stage(profile, name, &spans)).collect()
}

/// The span whose parts are the stages: the longest outermost span of a thread.
pub(crate) fn outermost(profile: &Profile) -> Option<(usize, &Span)> {
    let hosts = profile.spans.iter().enumerate().filter(|(_, span)| {
        span.parent.is_none() && profile.lanes.get(span.lane).is_some_and(|lane| lane.kind == LaneKind::Host)
    });
    hosts.max_by_key(|(_, span)| span.nanoseconds())
}

fn stage(profile: &Profile, name: String, parts: &[&Span]) -> Stage {
    let overlap = |span: &Span| -> u64 {
        parts.iter().map(|part| span.end.min(part.end).saturating_sub(span.start.max(part.start))).sum()
    };
    let nanoseconds = parts.iter().map(|part| part.nanoseconds()).sum();
    let (mut layers, mut copies) = (0, 0);
    let mut limits: Vec<(Limit, u64)> = Vec::new();
    for span in &profile.spans {
        let work = span.work.and_then(|work| profile.works.get(work));
        let within = if work.is_some() || span.copied.is_some() { overlap(span) } else { 0 };
        match work {
            Some(work) => {
                layers += within;
                let Some(ceilings) = &profile.machine.ceilings else { continue };
                let limit = ceilings.floor(work).limit;
                match limits.iter_mut().find(|(known, _)| *known == limit) {
                    Some((_, sum)) => *sum += within,
                    None => limits.push((limit, within)),
                }
            }
            None => copies += within,
        }
    }
    let most = limits.into_iter().max_by_key(|&(_, sum)| sum).map(|(limit, _)| limit);
    let limit = match most {
        _ if copies as f64 > IDLE * nanoseconds as f64 => Limit::Copies,
        Some(limit) if layers as f64 >= (1.0 - IDLE) * nanoseconds as f64 => limit,
        _ => Limit::Host,
    };
    Stage { name, nanoseconds, layer_nanoseconds: layers, copy_nanoseconds: copies, limit }
}

/// What takes longer than it should, the largest possible saving first. Empty if the device's ceilings are not known.
pub fn bottlenecks(profile: &Profile) -> Vec<Bottleneck> {
    if profile.machine.ceilings.is_none() {
        return Vec::new();
    }
    let mut found: Vec<Bottleneck> = groups(profile, By::Op).iter().filter_map(of_group).collect();
    found.extend(stages(profile).iter().filter_map(of_stage));
    found.retain(|bottleneck| bottleneck.saving_nanoseconds > 0.0);
    found.sort_by(|a, b| b.saving_nanoseconds.total_cmp(&a.saving_nanoseconds));
    found
}

fn of_group(group: &Group) -> Option<Bottleneck> {
    let (limit, efficiency) = (group.limit?, group.efficiency()?);
    let percent = (100.0 * efficiency).round();
    let advice = match limit {
        Limit::Compute if efficiency >= REACHED => format!(
            "runs at {percent} % of the device's peak FLOP/s: only less arithmetic helps, such as fewer steps, a smaller clip or a \
             narrower number format"
        ),
        Limit::Compute => format!(
            "is compute-bound and reaches {percent} % of the device's peak: a kernel that fits these shapes better would save time"
        ),
        Limit::Bandwidth if efficiency >= REACHED => format!(
            "runs at {percent} % of the memory bandwidth: fuse it with a neighbour, so that its data is not written \
             and read again"
        ),
        Limit::Bandwidth => format!(
            "is memory-bound and reaches {percent} % of the bandwidth: wider and more sequential accesses \
             would save time"
        ),
        Limit::Launch | Limit::Host | Limit::Copies => format!(
            "ran {} times and is too small to fill the device: fuse it with a neighbour, or run more of it at once",
            group.runs
        ),
    };
    Some(Bottleneck {
        what: format!("{} in {}", group.name, group.program),
        limit,
        nanoseconds: group.nanoseconds,
        saving_nanoseconds: group.saving_nanoseconds()?,
        advice,
    })
}

/// The bottlenecks of a stage outside of layers: copies, and time in which nothing ran on the device.
fn of_stage(stage: &Stage) -> Option<Bottleneck> {
    let outside = stage.nanoseconds.saturating_sub(stage.layer_nanoseconds + stage.copy_nanoseconds);
    let (what, nanoseconds, limit, advice) = if stage.limit == Limit::Copies {
        let advice =
            "copies between host and device: keep the data on the device, or copy while the device computes";
        (format!("copies in {}", stage.name), stage.copy_nanoseconds, Limit::Copies, advice)
    } else if outside > 0 {
        let advice = "no layer runs during this time: overlap it with the device's work, do it once for several clips, or avoid it";
        (format!("host in {}", stage.name), outside, Limit::Host, advice)
    } else {
        return None;
    };
    let saving_nanoseconds = nanoseconds as f64;
    Some(Bottleneck { what, limit, nanoseconds, saving_nanoseconds, advice: advice.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ceilings, Copied, Direction, Lane, Machine, Work};

    fn profile() -> Profile {
        let ceilings = Ceilings { flops_per_second: 1e12, bytes_per_second: 1e11, launch_nanoseconds: 100.0 };
        let work = |op: &str, flops, bytes| Work {
            program: "unet".into(),
            layer: op.into(),
            op: op.into(),
            flops,
            bytes,
            ..Work::default()
        };
        let span = |name: &str, lane, parent, start, end, work| Span {
            name: name.into(),
            lane,
            parent,
            start,
            end,
            work,
            copied: None,
        };
        let copied = Some(Copied { direction: Direction::FromDevice, bytes: 1 << 20 });
        let lane = |name: &str, kind| Lane { name: name.into(), kind };
        Profile {
            machine: Machine { device: "gpu".into(), ceilings: Some(ceilings) },
            lanes: vec![lane("main", LaneKind::Host), lane("stream", LaneKind::Device)],
            works: vec![work("conv", 3_000_000, 10), work("norm", 10, 100_000), work("add", 0, 0)],
            spans: vec![
                span("clip", 0, None, 0, 40_000, None),
                span("load", 0, Some(0), 0, 20_000, None),
                span("denoise", 0, Some(0), 20_000, 35_000, None),
                span("step", 1, None, 21_000, 34_000, None),
                span("conv", 1, Some(3), 21_000, 31_000, Some(0)),
                span("norm", 1, Some(3), 31_000, 32_000, Some(1)),
                span("add", 1, Some(3), 32_000, 34_000, Some(2)),
                Span { copied, ..span("results", 1, None, 35_000, 39_000, None) },
                span("read", 0, Some(0), 35_000, 39_000, None),
            ],
            ..Profile::default()
        }
    }

    #[test]
    fn every_stage_has_a_limit() {
        let limits: Vec<_> = stages(&profile()).into_iter().map(|s| (s.name, s.limit)).collect();
        let expected = [("load", Limit::Host), ("denoise", Limit::Compute), ("read", Limit::Copies)];
        assert_eq!(limits, expected.map(|(name, limit)| (name.to_owned(), limit)));
        assert_eq!(stages(&Profile::default()), []);
    }

    #[test]
    fn what_would_save_the_most_comes_first() {
        let found = bottlenecks(&profile());
        let ranked: Vec<_> = found.iter().map(|b| (b.what.as_str(), b.saving_nanoseconds)).collect();
        assert_eq!(
            ranked,
            [
                ("host in load", 20_000.0),
                ("conv in unet", 7000.0),
                ("copies in read", 4000.0),
                ("host in denoise", 2000.0),
                ("add in unet", 1900.0),
            ]
        );
        // A layer at its floor is not a bottleneck.
        assert!(!ranked.iter().any(|(what, _)| what.starts_with("norm")));
        assert!(found[1].advice.contains("30 %") && found[1].limit == Limit::Compute, "{found:?}");
        assert!(found[4].advice.contains("too small"), "{found:?}");
        let unknown = Profile { machine: Machine::default(), ..profile() };
        assert_eq!(bottlenecks(&unknown), []);
    }
}
