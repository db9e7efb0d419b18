//! The errors of predictions.

use std::fmt;

use serde::Serialize;

/// The errors of some predictions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Errors {
    pub count: usize,
    /// The mean of the absolute errors, as shares of the measured times.
    pub mean: f64,
    pub median: f64,
    pub largest: f64,
    /// Spearman's rank correlation.
    pub rank_correlation: f64,
}

impl Errors {
    /// Of pairs of a measured and a predicted time.
    pub fn of(times: impl Iterator<Item = (f64, f64)>) -> Errors {
        let (measured, predicted): (Vec<f64>, Vec<f64>) = times.unzip();
        let count = measured.len();
        let error = |(measured, predicted): (&f64, &f64)| (predicted / measured - 1.0).abs();
        let mut errors: Vec<f64> = measured.iter().zip(&predicted).map(error).collect();
        errors.sort_by(f64::total_cmp);
        Errors {
            count,
            mean: errors.iter().sum::<f64>() / count.max(1) as f64,
            median: errors.get(count / 2).copied().unwrap_or(0.0),
            largest: errors.last().copied().unwrap_or(0.0),
            rank_correlation: correlation(&ranks(&measured), &ranks(&predicted)),
        }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pairs: mean absolute error {:.1} %, median {:.1} %, largest {:.0} %, rank correlation {:.3}",
            self.count,
            100.0 * self.mean,
            100.0 * self.median,
            100.0 * self.largest,
            self.rank_correlation
        )
    }
}

/// The rank of each value; equal values share their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let alike = values.iter().filter(|other| *other == value).count();
        below as f64 + (alike as f64 - 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let product = |x: &[f64], y: &[f64], mx: f64, my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    let spread = (product(a, a, mean_a, mean_a) * product(b, b, mean_b, mean_b)).sqrt();
    if spread > 0.0 { product(a, b, mean_a, mean_b) / spread } else { 0.0 }
}
