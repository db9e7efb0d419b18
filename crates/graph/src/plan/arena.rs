//! Offsets: the place of each buffer in the arena.
//!
//! Placing intervals in the least memory is NP-hard. Two greedy rules work well on networks, and each does well where
//! the other fails; the smaller result is used. Both put a buffer at 0 or right after one that is live at the same
//! time, so no byte below the arena's end is unused except for alignment.

use super::{PlanError, lifetime::Lifetime};

/// An offset for each lifetime, and where the last one ends.
pub(super) struct Placement {
    pub offsets: Vec<usize>,
    pub bytes: usize,
}

/// Places buffers so that those that live at the same time do not overlap. `bound` is the most bytes that live at
/// once: a placement that reaches it cannot be improved. One that takes `limit` bytes or more is not worth finishing, and is
/// [`PlanError::TooLarge`] as well.
pub(super) fn place(
    lifetimes: &[Lifetime],
    alignment: usize,
    bound: usize,
    limit: usize,
) -> Result<Placement, PlanError> {
    let by_size = largest_first(lifetimes, alignment, limit);
    let to_beat = by_size.as_ref().map_or(limit, |placement| placement.bytes);
    if by_size.is_ok() && to_beat <= bound {
        return by_size;
    }
    earliest_first(lifetimes, alignment, to_beat).or(by_size)
}

/// A buffer that has its place.
#[derive(Clone, Copy)]
struct Placed {
    offset: usize,
    /// Where the next one may start.
    end: usize,
    first: usize,
    last: usize,
}

/// Largest first, each at the lowest offset that is free throughout its life.
fn largest_first(lifetimes: &[Lifetime], alignment: usize, limit: usize) -> Result<Placement, PlanError> {
    let mut order: Vec<usize> = (0..lifetimes.len()).filter(|&i| lifetimes[i].bytes > 0).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lifetimes[i].bytes), lifetimes[i].first));
    let mut placed: Vec<Placed> = Vec::with_capacity(order.len());
    let mut result = Placement { offsets: vec![0; lifetimes.len()], bytes: 0 };
    for i in order {
        let Lifetime { first, last, bytes } = lifetimes[i];
        let mut offset = 0;
        for other in placed.iter().filter(|p| p.first <= last && first <= p.last) {
            if end_of(offset, bytes, limit)? <= other.offset {
                break;
            }
            offset = offset.max(other.end);
        }
        let end = end_of(offset, bytes, limit)?;
        let at = placed.partition_point(|p| p.offset <= offset);
        placed.insert(at, Placed { offset, end: aligned(end, alignment)?, first, last });
        result.offsets[i] = offset;
        result.bytes = result.bytes.max(end);
    }
    Ok(result)
}

/// In chronological order, each in the smallest gap that holds it; the space up to the highest byte used so far counts
/// as one.
fn earliest_first(lifetimes: &[Lifetime], alignment: usize, limit: usize) -> Result<Placement, PlanError> {
    let mut order: Vec<usize> = (0..lifetimes.len()).filter(|&i| lifetimes[i].bytes > 0).collect();
    order.sort_by_key(|&i| (lifetimes[i].first, std::cmp::Reverse(lifetimes[i].bytes)));
    // In the order of offsets.
    let mut alive: Vec<Placed> = Vec::new();
    let mut result = Placement { offsets: vec![0; lifetimes.len()], bytes: 0 };
    for i in order {
        let Lifetime { first, last, bytes } = lifetimes[i];
        alive.retain(|p| p.last >= first);
        let mut best: Option<(usize, usize)> = None;
        let mut start = 0;
        for next in alive.iter().map(|p| Some(*p)).chain([None]) {
            let room = next.map_or(result.bytes, |p| p.offset).saturating_sub(start);
            if room >= bytes && best.is_none_or(|(smallest, _)| room < smallest) {
                best = Some((room, start));
            }
            if let Some(next) = next {
                start = next.end;
            }
        }
        // Without a gap, on top of all live buffers, which is where `start` is now.
        let offset = best.map_or(start, |(_, offset)| offset);
        let end = end_of(offset, bytes, limit)?;
        let at = alive.partition_point(|p| p.offset <= offset);
        alive.insert(at, Placed { offset, end: aligned(end, alignment)?, first, last });
        result.offsets[i] = offset;
        result.bytes = result.bytes.max(end);
    }
    Ok(result)
}

