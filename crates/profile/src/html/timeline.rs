//! The spans of a profile in rows, as the timeline draws them.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

use crate::{LaneKind, Profile, trace::ACTIVITY_LANE};

/// The most spans on a page. One takes about 15 bytes, so a page stays below 5 MB and opens immediately. If there are
/// more, the longest are shown.
const SPANS: usize = 250_000;

/// The lanes with their spans.
#[derive(Debug, Serialize)]
pub(super) struct Timeline<'a> {
    /// When the first span began.
    from: u64,
    /// When the last one ended.
    to: u64,
    lanes: Vec<Rows<'a>>,
    /// The names of spans, their layers and the bytes that they copied. No name if it is the layer's.
    labels: Vec<Label<'a>>,
    /// How many spans the lanes hold.
    shown: usize,
    /// The shortest of them, if others are left out.
    shortest: Option<u64>,
}

type Label<'a> = (Option<&'a str>, Option<usize>, Option<u64>);

#[derive(Debug, Serialize)]
struct Rows<'a> {
    name: &'a str,
    kind: LaneKind,
    /// Whether it shows a device's trace, in which a layer's work may be several kernels.
    is_activity: bool,
    /// Spans that do not overlap, in the order of time, three numbers each: the time since the end of the one before, how
    /// long it took, and its label.
    rows: Vec<Vec<u64>>,
}

pub(super) fn timeline(profile: &Profile) -> Timeline<'_> {
    with_at_most(SPANS, profile)
}

/// A span, or an entry of a device's trace, as it is drawn.
struct Drawn<'a> {
    lane: usize,
    parent: Option<usize>,
    start: u64,
    end: u64,
    label: Label<'a>,
}

impl Drawn<'_> {
    fn nanoseconds(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The spans, followed by the device's trace in an extra lane.
fn drawn(profile: &Profile) -> Vec<Drawn<'_>> {
    let spans = profile.spans.iter().map(|span| {
        let layer = span.work.and_then(|work| profile.works.get(work)).map(|work| work.layer.as_str());
        let name = (layer != Some(span.name.as_str())).then_some(span.name.as_str());
        let label = (name, span.work, span.copied.map(|copied| copied.bytes));
        Drawn { lane: span.lane, parent: span.parent, start: span.start, end: span.end, label }
    });
    let activity = profile.activity.iter().map(|activity| Drawn {
        lane: profile.lanes.len(),
        parent: None,
        start: activity.start,
        end: activity.end,
        label: (Some(&activity.name), activity.work, activity.bytes),
    });
    spans.chain(activity).collect()
}

fn with_at_most(most: usize, profile: &Profile) -> Timeline<'_> {
    let spans = drawn(profile);
    let mut numbers: Vec<usize> = (0..spans.len()).collect();
    let mut shortest = None;
    if numbers.len() > most {
        // A parent is at least as long as its children and comes before them, so it is never left out before them.
        numbers.sort_by_key(|&number| (Reverse(spans[number].nanoseconds()), number));
        numbers.truncate(most);
        shortest = numbers.last().map(|&number| spans[number].nanoseconds());
    }
    // The spans of a lane are in the order in which they were recorded, which for a device need not be chronological.
    numbers.sort_by_key(|&number| (spans[number].lane, spans[number].start, number));
    let from = spans.iter().map(|span| span.start).min().unwrap_or(0);
    let to = spans.iter().map(|span| span.end).max().unwrap_or(from);

    let mut labels = Labels::default();
    let mut rows_of_spans: HashMap<usize, usize> = HashMap::new();
    let mut lanes: Vec<Rows> = profile
        .lanes
        .iter()
        .map(|lane| Rows { name: &lane.name, kind: lane.kind, is_activity: false, rows: Vec::new() })
        .collect();
    lanes.push(Rows { name: ACTIVITY_LANE, kind: LaneKind::Device, is_activity: true, rows: Vec::new() });
    // When the last span of each row of each lane ended.
    let mut ends: Vec<Vec<u64>> = vec![Vec::new(); lanes.len()];
    for &number in &numbers {
        let span = &spans[number];
        let (Some(lane), Some(ends)) = (lanes.get_mut(span.lane), ends.get_mut(span.lane)) else { continue };
        let below = span.parent.and_then(|parent| rows_of_spans.get(&parent)).map_or(0, |row| row + 1);
        // Spans that overlap without one being part of the other get separate rows.
        let free = (below..ends.len()).find(|&row| ends[row] <= span.start).unwrap_or(ends.len().max(below));
        while ends.len() <= free {
            ends.push(from);
            lane.rows.push(Vec::new());
        }
        lane.rows[free].extend([span.start - ends[free], span.nanoseconds(), labels.number(span.label)]);
        ends[free] = span.end;
        rows_of_spans.insert(number, free);
    }
    lanes.retain(|lane| !lane.rows.is_empty());
    Timeline { from, to, lanes, labels: labels.labels, shown: numbers.len(), shortest }
}

