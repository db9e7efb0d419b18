//! The table for people and the JSON for programs.

use std::path::Path;

use kinora::image_to_video::Settings;
use kinora_bench::{Compared, Ratio, summary, write_json};
use serde_json::{Map, Value, json};

use crate::verify::Distance;

/// One case, measured.
pub struct Measurement {
    /// The case.
    pub name: &'static str,
    /// The clip.
    pub settings: Settings,
    /// Parameters of the whole model.
    pub parameters: u64,
    /// Arithmetic of the clip, by our plan.
    pub gflop: f64,
    /// Clips that we were timed on.
    pub clips: usize,
    /// A clip with a model that has been loaded.
    pub clip: Compared,
    /// Its stages.
    pub stages: [(&'static str, Compared); 4],
    /// Seconds of our first clip that went into weights.
    pub load: f64,
    /// The first clip with the loading of the model: ours and theirs.
    pub first: [f64; 2],
    /// The layout that the peer chose for its weights.
    pub layout: String,
    /// How far the two clips are apart.
    pub distance: Distance,
}

/// All cases of a run.
pub struct Report {
    threads: usize,
    peer: String,
    measurements: Vec<Measurement>,
}

impl Report {
    /// Starts a report, and its table.
    pub fn new(threads: usize, peer: &str) -> Self {
        println!("Kinora on {} ({threads} threads) against {peer} eager, f32\n", processor());
        println!(
            "{:<52} {:>10} {:>10} {:>7} {:>13} {:>7}",
            "a clip, its stages (medians)", "ours", "diffusers", "ratio", "95 % within", "of best"
        );
        Report { threads, peer: peer.to_owned(), measurements: Vec::new() }
    }

    /// Adds the rows of a case.
    pub fn add(&mut self, m: Measurement) {
        let Settings { width, height, frames, steps, .. } = m.settings;
        let millions = m.parameters as f64 / 1e6;
        let title = format!("{}: {millions:.0} M, {frames} × {width}×{height}, {steps} steps", m.name);
        row(&title, &m.clip);
        for (stage, times) in &m.stages {
            row(&format!("    {}", stage.replace('_', " ")), times);
        }
        let [ours, theirs] = m.first;
        println!(
            "{:<52} {:>7.1} ms {:>7.1} ms {:>6.2}×",
            "    first clip, the model's loading included",
            ours * 1e3,
            theirs * 1e3,
            theirs / ours
        );
        self.measurements.push(m);
    }

    /// Ends the table with the geometric mean, and writes the JSON where asked for.
    pub fn finish(&self, json: Option<&Path>) -> Result<(), String> {
        if self.measurements.is_empty() {
            return Err("no case has one of the words in its name".into());
        }
        let (mean, least) = summary(self.measurements.iter().map(|m| m.clip.ratio().median));
        let (best_mean, best_least) = summary(self.measurements.iter().map(|m| m.clip.best_ratio()));
        let (first_mean, first_least) = summary(self.measurements.iter().map(|m| m.first[1] / m.first[0]));
        println!("\nmedians:     geometric mean {mean:.2}×, least {least:.2}×");
        println!("best:        geometric mean {best_mean:.2}×, least {best_least:.2}×");
        println!("first clips: geometric mean {first_mean:.2}×, least {first_least:.2}×");
        let Some(path) = json else { return Ok(()) };
        let document = json!({
            "benchmark": "image to video against diffusers eager, f32",
            "command": "cargo xtask bench --bench against_diffusers",
            "kinora": env!("CARGO_PKG_VERSION"),
            "peer": self.peer,
            "processor": processor(),
            "threads": self.threads,
            "median": {"geometric_mean_ratio": mean, "least_ratio": least},
            "best": {"geometric_mean_ratio": best_mean, "least_ratio": best_least},
            "first": {"geometric_mean_ratio": first_mean, "least_ratio": first_least},
            "cases": self.measurements.iter().map(Measurement::json).collect::<Vec<_>>(),
        });
        write_json(path, &document)?;
        println!("written to {}", path.display());
        Ok(())
    }
}

impl Measurement {
    fn json(&self) -> Value {
        let times = |times: &Compared| {
            let [median, best] = times.json("diffusers");
            json!({"median": median, "best": best})
        };
        let stages: Map<_, _> = self.stages.iter().map(|(name, t)| ((*name).to_owned(), times(t))).collect();
        let [ours, theirs] = self.first;
        json!({
            "name": self.name,
            "settings": self.settings,
            "parameters": self.parameters,
            "gflop": self.gflop,
            "clips": self.clips,
            "clip": times(&self.clip),
            "stages": stages,
            "load_ms": self.load * 1e3,
            "first": {"ours_ms": ours * 1e3, "diffusers_ms": theirs * 1e3, "ratio": theirs / ours},
            "diffusers_layout": self.layout,
            "latents_max_abs_error": self.distance.latents,
            "bytes_that_differ": self.distance.bytes,
        })
    }
}

fn row(title: &str, times: &Compared) {
    let Ratio { median, interval: [low, high] } = times.ratio();
    println!(
        "{title:<52} {:>7.1} ms {:>7.1} ms {median:>6.2}× {low:>6.2}–{high:<5.2}× {:>6.2}×",
        times.ours.median * 1e3,
        times.peer.median * 1e3,
        times.best_ratio(),
    );
}

/// The processor and the vector instructions used.
fn processor() -> String {
    kinora_bench::processor(kinora_cpu::Options::default().isa.name())
}
