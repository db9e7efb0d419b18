//! The table for people and the JSON for programs.

use std::path::Path;

use kinora_bench::{Compared, Ratio, summary, write_json};
use serde_json::json;

/// One case, measured.
pub struct Measurement {
    /// The case.
    pub name: String,
    /// What kind of op it is.
    pub family: &'static str,
    /// Arithmetic of the matrix work.
    pub gflop: f64,
    /// Our times and PyTorch's.
    pub times: Compared,
    /// The root mean square of the difference over that of ours.
    pub relative_error: f64,
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
        let rate = if m.gflop > 0.0 { format!("{:.0}", m.gflop / m.times.ours.best) } else { "-".to_owned() };
        let Ratio { median, interval: [low, high] } = m.times.ratio();
        println!(
            "{:<44} {:>7.3} ms {:>7.3} ms {median:>6.2}× {low:>6.2}–{high:<5.2}× {:>6.2}× {:>8}",
            m.name,
            m.times.ours.median * 1e3,
            m.times.peer.median * 1e3,
            m.times.best_ratio(),
            rate
        );
        self.measurements.push(m);
    }

    /// Ends the table with the geometric mean, and writes the JSON where asked for.
    pub fn finish(&self, json: Option<&Path>) -> Result<(), String> {
        if self.measurements.is_empty() {
            return Err("no case has one of the words in its name".into());
        }
        let (mean, least) = summary(self.measurements.iter().map(|m| m.times.ratio().median));
        let (best_mean, best_least) = summary(self.measurements.iter().map(|m| m.times.best_ratio()));
        let behind = self.measurements.iter().filter(|m| m.times.ratio().interval[1] < 1.0).count();
        println!("\nmedians: geometric mean {mean:.2}×, least {least:.2}×, surely behind in {behind} cases");
        println!("best:    geometric mean {best_mean:.2}×, least {best_least:.2}×");
        let Some(path) = json else { return Ok(()) };
        let cases: Vec<_> = self
            .measurements
            .iter()
            .map(|m| {
                let [median, best] = m.times.json("torch");
                json!({
                    "name": m.name, "family": m.family, "gflop": m.gflop, "median": median, "best": best,
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
        write_json(path, &document)?;
        println!("written to {}", path.display());
        Ok(())
    }
}

/// The processor and the vector instructions used.
fn processor() -> String {
    kinora_bench::processor(kinora_cpu::simd::Isa::detect().name())
}
