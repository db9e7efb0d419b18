//! The time of a clip.

use kinora_cpu::CpuOps;
use kinora_cuda::{ChipBackend, simulation::chip_of};
use kinora_ptx::{Calibration, ChipSpec};
use serde::Serialize;

use super::{
    ObservePrediction,
    networks::{NetworkPrediction, predict},
};
use crate::image_to_video::{
    Configs, Estimate, GenerateError, Precision, Settings, clip_networks, estimate_on,
};

/// A clip whose time is asked for.
#[derive(Clone, Copy, Debug)]
pub struct ClipRequest<'a> {
    /// The model.
    pub configs: &'a Configs,
    /// The clip.
    pub settings: &'a Settings,
    /// How weights and activations are stored.
    pub precision: Precision,
}

impl ClipRequest<'_> {
    /// What the clip costs on a chip, as it is planned there.
    pub(super) fn estimate(&self, chip: &ChipSpec) -> Result<Estimate, GenerateError> {
        let backend = ChipBackend::new(chip_of(chip), CpuOps::shared());
        estimate_on(self.configs, self.settings, self.precision, &backend)
    }
}

/// What a clip is predicted to take on a chip.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ClipPrediction {
    /// The chip.
    pub chip: String,
    /// The device whose measured constants were used; `none` if published figures alone count.
    pub calibration: String,
    /// The clip.
    pub settings: Settings,
    /// How weights and activations are stored.
    pub precision: Precision,
    /// Seconds of all networks, without reading weights, the photo and the video's file.
    pub seconds: f64,
    /// Generated frames per second.
    pub frames_per_second: f64,
    /// The most memory that is in use at a time, in bytes, as it is planned.
    pub peak_bytes: usize,
    /// Floating-point operations of the clip.
    pub flops: u64,
    /// The operations that the chip's tensor cores do per second at best, as published.
    pub peak_flops_per_second: f64,
    /// The seconds that the operations take at that rate: no program for the chip that does as many can take less.
    pub floor_seconds: f64,
    /// The frames per second of that floor.
    pub most_frames_per_second: f64,
    /// The networks, in the order in which they run.
    pub networks: Vec<NetworkPrediction>,
}

/// Predicts a clip on a chip. Without a calibration, that of the chip counts, if it is known.
///
/// # Errors
/// If the settings are refused, a kernel does not compile or cannot be simulated, there is no compiler, or the observer stops it.
pub fn predict_clip(
    request: &ClipRequest<'_>,
    chip: &ChipSpec,
    calibration: Option<&Calibration>,
    observe: &ObservePrediction<'_>,
) -> Result<ClipPrediction, GenerateError> {
    let known = Calibration::of(chip);
    let calibration = calibration.unwrap_or(&known);
    let precision = request.precision.unmeasured("clips are predicted")?;
    let built = clip_networks(request.configs, request.settings, precision)?;
    let peak_bytes = request.estimate(chip)?.peak_bytes();
    let networks = predict(built, chip, calibration, observe)?;
    let flops = networks.iter().map(|network| network.flops).fold(0, u64::saturating_add);
    let seconds: f64 = networks.iter().map(|network| network.seconds).sum();
    let floor_seconds = flops as f64 / chip.tensor_flops();
    let frames = request.settings.frames as f64;
    Ok(ClipPrediction {
        chip: chip.name.clone(),
        calibration: calibration.device.clone(),
        settings: request.settings.clone(),
        precision,
        seconds,
        frames_per_second: frames / seconds,
        peak_bytes,
        flops,
        peak_flops_per_second: chip.tensor_flops(),
        floor_seconds,
        most_frames_per_second: frames / floor_seconds,
        networks,
    })
}