fn aligned(bytes: usize, alignment: usize) -> Result<usize, PlanError> {
    bytes.checked_next_multiple_of(alignment).ok_or(PlanError::TooLarge)
}

/// Where a buffer ends. An allocation can hold at most isize::MAX.
fn end_of(offset: usize, bytes: usize, limit: usize) -> Result<usize, PlanError> {
    let end = offset.checked_add(bytes).ok_or(PlanError::TooLarge)?;
    if end > isize::MAX as usize || end >= limit { Err(PlanError::TooLarge) } else { Ok(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetimes(list: &[(usize, usize, usize)]) -> Vec<Lifetime> {
        list.iter().map(|&(first, last, bytes)| Lifetime { first, last, bytes }).collect()
    }

    #[test]
    fn a_later_buffer_takes_the_place_of_a_dead_one() {
        let list = lifetimes(&[(0, 1, 64), (1, 2, 64), (2, 3, 64)]);
        let placement = place(&list, 64, 128, usize::MAX).unwrap();
        assert_eq!((placement.offsets, placement.bytes), (vec![0, 64, 0], 128));
    }

    #[test]
    fn the_end_is_exact_and_the_offsets_are_aligned() {
        let list = lifetimes(&[(0, 1, 65), (0, 1, 3)]);
        for rule in [largest_first, earliest_first] {
            let placement = rule(&list, 64, usize::MAX).unwrap();
            assert_eq!((placement.offsets, placement.bytes), (vec![0, 128], 131));
        }
    }

    #[test]
    fn the_smaller_of_the_two_rules_counts() {
        // In the order of time, 1 goes on top of 2 and 3 on top of that; by size, 3 lies at 0 and 2 below it in time.
        let by_size = lifetimes(&[(0, 0, 2), (0, 5, 1), (1, 5, 3)]);
        // By size, the odd 1000 is padded; in the order of time it comes last and is not.
        let by_start = lifetimes(&[(0, 1, 64), (1, 1, 1000)]);
        for (list, alignment, expected) in [(by_size, 1, [4, 6, 4]), (by_start, 64, [1088, 1064, 1064])] {
            let bytes = [
                largest_first(&list, alignment, usize::MAX),
                earliest_first(&list, alignment, usize::MAX),
                place(&list, alignment, 0, usize::MAX),
            ];
            assert_eq!(bytes.map(|p| p.unwrap().bytes), expected);
        }
    }

    #[test]
    fn the_best_gap_is_the_smallest() {
        // 5, 4, 3 and 2 lie in that order; when 5 and 3 are dead there are gaps at 0 and at 9.
        let list = lifetimes(&[(0, 1, 5), (0, 9, 4), (0, 1, 3), (0, 9, 2), (2, 9, 3), (2, 9, 2)]);
        let placement = earliest_first(&list, 1, usize::MAX).unwrap();
        assert_eq!((placement.offsets, placement.bytes), (vec![0, 5, 9, 12, 9, 0], 14));
    }

    #[test]
    fn beyond_memory_is_an_error() {
        let half = isize::MAX as usize / 2 + 1;
        let placed = |list: &[_]| place(&lifetimes(list), 64, 0, usize::MAX);
        assert!(matches!(placed(&[(0, 1, half), (1, 2, half)]), Err(PlanError::TooLarge)));
        assert!(placed(&[(0, 1, half), (2, 3, half)]).is_ok());
    }

    #[test]
    fn what_is_not_below_the_limit_is_given_up() {
        // Largest first takes 4, in the order of time it is 6; and the other way round below.
        let by_size = lifetimes(&[(0, 0, 2), (0, 5, 1), (1, 5, 3)]);
        let by_start = lifetimes(&[(0, 1, 64), (1, 1, 1000)]);
        for (list, alignment, bytes) in [(by_size, 1, 4), (by_start, 64, 1064)] {
            assert!(matches!(place(&list, alignment, 0, bytes), Err(PlanError::TooLarge)));
            assert_eq!(place(&list, alignment, 0, bytes + 1).unwrap().bytes, bytes);
        }
    }
}
