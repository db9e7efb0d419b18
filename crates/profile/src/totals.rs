//! The spans of a profile added up by name.

use std::collections::HashMap;

use serde::Serialize;

use crate::{Profile, Span};

/// What a lane did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneTotals {
    /// The lane's number.
    pub lane: usize,
    /// Its outermost spans by name, in the order in which they first began.
    pub totals: Vec<Total>,
}

/// All spans of a name within all spans of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Total {
    /// The name.
    pub name: String,
    /// How many there were.
    pub count: u64,
    /// Their total time.
    pub nanoseconds: u64,
    /// The part of that in none of the spans within them.
    pub own_nanoseconds: u64,
    /// The spans within them by name, in the order in which they first began.
    pub children: Vec<Total>,
}

/// Adds up the spans of every lane that has any.
pub fn totals(profile: &Profile) -> Vec<LaneTotals> {
    let mut children: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    for (number, span) in profile.spans.iter().enumerate() {
        children.entry(span.parent).or_default().push(number);
    }
    let roots = children.get(&None).map_or(&[][..], Vec::as_slice);
    let of_lane = |lane: usize| {
        let roots: Vec<usize> =
            roots.iter().copied().filter(|&number| profile.spans[number].lane == lane).collect();
        LaneTotals { lane, totals: add_up(&profile.spans, &children, &roots) }
    };
    (0..profile.lanes.len()).map(of_lane).filter(|lane| !lane.totals.is_empty()).collect()
}

fn add_up(spans: &[Span], children: &HashMap<Option<usize>, Vec<usize>>, numbers: &[usize]) -> Vec<Total> {
    let mut names: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for &number in numbers {
        let name = spans[number].name.as_str();
        let place = *places.entry(name).or_insert_with(|| {
            names.push((name, Vec::new()));
            names.len() - 1
        });
        names[place].1.push(number);
    }
    let total = |(name, numbers): (&str, Vec<usize>)| {
        let within: Vec<usize> =
            numbers.iter().filter_map(|&number| children.get(&Some(number))).flatten().copied().collect();
        let sum = |numbers: &[usize]| numbers.iter().map(|&number| spans[number].nanoseconds()).sum::<u64>();
        let nanoseconds = sum(&numbers);
        Total {
            name: name.to_owned(),
            count: numbers.len() as u64,
            nanoseconds,
            // Spans of a lane follow each other: those within one never take longer than it.
            own_nanoseconds: nanoseconds - sum(&within),
            children: add_up(spans, children, &within),
        }
    };
    names.into_iter().map(total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, LaneKind};

    #[test]
    fn spans_of_a_name_are_one_total() {
        let span = |name: &str, parent, start, end| Span {
            name: name.to_owned(),
            lane: 1,
            parent,
            start,
            end,
            work: None,
            copied: None,
        };
        let lane = |name: &str| Lane { name: name.to_owned(), kind: LaneKind::Host };
        let spans = vec![
            span("step", None, 0, 10),
            span("conv", Some(0), 1, 5),
            span("norm", Some(0), 5, 6),
            span("conv", Some(0), 6, 9),
            span("step", None, 10, 30),
            span("conv", Some(4), 10, 29),
        ];
        let profile = Profile { lanes: vec![lane("idle"), lane("busy")], spans, ..Profile::default() };
        let [LaneTotals { lane: 1, totals }] = &totals(&profile)[..] else { panic!("one lane has spans") };
        let [step] = &totals[..] else { panic!("{totals:?}") };
        assert_eq!((step.count, step.nanoseconds, step.own_nanoseconds), (2, 30, 3));
        let children: Vec<_> =
            step.children.iter().map(|t| (t.name.as_str(), t.count, t.nanoseconds)).collect();
        assert_eq!(children, [("conv", 3, 26), ("norm", 1, 1)]);
    }
}
