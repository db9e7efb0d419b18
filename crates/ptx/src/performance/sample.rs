//! Which blocks of a grid are simulated, and how their time is extrapolated.

/// Waves of a multiprocessor's blocks that are simulated at most: the first fills it, the others show its steady pace.
const ROUNDS: u64 = 3;

/// The clusters of a grid that one multiprocessor gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// All clusters.
    pub clusters: u64,
    /// The multiprocessors that share them.
    pub multiprocessors: u64,
    /// How many one holds at a time.
    pub resident: u64,
    /// Which multiprocessor this is.
    pub number: u64,
}

impl Sample {
    /// How many clusters the busiest multiprocessor gets.
    pub fn share(&self) -> u64 {
        self.clusters.div_ceil(self.multiprocessors.max(1)).max(1)
    }

    /// The clusters to simulate: all, or some spread evenly over the grid, including the first and one of the last.
    pub fn chosen(&self) -> impl Iterator<Item = u64> + use<> {
        let share = self.share();
        let count = share.min(ROUNDS * self.resident.max(1));
        let Sample { clusters, multiprocessors, number, .. } = *self;
        (0..count)
            .map(move |i| if count > 1 { i * (share - 1) / (count - 1) } else { 0 })
            .map(move |round| (number + round * multiprocessors).min(clusters.saturating_sub(1)))
    }

    /// How long the multiprocessor takes for all of its clusters, given when the simulated ones ended.
    pub fn extrapolated(&self, ends: &[f64]) -> f64 {
        let share = self.share() as f64;
        let mut sorted = ends.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&last), count) = (sorted.last(), sorted.len()) else { return 0.0 };
        let resident = (self.resident.max(1) as usize).min(count);
        if count as f64 >= share {
            return last;
        }
        let more = share - count as f64;
        if count == resident {
            return last * share / count as f64;
        }
        last + more * (last - sorted[resident - 1]) / (count - resident) as f64
    }
}
