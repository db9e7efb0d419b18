//! Fits a calibration's constants to what was measured.

use kinora_cuda::simulation::CallPrediction;
use kinora_ptx::Calibration;
use serde_json::{Value, json};

use crate::pairs::Pair;

/// A pair with its prediction.
pub struct Measured {
    pub pair: Pair,
    pub prediction: CallPrediction,
}

impl Measured {
    /// The measured and the predicted seconds with a calibration. `plain` is the calibration of the prediction; the parts are
    /// weighed anew, while the simulation of the blocks stays as it is.
    pub fn times(&self, calibration: &Calibration, plain: &Calibration) -> (f64, f64) {
        let launches = self.prediction.launches.iter().enumerate();
        let predicted = launches.map(|(i, (_, launch))| {
            let launching = if i == 0 { calibration.launch_seconds } else { calibration.following_seconds };
            let working = calibration.combined(
                launch.multiprocessor_seconds * plain.clock / calibration.clock,
                launch.l2_seconds * plain.l2 / calibration.l2,
                launch.dram_seconds * plain.dram / calibration.dram,
            );
            launching.unwrap_or(launch.launch_seconds) + working
        });
        (self.pair.milliseconds / 1e3, predicted.sum())
    }

    pub fn json(&self, calibrated: Option<f64>, plain: &Calibration) -> Value {
        let first = self.prediction.launches.first().map(|(_, launch)| launch);
        json!({
            "family": self.pair.family,
            "call": self.pair.signature,
            "way": self.pair.way,
            "measured_ms": self.pair.milliseconds,
            "predicted_ms": 1e3 * self.times(plain, plain).1,
            "calibrated_ms": calibrated,
            "calibrates": self.pair.calibrates,
            "launches": self.prediction.launches.len(),
            "limiter": first.map(|launch| launch.limiter),
            "next_limiter": first.map(|launch| launch.next_limiter),
            "occupancy_blocks": first.map(|launch| launch.occupancy.blocks),
            "sampled_blocks": first.map(|launch| launch.sampled_blocks),
            "blocks": first.map(|launch| launch.blocks),
        })
    }
}

/// How often all constants are tried, one after the other.
const ROUNDS: usize = 12;

/// The constants with the least error on the calibration half, and the sum of its errors. It is a coordinate descent with
/// shrinking steps. The shares of the memory and of the tensor cores stay as they are in `start`: the former is measured, since
/// hardly a pair is limited by memory alone, and the latter affects the simulation itself.
pub fn fit(measured: &[Measured], plain: &Calibration, start: Calibration) -> (Calibration, f64) {
    let half: Vec<&Measured> = measured.iter().filter(|one| one.pair.calibrates).collect();
    let error = |calibration: &Calibration| -> f64 {
        let one = |measured: &&Measured| {
            let (expected, predicted) = measured.times(calibration, plain);
            (predicted / expected - 1.0).abs()
        };
        half.iter().map(one).sum()
    };
    let launch = half.first().and_then(|one| one.prediction.launches.first());
    let launch = launch.map_or(4e-6, |(_, launch)| launch.launch_seconds);
    let mut best =
        Calibration { launch_seconds: Some(launch), following_seconds: Some(launch / 4.0), ..start };
    let mut least = error(&best);
    for round in 0..ROUNDS {
        let step = 1.3f64.powf(0.7f64.powi(round as i32));
        for (constant, most) in MOST.into_iter().enumerate() {
            for factor in [step, 1.0 / step] {
                let mut tried = best.clone();
                let value = constant_of(&mut tried, constant);
                *value *= factor;
                let too_much = *value > most;
                let found = error(&tried);
                if found < least && !too_much {
                    (best, least) = (tried, found);
                }
            }
        }
    }
    (best, least)
}

const CONSTANTS: usize = 5;

/// Upper bounds of the constants. Clocks are not faster than published. The L2 cache may deliver more: simultaneous requests of
/// several multiprocessors for the same data are merged on the way to it, so that its slices see 0.52 to 0.64 of what GEMMs and
/// convolutions read on an H200, according to Nsight Compute.
const MOST: [f64; CONSTANTS] = [1.0, 1.0 / 0.52, f64::INFINITY, f64::INFINITY, f64::INFINITY];

fn constant_of(calibration: &mut Calibration, number: usize) -> &mut f64 {
    match number {
        0 => &mut calibration.clock,
        1 => &mut calibration.l2,
        2 => &mut calibration.overlap,
        3 => calibration.launch_seconds.get_or_insert(4e-6),
        _ => calibration.following_seconds.get_or_insert(1e-6),
    }
}
