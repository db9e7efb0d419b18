//! The table for people and the JSON for programs.

use std::path::Path;

use serde_json::json;

/// How long one run takes, in seconds.
pub struct Times {
    /// The middle run of each turn.
    turns: Vec<f64>,
    /// The middle one of all turns.
    median: f64,
    /// The shortest run: what the code takes when nothing else runs.
    best: f64,
}

impl Times {
    /// Of at least one turn of at least one run.
    pub fn of(turns: &[Vec<f64>]) -> Self {
        let best = turns.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let turns: Vec<f64> = turns.iter().map(|turn| middle(turn)).collect();
        Times { median: middle(&turns), turns, best }
    }
}

/// The middle one of some numbers.
fn middle(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// One case, measured.
pub struct Measurement {
    /// The case.
    pub name: &'static str,
    /// What kind of op it is.
    pub family: &'static str,
    /// Arithmetic of the matrix work.
    pub gflop: f64,
    /// Our times.
    pub ours: Times,
    /// PyTorch's times.
    pub torch: Times,
    /// Largest difference over largest magnitude.
    pub relative_error: f32,
}

/// PyTorch's time over ours.
struct Ratio {
    /// The middle one of the ratios of the turns, each of which met the same machine on both sides.
    median: f64,
    /// Between these lies the median of all turns there could be, with a probability of 95 %.
    interval: [f64; 2],
}

impl Measurement {
    fn ratio(&self) -> Ratio {
        let mut ratios: Vec<f64> =
            self.torch.turns.iter().zip(&self.ours.turns).map(|(t, o)| t / o).collect();
        ratios.sort_by(f64::total_cmp);
        // How many of n turns fall below their median is binomial, with a deviation of √n / 2.
        let count = ratios.len();
        let reach = (0.98 * (count as f64).sqrt()).ceil() as usize;
        let low = (count / 2).saturating_sub(reach);
        let high = (count.div_ceil(2) + reach).min(count) - 1;
        Ratio { median: middle(&ratios), interval: [ratios[low], ratios[high]] }
    }

    /// PyTorch's best over ours.
    fn best_ratio(&self) -> f64 {
        self.torch.best / self.ours.best
    }
}

/// All cases of a run.
pub struct Report {
    threads: usize,
    torch: String,
    measurements: Vec<Measurement>,
}

impl Report {
    /// Starts a report, and its table.
    pub fn new(threads: usize, torch: &str) -> Self {
        println!("Kinora on {} ({threads} threads) against PyTorch {torch} eager, f32\n", processor());
        println!(
            "{:<44} {:>10} {:>10} {:>7} {:>13} {:>7} {:>8}",
            "case (medians)", "ours", "PyTorch", "ratio", "95 % within", "of best", "GFLOP/s"
        );
        Report { threads, torch: torch.to_owned(), measurements: Vec::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, m: Measurement) {
        let rate = if m.gflop > 0.0 { format!("{:.0}", m.gflop / m.ours.best) } else { "-".to_owned() };
        let Ratio { median, interval: [low, high] } = m.ratio();
        println!(
            "{:<44} {:>7.3} ms {:>7.3} ms {median:>6.2}× {low:>6.2}–{high:<5.2}× {:>6.2}× {:>8}",
            m.name,
            m.ours.median * 1e3,
            m.torch.median * 1e3,
            m.best_ratio(),
            rate
        );
        self.measurements.push(m);
    }

    /// Ends the table with the geometric mean, and writes the JSON where asked for.
    pub fn finish(&self, json: Option<&Path>) -> Result<(), String> {
        if self.measurements.is_empty() {
            return Err("no case has that word in its name".into());
        }
        let summary = |ratio: fn(&Measurement) -> f64| {
            let logarithms: f64 = self.measurements.iter().map(|m| ratio(m).ln()).sum();
            let least = self.measurements.iter().map(ratio).fold(f64::INFINITY, f64::min);
            ((logarithms / self.measurements.len() as f64).exp(), least)
        };
        let (mean, least) = summary(|m| m.ratio().median);
        let (best_mean, best_least) = summary(Measurement::best_ratio);
        let behind = self.measurements.iter().filter(|m| m.ratio().interval[1] < 1.0).count();
        println!("\nmedians: geometric mean {mean:.2}×, least {least:.2}×, surely behind in {behind} cases");
        println!("best:    geometric mean {best_mean:.2}×, least {best_least:.2}×");
        let Some(path) = json else { return Ok(()) };
        let cases: Vec<_> = self
            .measurements
            .iter()
            .map(|m| {
                let Ratio { median, interval } = m.ratio();
                json!({
                    "name": m.name, "family": m.family, "gflop": m.gflop,
                    "median": {"ours_ms": m.ours.median * 1e3, "torch_ms": m.torch.median * 1e3, "ratio": median,
                        "ratio_95_percent": interval},
                    "best": {"ours_ms": m.ours.best * 1e3, "torch_ms": m.torch.best * 1e3, "ratio": m.best_ratio()},
                    "relative_error": m.relative_error,
                })
            })
            .collect();
        let document = json!({
            "benchmark": "cpu ops against PyTorch eager, f32",
            "command": "cargo xtask bench",
            "kinora": env!("CARGO_PKG_VERSION"),
            "torch": self.torch,
            "processor": processor(),
            "threads": self.threads,
            "median": {"geometric_mean_ratio": mean, "least_ratio": least, "surely_behind": behind},
            "best": {"geometric_mean_ratio": best_mean, "least_ratio": best_least},
            "cases": cases,
        });
        let text = format!("{document:#}\n");
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("written to {}", path.display());
        Ok(())
    }
}

/// The processor's own name, where the system tells it, and the vector instructions used.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |key: &str| {
        info.lines()
            .find(|line| line.starts_with(key))
            .and_then(|line| line.split(':').nth(1))
            .map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
    };
    format!(
        "{} family {} model {}, {:?}",
        field("model name"),
        field("cpu family"),
        field("model\t"),
        kinora_cpu::simd::Isa::detect()
    )
}
