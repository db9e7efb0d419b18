//! The steps of a run: how long each took by the host's clock, and how much of that was layers, copies and launching.
//!
//! On a GPU that is not traced, a layer's time is measured between two events, one before it and one after it, so the
//! layers of a step leave no gaps: if the GPU waits for its next launch, it waits within that layer's time. The sum of
//! the layers is therefore close to a step's time whether the GPU was busy or not. On a traced GPU, a layer takes as
//! long as its kernels, and waiting counts for the step. Two other figures tell these apart: how long the device ran
//! anything at all, if it was traced, and how long the host took to submit the launches, which is as long as the step
//! if launches are slow or the driver's queue is full.

use serde::Serialize;

use crate::{LaneKind, Profile, Span};

/// The name of a step's span: in the host's lane from the previous step's results to its own, in a device's lane from
/// its first layer to its last.
pub const STEP: &str = "step";

/// The name of the span in which the host submits launches to a device.
pub const LAUNCHES: &str = "launches";

/// A step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The span that it was a part of.
    pub stage: Option<String>,
    /// How long it took by the host's clock, from the previous step's results to its own.
    pub nanoseconds: u64,
    /// The part of that spent in layers, on the host or a device.
    pub layer_nanoseconds: u64,
    /// The part of that spent copying between host and device.
    pub copy_nanoseconds: u64,
    /// The part of that in which the host submitted launches, of this step or the next.
    pub launch_nanoseconds: u64,
    /// The part of that in which the device ran anything, if it was traced.
    pub active_nanoseconds: Option<u64>,
}

/// The steps, in order.
pub fn steps(profile: &Profile) -> Vec<Step> {
    let spans = |chosen: fn(&Span) -> bool| {
        let chosen = profile.spans.iter().filter(|span| chosen(span));
        Intervals::new(chosen.map(|span| (span.start, span.end)))
    };
    let layers = spans(|span| span.work.is_some());
    let copies = spans(|span| span.copied.is_some());
    let launches = spans(|span| span.name == LAUNCHES);
    let active = Intervals::merged(profile.activity.iter().map(|activity| (activity.start, activity.end)));
    let is_host = |span: &&Span| profile.lanes.get(span.lane).is_some_and(|lane| lane.kind == LaneKind::Host);
    profile
        .spans
        .iter()
        .filter(|span| span.name == STEP)
        .filter(is_host)
        .map(|span| Step {
            stage: span.parent.and_then(|parent| Some(profile.spans.get(parent)?.name.clone())),
            nanoseconds: span.nanoseconds(),
            layer_nanoseconds: layers.within(span),
            copy_nanoseconds: copies.within(span),
            launch_nanoseconds: launches.within(span),
            active_nanoseconds: (!profile.activity.is_empty()).then(|| active.within(span)),
        })
        .collect()
}

/// Intervals of time, in the order in which they begin.
struct Intervals {
    pieces: Vec<(u64, u64)>,
    longest: u64,
}

impl Intervals {
    fn new(pieces: impl Iterator<Item = (u64, u64)>) -> Intervals {
        let mut pieces: Vec<(u64, u64)> = pieces.collect();
        pieces.sort_unstable();
        let longest = pieces.iter().map(|(start, end)| end - start).max().unwrap_or(0);
        Intervals { pieces, longest }
    }

    /// Merges overlapping intervals: time in which several things ran is counted once.
    fn merged(pieces: impl Iterator<Item = (u64, u64)>) -> Intervals {
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in Intervals::new(pieces).pieces {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Intervals::new(merged.into_iter())
    }

    /// How much of them lies within a span.
    fn within(&self, span: &Span) -> u64 {
        // An interval that begins more than the longest length before the span has ended before it.
        let from = span.start.saturating_sub(self.longest);
        let first = self.pieces.partition_point(|&(start, _)| start < from);
        let pieces = self.pieces[first..].iter().take_while(|&&(start, _)| start < span.end);
        pieces.map(|&(start, end)| end.min(span.end).saturating_sub(start.max(span.start))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, ActivityKind, Copied, Direction, Lane, Work};

    #[test]
    fn a_step_has_what_lies_within_it() {
        let span = |name: &str, lane, parent, start, end| Span {
            name: name.into(),
            lane,
            parent,
            start,
            end,
            work: None,
            copied: None,
        };
        let layer = |parent, start, end| Span { work: Some(0), ..span("conv", 1, Some(parent), start, end) };
        let copied = Some(Copied { direction: Direction::FromDevice, bytes: 8 });
        let kernel = |start, end| Activity {
            name: "k".into(),
            kind: ActivityKind::Kernel,
            work: Some(0),
            bytes: None,
            start,
            end,
        };
        let lane = |name: &str, kind| Lane { name: name.into(), kind };
        let profile = Profile {
            lanes: vec![lane("main", LaneKind::Host), lane("GPU", LaneKind::Device)],
            works: vec![Work { layer: "conv".into(), ..Work::default() }],
            spans: vec![
                span("denoise", 0, None, 0, 1000),
                span(STEP, 0, Some(0), 100, 500),
                span(LAUNCHES, 0, Some(1), 100, 150),
                span(STEP, 0, Some(0), 500, 1000),
                // The first layer of the second step begins before the host has seen the results of the first.
                span(STEP, 1, None, 110, 450),
                layer(4, 110, 300),
                layer(4, 300, 450),
                Span { copied, ..span("results", 1, None, 450, 480) },
                span(STEP, 1, None, 490, 900),
                layer(8, 490, 900),
            ],
            // The last two overlap.
            activity: vec![kernel(120, 280), kernel(310, 440), kernel(495, 600), kernel(550, 890)],
            ..Profile::default()
        };
        profile.check().unwrap();
        let found = steps(&profile);
        let step = |nanoseconds, layer_nanoseconds, copy_nanoseconds, launch_nanoseconds, active| Step {
            stage: Some("denoise".into()),
            nanoseconds,
            layer_nanoseconds,
            copy_nanoseconds,
            launch_nanoseconds,
            active_nanoseconds: active,
        };
        assert_eq!(found, [step(400, 350, 30, 50, Some(160 + 130 + 5)), step(500, 400, 0, 0, Some(390))]);
        let untraced = Profile { activity: Vec::new(), ..profile };
        assert_eq!(steps(&untraced)[1], step(500, 400, 0, 0, None));
        assert_eq!(steps(&Profile::default()), []);
    }
}
