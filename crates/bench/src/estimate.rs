//! The middle of some times, and how sure it is.

use serde::{Deserialize, Serialize};

/// How sure an interval is to be, where there are turns enough.
const CONFIDENCE: f64 = 0.95;

/// How long one run takes, in milliseconds. Runs of one turn meet the same machine and are much alike, so that a turn counts as
/// one observation: its middle run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The middle one of the turns.
    pub median: f64,
    /// Between these lies the median of all turns there could be.
    pub interval: [f64; 2],
    /// With this probability: the least that is at least 95 %, or the most that so few turns are enough for.
    pub confidence: f64,
    /// The shortest run: what the code takes when nothing else runs.
    pub best: f64,
    /// Turns.
    pub turns: usize,
    /// Runs of all turns.
    pub runs: usize,
}

impl Estimate {
    /// Of turns of at least one run each, in seconds; `None` where there is no run.
    pub fn of(turns: &[Vec<f64>]) -> Option<Estimate> {
        let turns: Vec<&[f64]> = turns.iter().map(Vec::as_slice).filter(|turn| !turn.is_empty()).collect();
        let mut middles: Vec<f64> = turns.iter().map(|turn| 1e3 * median(turn)).collect();
        middles.sort_by(f64::total_cmp);
        let best = 1e3 * turns.iter().copied().flatten().copied().reduce(f64::min)?;
        let (low, confidence) = rank(middles.len());
        let interval = [*middles.get(low)?, *middles.get(middles.len() - 1 - low)?];
        Some(Estimate {
            median: median(&middles),
            interval,
            confidence,
            best,
            turns: turns.len(),
            runs: turns.iter().map(|turn| turn.len()).sum(),
        })
    }
}

/// The middle one of some numbers, or what lies halfway between the two in the middle.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    (at(sorted.len().saturating_sub(1) / 2) + at(sorted.len() / 2)) / 2.0
}

/// How many of the sorted observations lie outside of the interval on each side, and how sure that interval is. How many
/// observations fall below the true median is binomial with a chance of one half, whatever their distribution is.
fn rank(count: usize) -> (usize, f64) {
    // The chance that at most `below` observations are less than the median, as terms are added.
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

    /// Of tables of the sign test: the rank from 1 of the lower end, and the confidence.
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
        // Twelve turns whose middles are 1 to 12 ms.
        let turns: Vec<Vec<f64>> =
            (1..=12).map(|turn| [0.5, 1.0, 1.5].map(|part| part * f64::from(turn) * 1e-3).to_vec()).collect();
        let estimate = Estimate::of(&turns).unwrap();
        assert!((estimate.median - 6.5).abs() < 1e-12);
        assert!((estimate.interval[0] - 3.0).abs() < 1e-12 && (estimate.interval[1] - 10.0).abs() < 1e-12);
        assert!((estimate.best - 0.5).abs() < 1e-12);
        assert_eq!((estimate.turns, estimate.runs), (12, 36));
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[vec![]]), None);
        let one = Estimate::of(&[vec![2e-3]]).unwrap();
        assert_eq!((one.median, one.interval, one.confidence), (2.0, [2.0, 2.0], 0.0));
    }
}
