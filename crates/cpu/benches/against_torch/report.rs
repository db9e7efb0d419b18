//! The table for people and the JSON for programs.

use std::path::Path;

use serde_json::json;

/// One case, measured.
pub struct Measurement {
    /// The case.
    pub name: &'static str,
    /// What kind of op it is.
    pub family: &'static str,
    /// Arithmetic of the matrix work.
    pub gflop: f64,
    /// Our median.
    pub seconds: f64,
    /// PyTorch's median.
    pub peer_seconds: f64,
    /// Largest difference over largest magnitude.
    pub relative_error: f32,
}

impl Measurement {
    fn ratio(&self) -> f64 {
        self.peer_seconds / self.seconds
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
        println!("{:<44} {:>10} {:>10} {:>9} {:>7}", "case", "ours", "PyTorch", "GFLOP/s", "ratio");
        Report { threads, torch: torch.to_owned(), measurements: Vec::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, m: Measurement) {
        let rate = if m.gflop > 0.0 { format!("{:.0}", m.gflop / m.seconds) } else { "-".to_owned() };
        println!(
            "{:<44} {:>7.3} ms {:>7.3} ms {:>9} {:>6.2}×",
            m.name,
            m.seconds * 1e3,
            m.peer_seconds * 1e3,
            rate,
            m.ratio()
        );
        self.measurements.push(m);
    }

    /// Ends the table with the geometric mean, and writes the JSON where asked for.
    pub fn finish(&self, json: Option<&Path>) -> Result<(), String> {
        if self.measurements.is_empty() {
            return Err("no case has that word in its name".into());
        }
        let mean = (self.measurements.iter().map(|m| m.ratio().ln()).sum::<f64>()
            / self.measurements.len() as f64)
            .exp();
        let least = self.measurements.iter().map(Measurement::ratio).fold(f64::INFINITY, f64::min);
        println!("\ngeometric mean {mean:.2}×, least {least:.2}×");
        let Some(path) = json else { return Ok(()) };
        let cases: Vec<_> = self
            .measurements
            .iter()
            .map(|m| {
                json!({
                    "name": m.name, "family": m.family, "gflop": m.gflop, "ours_ms": m.seconds * 1e3,
                    "torch_ms": m.peer_seconds * 1e3, "ratio": m.ratio(), "relative_error": m.relative_error,
                })
            })
            .collect();
        let document = json!({
            "benchmark": "cpu ops against PyTorch eager, f32, medians",
            "command": "cargo xtask bench",
            "kinora": env!("CARGO_PKG_VERSION"),
            "torch": self.torch,
            "processor": processor(),
            "threads": self.threads,
            "geometric_mean_ratio": mean,
            "least_ratio": least,
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
