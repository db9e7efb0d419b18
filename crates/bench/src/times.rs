//! Times and their ratios.

use serde_json::{Value, json};

/// How long one run takes, in seconds.
#[derive(Clone, Debug)]
pub struct Times {
    /// The middle run of each turn.
    turns: Vec<f64>,
    /// The middle one of all turns.
    pub median: f64,
    /// The shortest run: what the code takes when nothing else runs.
    pub best: f64,
}

impl Times {
    /// Of turns of at least one run each; of none, they are not numbers.
    pub fn of(turns: &[Vec<f64>]) -> Self {
        let best = turns.iter().flatten().copied().fold(f64::NAN, f64::min);
        let turns: Vec<f64> = turns.iter().map(|turn| middle(turn)).collect();
        Times { median: middle(&turns), turns, best }
    }
}

/// The middle one of some numbers.
fn middle(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The same work, done by us and by the peer in as many turns.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Our times.
    pub ours: Times,
    /// The peer's times.
    pub peer: Times,
}

/// The peer's time over ours.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// The middle one of the ratios of the turns, each of which met the same machine on both sides.
    pub median: f64,
    /// Between these lies the median of all turns there could be, with a probability of 95 %, or as near to it as the
    /// turns are enough for.
    pub interval: [f64; 2],
}

impl Compared {
    /// Of turns on both sides.
    pub fn of(ours: &[Vec<f64>], peer: &[Vec<f64>]) -> Self {
        Compared { ours: Times::of(ours), peer: Times::of(peer) }
    }

    /// The peer's time over ours.
    pub fn ratio(&self) -> Ratio {
        let turns = self.peer.turns.iter().zip(&self.ours.turns);
        let mut ratios: Vec<f64> = turns.map(|(peer, ours)| peer / ours).collect();
        ratios.sort_by(f64::total_cmp);
        // How many of n turns fall below their median is binomial, with a deviation of √n / 2.
        let count = ratios.len();
        let reach = (0.98 * (count as f64).sqrt()).ceil() as usize;
        let at = |place: usize| ratios.get(place).copied().unwrap_or(f64::NAN);
        let low = (count / 2).saturating_sub(reach);
        let high = (count.div_ceil(2) + reach).min(count).saturating_sub(1);
        Ratio { median: middle(&ratios), interval: [at(low), at(high)] }
    }

    /// The peer's best over ours.
    pub fn best_ratio(&self) -> f64 {
        self.peer.best / self.ours.best
    }

    /// Milliseconds and ratios, for programs: of the medians and of the best. `name` is the peer's.
    pub fn json(&self, name: &str) -> [Value; 2] {
        let Ratio { median, interval } = self.ratio();
        let peer = format!("{name}_ms");
        [
            json!({"ours_ms": self.ours.median * 1e3, peer.as_str(): self.peer.median * 1e3, "ratio": median,
                "ratio_95_percent": interval}),
            json!({"ours_ms": self.ours.best * 1e3, peer.as_str(): self.peer.best * 1e3,
                "ratio": self.best_ratio()}),
        ]
    }
}

/// The geometric mean of ratios, and the least.
pub fn summary(ratios: impl Iterator<Item = f64>) -> (f64, f64) {
    let ratios: Vec<f64> = ratios.collect();
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    ((logarithms / ratios.len() as f64).exp(), least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_the_middle_turn() {
        let ours = [vec![1.0, 3.0, 2.0], vec![4.0], vec![1.0]];
        let peer = [vec![4.0], vec![6.0, 7.0, 5.0], vec![3.0]];
        let compared = Compared::of(&ours, &peer);
        assert_eq!((compared.ours.median, compared.ours.best), (2.0, 1.0));
        assert_eq!((compared.peer.median, compared.peer.best), (4.0, 3.0));
        // 4 / 2, 6 / 4, 3 / 1.
        assert_eq!((compared.ratio().median, compared.ratio().interval), (2.0, [1.5, 3.0]));
        assert_eq!(compared.best_ratio(), 3.0);
        assert!(Compared::of(&[], &[]).ratio().median.is_nan());
        // Of a hundred turns the tenth on either side of the middle.
        let peer: Vec<_> = (1..=100).map(|seconds| vec![f64::from(seconds)]).collect();
        let interval = Compared::of(&vec![vec![1.0]; 100], &peer).ratio().interval;
        assert_eq!(interval, [41.0, 60.0]);
    }

    #[test]
    fn a_summary_is_the_geometric_mean_and_the_least() {
        let (mean, least) = summary([1.0, 4.0].into_iter());
        assert!((mean - 2.0).abs() < 1e-12 && least == 1.0);
    }
}
