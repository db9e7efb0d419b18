//! The table and the JSON, and whether the errors are small enough.

use std::path::PathBuf;

use kinora::{image_to_video::Precision, runtime::Tuning};
use kinora_bench::{Distance, run::Size, write_json};
use kinora_runtime::Tensors;
use serde_json::{Map, Value, json};

use crate::{
    Failure,
    peers::{PeerError, Peers, judge},
};

/// How many times PyTorch's own error ours may be.
const RATIO_BAR: f64 = 1.2;

/// All results of a run.
pub struct Report {
    precision: Precision,
    head: Map<String, Value>,
    results: Vec<Value>,
    /// Results with too large an error, and stages that could not be compared.
    failed: Vec<String>,
    json: Option<PathBuf>,
}

impl Report {
    /// Starts a report, and prints the head of its table. The JSON goes to a file if one is given.
    pub fn new(
        size: Size,
        precision: Precision,
        tuning: Tuning,
        device: &str,
        json: Option<PathBuf>,
    ) -> Self {
        println!(
            "Kinora in {precision} on {device}, model {size}, against PyTorch in {}\n",
            judge(precision)
        );
        println!(
            "{:<20} {:>10} {:>10} {:>7}  {:<12} {:>10} {:>10}",
            "relative rms error", "Kinora", "PyTorch", "ratio", "", "largest", "PyTorch"
        );
        let mut head = Map::new();
        for (key, value) in [
            ("benchmark", json!("Stable Video Diffusion's stages against PyTorch in f32")),
            ("kinora", json!(env!("CARGO_PKG_VERSION"))),
            ("device", json!(device)),
            ("size", json!(size.to_string())),
            ("precision", json!(precision)),
            ("tuning", json!(tuning.to_string())),
            ("ratio_bar", json!(RATIO_BAR)),
        ] {
            head.insert(key.to_owned(), value);
        }
        Report { precision, head, results: Vec::new(), failed: Vec::new(), json }
    }

    /// Compares the results of a stage, or notes why there are none: a stage that fails does not end the run. Writes the
    /// JSON so far, so that an interrupted run keeps it.
    pub fn add(
        &mut self,
        stage: &str,
        results: Result<Tensors, Failure>,
        peers: &Peers,
    ) -> Result<(), Failure> {
        if let Err(problem) = results.and_then(|results| self.compare(stage, &results, peers)) {
            println!("{stage}: failed: {problem}");
            self.results.push(json!({"stage": stage, "failed": problem.to_string()}));
            self.failed.push(stage.to_owned());
        }
        let Some(path) = &self.json else { return Ok(()) };
        let mut document = self.head.clone();
        document.insert("results".to_owned(), json!(self.results));
        Ok(write_json(path, &document.into())?)
    }

    /// Ends the run: a failure if an error is too large, a stage could not be compared, or none was.
    pub fn finish(self) -> Result<(), Failure> {
        match (self.results.len(), self.failed.as_slice()) {
            (0, _) => Err("no stage was compared".into()),
            (_, []) => Ok(()),
            (_, failed) => Err(format!("too large an error, or not compared: {}", failed.join(", ")).into()),
        }
    }

    /// A row for each of the reference's results.
    fn compare(&mut self, stage: &str, results: &Tensors, peers: &Peers) -> Result<(), Failure> {
        let mut references: Vec<_> = peers.reference(self.precision, stage)?.into_iter().collect();
        references.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, reference) in references {
            let result = results.get(&name).ok_or_else(|| format!("there is no result {name}"))?;
            if result.shape() != reference.shape() {
                let (ours, theirs) = (result.shape(), reference.shape());
                return Err(
                    format!("{name} is {ours}, PyTorch's {theirs}; do they have the same --size?").into()
                );
            }
            let distance = Distance::between(&result.to_f32(), &reference.to_f32());
            let peer = peers.error(self.precision, &name)?;
            self.row(stage, &name, distance, peer);
        }
        Ok(())
    }

    fn row(&mut self, stage: &str, name: &str, distance: Distance, peer: PeerError) {
        let Distance { relative_rms, largest, finite, .. } = distance;
        let ratio = relative_rms / peer.relative_rms;
        let within = finite && relative_rms <= RATIO_BAR * peer.relative_rms;
        let verdict = match (finite, within) {
            (false, _) => "not finite",
            (_, true) => "near enough",
            (_, false) => "TOO FAR",
        };
        println!(
            "{name:<20} {relative_rms:>10.2e} {:>10.2e} {:>7}  {verdict:<12} {largest:>10.2e} {:>10.2e}",
            peer.relative_rms,
            format!("{ratio:.2}×"),
            peer.largest,
        );
        self.results.push(json!({
            "stage": stage, "result": name, "relative_rms": relative_rms, "largest": largest, "finite": finite,
            "torch_relative_rms": peer.relative_rms, "torch_largest": peer.largest, "ratio": ratio,
            "near_enough": within,
        }));
        if !within {
            self.failed.push(name.to_owned());
        }
    }
}
