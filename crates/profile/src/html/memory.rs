//! Who held how much memory, moment by moment.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

use crate::Profile;

/// The most moments on a page, and the most owners with a colour of their own.
const MOMENTS: usize = 2000;
const OWNERS: usize = 9;

/// The memory of a run. Without samples there are no moments.
#[derive(Debug, Serialize)]
pub(super) struct Memory<'a> {
    /// The owner that held the most first.
    owners: Vec<&'a str>,
    /// How many owners share the last line of every moment; 0 if all have their own.
    others: usize,
    moments: Vec<u64>,
    /// The bytes of each owner at the moments, those of the others last.
    held: Vec<Vec<u64>>,
    /// Whether each moment represents the samples around it; it is then the one with the most memory.
    is_thinned: bool,
}

pub(super) fn memory(profile: &Profile) -> Memory<'_> {
    with_at_most(MOMENTS, OWNERS, profile)
}

fn with_at_most(moments: usize, owners: usize, profile: &Profile) -> Memory<'_> {
    let samples = &profile.memory;
    let mut most: HashMap<&str, u64> = HashMap::new();
    for sample in samples {
        let most = most.entry(&sample.owner).or_default();
        *most = sample.bytes.max(*most);
    }
    let mut order: Vec<(&str, u64)> = most.into_iter().collect();
    order.sort_by_key(|&(owner, most)| (Reverse(most), owner));
    // A single remaining owner is shown under its own name in the same space.
    let named = if order.len() > owners + 1 { owners } else { order.len() };
    let places: HashMap<&str, usize> =
        order.iter().enumerate().map(|(place, &(owner, _))| (owner, place)).collect();

    let first = samples.first().map_or(0, |sample| sample.at);
    let length = samples.last().map_or(0, |sample| sample.at - first);
    let mut times: Vec<u64> = samples.iter().map(|sample| sample.at).collect();
    times.dedup();
    let is_thinned = times.len() > moments;
    // What is shown once: a moment or, if there are too many, an interval.
    let place = |at: u64| match is_thinned {
        true => u128::from(at - first) * moments as u128 / (u128::from(length) + 1),
        false => u128::from(at),
    };

    let mut memory = Memory {
        owners: order[..named].iter().map(|&(owner, _)| owner).collect(),
        others: order.len() - named,
        moments: Vec::new(),
        held: vec![Vec::new(); named + usize::from(order.len() > named)],
        is_thinned,
    };
    let mut now = vec![0; order.len()];
    let mut sum = 0;
    for (number, sample) in samples.iter().enumerate() {
        let held = &mut now[places[sample.owner.as_str()]];
        sum = sum - *held + sample.bytes;
        *held = sample.bytes;
        let is_first = number == 0 || place(samples[number - 1].at) != place(sample.at);
        // The last sample of a moment says what is held from then on; of an interval, the largest sum matters.
        let last = memory.held.iter().filter_map(|owner| owner.last()).sum::<u64>();
        if is_first {
            memory.moments.push(sample.at);
            memory.held.iter_mut().for_each(|owner| owner.push(0));
        } else if is_thinned && sum <= last {
            continue;
        }
        if let Some(moment) = memory.moments.last_mut() {
            *moment = sample.at;
        }
        for (owner, line) in memory.held.iter_mut().enumerate() {
            let bytes = if owner < named { now[owner] } else { now[named..].iter().sum() };
            if let Some(last) = line.last_mut() {
                *last = bytes;
            }
        }
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySample;

    fn profile(samples: &[(u64, &str, u64)]) -> Profile {
        let sample =
            |&(at, owner, bytes): &(u64, &str, u64)| MemorySample { at, owner: owner.to_owned(), bytes };
        Profile { memory: samples.iter().map(sample).collect(), ..Profile::default() }
    }

    #[test]
    fn every_moment_has_the_bytes_of_every_owner() {
        let profile = profile(&[(0, "weights", 10), (0, "arena", 5), (3, "weights", 0), (4, "arena", 12)]);
        let found = memory(&profile);
        assert_eq!(found.owners, ["arena", "weights"]);
        assert_eq!((found.moments, found.others, found.is_thinned), (vec![0, 3, 4], 0, false));
        assert_eq!(found.held, [vec![5, 5, 12], vec![10, 0, 0]]);
    }

    #[test]
    fn the_smallest_owners_are_shown_together() {
        let profile = profile(&[(0, "a", 1), (1, "b", 7), (2, "c", 3), (3, "d", 2)]);
        let found = with_at_most(100, 2, &profile);
        assert_eq!((found.owners, found.others), (vec!["b", "c"], 2));
        assert_eq!(found.held, [vec![0, 7, 7, 7], vec![0, 0, 3, 3], vec![1, 1, 1, 3]]);
        assert_eq!(with_at_most(100, 3, &profile).others, 0);
    }

    #[test]
    fn of_too_many_moments_the_largest_stay() {
        let samples: Vec<(u64, &str, u64)> =
            (0..1000).map(|at| (at, "arena", if at == 617 { 5000 } else { at })).collect();
        let profile = profile(&samples);
        let found = with_at_most(10, 4, &profile);
        assert_eq!((found.moments.len(), found.is_thinned), (10, true));
        assert_eq!(found.held[0].iter().max(), Some(&5000));
        assert_eq!((found.moments[0], found.moments[6], found.held[0][0]), (99, 617, 99));
    }

    #[test]
    fn without_samples_there_are_no_moments() {
        let profile = Profile::default();
        let found = memory(&profile);
        assert!(found.moments.is_empty() && found.owners.is_empty() && found.held.is_empty());
    }
}
