//! The spans of a profile in rows, as the timeline draws them.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

use crate::{LaneKind, Profile};

/// How many spans a page holds. One is about 15 bytes, so that a page stays below 5 MB and opens at once; of more, those
/// that took the longest are shown.
const SPANS: usize = 250_000;

/// The lanes with their spans.
#[derive(Debug, Serialize)]
pub(super) struct Timeline<'a> {
    /// When the first span began.
    from: u64,
    /// When the last one ended.
    to: u64,
    lanes: Vec<Rows<'a>>,
    /// What spans are called, and their layers. No name where it is the layer's.
    labels: Vec<(Option<&'a str>, Option<usize>)>,
    /// How many spans the lanes hold.
    shown: usize,
    /// The shortest of them, where others are left out.
    shortest: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Rows<'a> {
    name: &'a str,
    kind: LaneKind,
    /// Spans that do not overlap, in the order of time, three numbers each: the time since the end of the one before, how
    /// long it took, and its label.
    rows: Vec<Vec<u64>>,
}

pub(super) fn timeline(profile: &Profile) -> Timeline<'_> {
    with_at_most(SPANS, profile)
}

fn with_at_most(most: usize, profile: &Profile) -> Timeline<'_> {
    let spans = &profile.spans;
    let mut numbers: Vec<usize> = (0..spans.len()).collect();
    let mut shortest = None;
    if numbers.len() > most {
        // A parent is no shorter than its children and comes before them: it is not left out before they are.
        numbers.sort_by_key(|&number| (Reverse(spans[number].nanoseconds()), number));
        numbers.truncate(most);
        shortest = numbers.last().map(|&number| spans[number].nanoseconds());
    }
    // The spans of a lane are in the order in which they were noted, which for a device need not be that of their times.
    numbers.sort_by_key(|&number| (spans[number].lane, spans[number].start, number));
    let from = spans.iter().map(|span| span.start).min().unwrap_or(0);

    let mut labels = Labels::default();
    let mut rows_of_spans: HashMap<usize, usize> = HashMap::new();
    let mut lanes: Vec<Rows> = profile
        .lanes
        .iter()
        .map(|lane| Rows { name: &lane.name, kind: lane.kind, rows: Vec::new() })
        .collect();
    // When the last span of each row of each lane ended.
    let mut ends: Vec<Vec<u64>> = vec![Vec::new(); lanes.len()];
    for &number in &numbers {
        let span = &spans[number];
        let (Some(lane), Some(ends)) = (lanes.get_mut(span.lane), ends.get_mut(span.lane)) else { continue };
        let below = span.parent.and_then(|parent| rows_of_spans.get(&parent)).map_or(0, |row| row + 1);
        // Spans that overlap without one being part of the other lie in rows of their own.
        let free = (below..ends.len()).find(|&row| ends[row] <= span.start).unwrap_or(ends.len().max(below));
        while ends.len() <= free {
            ends.push(from);
            lane.rows.push(Vec::new());
        }
        lane.rows[free].extend([span.start - ends[free], span.nanoseconds(), labels.number(profile, number)]);
        ends[free] = span.end;
        rows_of_spans.insert(number, free);
    }
    lanes.retain(|lane| !lane.rows.is_empty());
    Timeline {
        from,
        to: from + profile.duration(),
        lanes,
        labels: labels.labels,
        shown: numbers.len(),
        shortest,
    }
}

#[derive(Default)]
struct Labels<'a> {
    labels: Vec<(Option<&'a str>, Option<usize>)>,
    numbers: HashMap<(Option<&'a str>, Option<usize>), u64>,
}

impl<'a> Labels<'a> {
    fn number(&mut self, profile: &'a Profile, span: usize) -> u64 {
        let span = &profile.spans[span];
        let layer = span.work.and_then(|work| profile.works.get(work)).map(|work| work.layer.as_str());
        let label = ((layer != Some(span.name.as_str())).then_some(span.name.as_str()), span.work);
        *self.numbers.entry(label).or_insert_with(|| {
            self.labels.push(label);
            self.labels.len() as u64 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, Span, Work};

    fn profile(spans: &[(Option<usize>, u64, u64)]) -> Profile {
        let span = |&(parent, start, end): &(Option<usize>, u64, u64)| Span {
            name: "conv".into(),
            lane: 0,
            parent,
            start,
            end,
            work: parent.map(|_| 0),
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
        assert_eq!(found.labels, [(Some("conv"), None), (None, Some(0))]);
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
    fn an_empty_profile_has_no_lanes() {
        let profile = Profile::default();
        let found = timeline(&profile);
        assert!(found.lanes.is_empty() && found.from == 0 && found.to == 0);
    }
}
