//! The median of some times or ratios, and its confidence interval.

use serde::{Deserialize, Serialize};

/// The confidence of an interval, given enough turns.
const CONFIDENCE: f64 = 0.95;

/// How long one run takes, in milliseconds. The runs of one turn meet the same state of the machine and are much alike, so
/// that a turn counts as one observation: its median run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the turns.
    pub median: f64,
    /// The confidence interval of the median.
    pub interval: [f64; 2],
    /// Its confidence: the least that is at least 95 %, or the most that so few turns allow.
    pub confidence: f64,
    /// The shortest run: what the code takes if nothing else runs.
    pub best: f64,
    /// What 99 of 100 runs of all turns took at most. Older files do not have it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<f64>,
    /// Turns.
    pub turns: usize,
    /// Runs of all turns.
    pub runs: usize,
}

impl Estimate {
    /// Of turns of at least one run each, in seconds; `None` if there is no run.
    pub fn of(turns: &[Vec<f64>]) -> Option<Estimate> {
        let turns: Vec<&[f64]> = turns.iter().map(Vec::as_slice).filter(|turn| !turn.is_empty()).collect();
        let medians: Vec<f64> = turns.iter().map(|turn| 1e3 * median(turn)).collect();
        let mut runs: Vec<f64> = turns.iter().copied().flatten().map(|seconds| 1e3 * seconds).collect();
        runs.sort_by(f64::total_cmp);
        let best = *runs.first()?;
        let (interval, confidence) = interval(&medians)?;
        Some(Estimate {
            median: median(&medians),
            interval,
            confidence,
            best,
            p99: percentile(&runs, 0.99),
            turns: turns.len(),
            runs: runs.len(),
        })
    }
}

/// A peer's time over ours. Each turn gives one ratio, whose two sides met the same state of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the turns' ratios.
    pub median: f64,
    /// The confidence interval of the median.
    pub interval: [f64; 2],
    /// Its confidence, as that of an [`Estimate`].
    pub confidence: f64,
}

impl Ratio {
    /// Of as many turns on both sides; `None` if there is no turn.
    pub fn of(peer: &[Vec<f64>], ours: &[Vec<f64>]) -> Option<Ratio> {
        let ratios: Vec<f64> =
            peer.iter().zip(ours).map(|(peer, ours)| median(peer) / median(ours)).collect();
        let (interval, confidence) = interval(&ratios)?;
        Some(Ratio { median: median(&ratios), interval, confidence })
    }
}

/// The confidence interval of the median of some observations, and its confidence.
fn interval(observations: &[f64]) -> Option<([f64; 2], f64)> {
    let mut sorted = observations.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (outside, confidence) = rank(sorted.len());
    let low = *sorted.get(outside)?;
    let high = *sorted.get(sorted.len() - 1 - outside)?;
    Some(([low, high], confidence))
}

/// The least of some sorted numbers that this share of them does not exceed.
pub fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}

/// The median of some numbers; not a number if there are none.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    (at(sorted.len().saturating_sub(1) / 2) + at(sorted.len() / 2)) / 2.0
}

/// How many of the sorted observations lie outside of the interval on each side, and the confidence of that interval. The
/// number of observations below the true median is binomial with a probability of one half, whatever their distribution.
fn rank(count: usize) -> (usize, f64) {
    // The probability that at most `below` observations are less than the median, as terms are added.
    let mut term = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut tail, mut found) = (term, (0, (1.0 - 2.0 * term).max(0.0)));
    for below in 1..count.div_ceil(2) {
        let confidence = 1.0 - 2.0 * (tail + term * (count - below + 1) as f64 / below as f64);
        if confidence < CONFIDENCE {
            break;
        }
        term *= (count - below + 1) as f64 / below as f64;
        tail += term;
        found = (below, confidence);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From tables of the sign test: the rank (from 1) of the lower end, and the confidence.
    #[test]
    fn ranks_are_those_of_the_tables() {
        for (count, lower, confidence) in [
            (5, 1, 0.9375),
            (6, 1, 0.96875),
            (8, 1, 0.9921875),
            (9, 2, 0.9609375),
            (10, 2, 0.97852),
            (12, 3, 0.96143),
            (15, 4, 0.96484375),
            (20, 6, 0.95861),
            (25, 8, 0.956715),
            (50, 18, 0.96716),
        ] {
            let (outside, sure) = rank(count);
            assert_eq!(outside + 1, lower, "{count}");
            assert!((sure - confidence).abs() < 1e-5, "{count}: {sure}");
        }
        assert_eq!(rank(1), (0, 0.0));
        assert_eq!(rank(2), (0, 0.5));
    }

    #[test]
    fn turns_are_the_observations() {
        // Twelve turns whose medians are 1 to 12 ms.
        let turns: Vec<Vec<f64>> =
            (1..=12).map(|turn| [0.5, 1.0, 1.5].map(|part| part * f64::from(turn) * 1e-3).to_vec()).collect();
        let estimate = Estimate::of(&turns).unwrap();
        assert!((estimate.median - 6.5).abs() < 1e-12);
        assert!((estimate.interval[0] - 3.0).abs() < 1e-12 && (estimate.interval[1] - 10.0).abs() < 1e-12);
        assert!((estimate.best - 0.5).abs() < 1e-12);
        assert_eq!((estimate.turns, estimate.runs), (12, 36));
        // The longest of 36 runs; of a hundred, the last but one.
        assert!((estimate.p99.unwrap() - 18.0).abs() < 1e-12);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&hundred, 0.99), percentile(&hundred, 0.5)), (Some(99.0), Some(50.0)));
        assert_eq!(percentile(&[], 0.99), None);
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[vec![]]), None);
        let one = Estimate::of(&[vec![2e-3]]).unwrap();
        assert_eq!((one.median, one.interval, one.confidence), (2.0, [2.0, 2.0], 0.0));
    }
    #[test]
    fn a_ratio_is_that_of_turns_side_by_side() {
        let ours = [vec![1.0, 3.0, 2.0], vec![4.0], vec![1.0]];
        let peer = [vec![4.0], vec![6.0, 7.0, 5.0], vec![3.0]];
        // 4 / 2, 6 / 4, 3 / 1.
        let ratio = Ratio::of(&peer, &ours).unwrap();
        assert_eq!((ratio.median, ratio.interval, ratio.confidence), (2.0, [1.5, 3.0], 0.75));
        assert_eq!(Ratio::of(&[], &[]), None);
    }
}