#[derive(Default)]
struct Labels<'a> {
    labels: Vec<Label<'a>>,
    numbers: HashMap<Label<'a>, u64>,
}

impl<'a> Labels<'a> {
    fn number(&mut self, label: Label<'a>) -> u64 {
        *self.numbers.entry(label).or_insert_with(|| {
            self.labels.push(label);
            self.labels.len() as u64 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, ActivityKind, Lane, Span, Work};

    fn profile(spans: &[(Option<usize>, u64, u64)]) -> Profile {
        let span = |&(parent, start, end): &(Option<usize>, u64, u64)| Span {
            name: "conv".into(),
            lane: 0,
            parent,
            start,
            end,
            work: parent.map(|_| 0),
            copied: None,
        };
        Profile {
            lanes: vec![Lane { name: "gpu".into(), kind: LaneKind::Device }],
            works: vec![Work { layer: "conv".into(), ..Work::default() }],
            spans: spans.iter().map(span).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn children_lie_below_and_what_overlaps_beside() {
        let profile =
            profile(&[(None, 10, 30), (Some(0), 12, 15), (Some(0), 15, 30), (None, 20, 40), (None, 40, 41)]);
        let found = timeline(&profile);
        assert_eq!((found.from, found.to, found.shown, found.shortest), (10, 41, 5, None));
        assert_eq!(found.labels, [(Some("conv"), None, None), (None, Some(0), None)]);
        assert_eq!(found.lanes[0].rows, [vec![0, 20, 0, 10, 1, 0], vec![2, 3, 1, 0, 15, 1], vec![10, 20, 0]]);
    }

    #[test]
    fn of_too_many_the_longest_are_shown() {
        let profile =
            profile(&[(None, 0, 30), (Some(0), 0, 30), (Some(1), 0, 5), (Some(1), 5, 12), (None, 30, 31)]);
        let found = with_at_most(3, &profile);
        assert_eq!((found.shown, found.shortest, found.to), (3, Some(7), 31));
        assert_eq!(found.lanes[0].rows, [vec![0, 30, 0], vec![0, 30, 1], vec![5, 7, 1]]);
    }

    #[test]
    fn what_the_device_was_seen_to_do_is_a_lane_of_its_own() {
        let activity = |name: &str, kind, work, bytes, start, end| Activity {
            name: name.into(),
            kind,
            work,
            bytes,
            start,
            end,
        };
        let profile = Profile {
            activity: vec![
                // Because of a clock error it begins before the first span.
                activity("conv_wgmma", ActivityKind::Kernel, Some(0), None, 8, 20),
                activity("from the device", ActivityKind::Copy, None, Some(64), 19, 45),
            ],
            ..profile(&[(None, 10, 30)])
        };
        let found = timeline(&profile);
        assert_eq!((found.from, found.to, found.shown), (8, 45, 3));
        let [lane, seen] = &found.lanes[..] else { panic!("{found:?}") };
        assert_eq!((lane.is_activity, &lane.rows), (false, &vec![vec![2, 20, 0]]));
        assert_eq!((seen.name, seen.is_activity), (ACTIVITY_LANE, true));
        assert_eq!(seen.rows, [vec![0, 12, 1], vec![11, 26, 2]]);
        assert_eq!(
            found.labels[1..],
            [(Some("conv_wgmma"), Some(0), None), (Some("from the device"), None, Some(64))]
        );
    }

    #[test]
    fn an_empty_profile_has_no_lanes() {
        let profile = Profile::default();
        let found = timeline(&profile);
        assert!(found.lanes.is_empty() && found.from == 0 && found.to == 0);
    }
}
