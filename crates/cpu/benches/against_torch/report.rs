//! The table for people and the JSON for programs.

use std::path::Path;

use serde_json::json;

/// How long one run takes, in seconds.
pub struct Times {
    /// The middle one of all runs.
    pub median: f64,
    /// The shortest: what the code takes when nothing else runs.
    pub best: f64,
}

impl Times {
    /// Of at least one sample.
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Times { median: samples[samples.len() / 2], best: samples[0] }
    }
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

impl Measurement {
    /// PyTorch's median over ours.
    fn ratio(&self) -> f64 {
        self.torch.median / self.ours.median
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
            "{:<44} {:>10} {:>10} {:>7} {:>7} {:>8}",
            "case (medians)", "ours", "PyTorch", "ratio", "of best", "GFLOP/s"
        );
        Report { threads, torch: torch.to_owned(), measurements: Vec::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, m: Measurement) {
        let rate = if m.gflop > 0.0 { format!("{:.0}", m.gflop / m.ours.best) } else { "-".to_owned() };
        println!(
            "{:<44} {:>7.3} ms {:>7.3} ms {:>6.2}× {:>6.2}× {:>8}",
            m.name,
            m.ours.median * 1e3,
            m.torch.median * 1e3,
            m.ratio(),
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
        let (mean, least) = summary(Measurement::ratio);
        let (best_mean, best_least) = summary(Measurement::best_ratio);
        println!("\nmedians: geometric mean {mean:.2}×, least {least:.2}×");
        println!("best:    geometric mean {best_mean:.2}×, least {best_least:.2}×");
        let Some(path) = json else { return Ok(()) };
        let cases: Vec<_> = self
            .measurements
            .iter()
            .map(|m| {
                json!({
                    "name": m.name, "family": m.family, "gflop": m.gflop,
                    "median": {"ours_ms": m.ours.median * 1e3, "torch_ms": m.torch.median * 1e3, "ratio": m.ratio()},
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
            "median": {"geometric_mean_ratio": mean, "least_ratio": least},
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
