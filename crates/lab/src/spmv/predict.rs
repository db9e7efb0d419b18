//! How long a product would take on a chip that is not here.

use kinora_ptx::{Calibration, ChipSpec, Resource};
use serde::Serialize;

use super::job::Job;
use crate::execute::{Device, ExecuteError, Launch, SimulatedDevice};

/// A prediction of all launches of a product.
#[derive(Clone, Debug, Serialize)]
pub struct PredictedProduct {
    /// Seconds, the first launch's start included.
    pub seconds: f64,
    /// The part of these that launching takes.
    pub launch_seconds: f64,
    /// Seconds of the launches that prepare a matrix, 0 if there are none.
    pub preparation_seconds: f64,
    /// What limits the longest launch.
    pub limiter: Resource,
    /// Whether one long row makes all others wait.
    pub straggles: bool,
    /// Bytes to and from the chip's memory.
    pub dram_bytes: f64,
    /// Bytes to and from L2.
    pub l2_bytes: f64,
    /// Registers per thread.
    pub registers: u32,
    /// Blocks that a multiprocessor holds of the longest launch.
    pub resident_blocks: u32,
}

/// The seconds of a launch that follows another one of the same stream.
fn following(chip: &ChipSpec, calibration: &Calibration) -> f64 {
    calibration.following_seconds.unwrap_or(chip.launch_seconds / 4.0)
}

/// Predicts a product by a sample of its blocks, on the data that lie on the device.
///
/// # Errors
/// If the chip would refuse a launch.
pub fn predict(
    device: &SimulatedDevice,
    calibration: &Calibration,
    job: &Job,
    registers: Option<u32>,
) -> Result<PredictedProduct, ExecuteError> {
    let chip = device.simulator().chip();
    let follows = following(chip, calibration);
    let one = |launch: &Launch| {
        let prediction = device.predict(launch, registers)?;
        prediction.ok_or_else(|| ExecuteError::Unsupported("the device does not predict".to_owned()))
    };
    let mut product = PredictedProduct {
        seconds: 0.0,
        launch_seconds: 0.0,
        preparation_seconds: 0.0,
        limiter: Resource::Launch,
        straggles: false,
        dram_bytes: 0.0,
        l2_bytes: 0.0,
        registers: 0,
        resident_blocks: 0,
    };
    for launch in &job.preparation {
        product.preparation_seconds += one(launch)?.seconds;
    }
    let mut longest = 0.0;
    for (number, launch) in job.launches.iter().enumerate() {
        let prediction = one(launch)?;
        let launching = if number == 0 { prediction.launch_seconds } else { follows };
        let mut working = prediction.seconds - prediction.launch_seconds;
        if let Some(straggler) = &job.straggler {
            let alone = one(straggler)?;
            let alone = alone.seconds - alone.launch_seconds;
            product.straggles = alone > working;
            working = working.max(alone);
        }
        product.seconds += launching + working;
        product.launch_seconds += launching;
        product.dram_bytes += prediction.dram_bytes;
        product.l2_bytes += prediction.l2_bytes;
        if working > longest {
            longest = working;
            product.limiter = if product.straggles { Resource::Latency } else { prediction.limiter };
            product.registers = prediction.registers;
            product.resident_blocks = prediction.occupancy.blocks;
        }
    }
    Ok(product)
}
