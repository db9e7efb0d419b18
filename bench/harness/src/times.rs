//! Times and their ratios.

use serde_json::{Value, json};

/// How long one run takes, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The middle one of all runs.
    pub median: f64,
    /// The shortest: what the code takes when nothing else runs.
    pub best: f64,
}

impl Times {
    /// Of samples; of none, it is not a number.
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |place: usize| samples.get(place).copied().unwrap_or(f64::NAN);
        Times { median: at(samples.len() / 2), best: at(0) }
    }
}

/// The same work, done by us and by the peer.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Our times.
    pub ours: Times,
    /// The peer's times.
    pub peer: Times,
}

impl Compared {
    /// The peer's median over ours.
    pub fn ratio(&self) -> f64 {
        self.peer.median / self.ours.median
    }

    /// The peer's best over ours.
    pub fn best_ratio(&self) -> f64 {
        self.peer.best / self.ours.best
    }

    /// Milliseconds and ratios, for programs; `name` is the peer's.
    pub fn json(&self, name: &str) -> [Value; 2] {
        let one = |ours: f64, peer: f64| json!({"ours_ms": ours * 1e3, format!("{name}_ms"): peer * 1e3, "ratio": peer / ours});
        [one(self.ours.median, self.peer.median), one(self.ours.best, self.peer.best)]
    }
}

/// The geometric mean of ratios, and the least.
pub fn summary(ratios: impl Iterator<Item = f64>) -> (f64, f64) {
    let ratios: Vec<f64> = ratios.collect();
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    ((logarithms / ratios.len() as f64).exp(), least)
}
