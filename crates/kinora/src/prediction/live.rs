//! The time of a frame of live video.

use kinora_cpu::CpuOps;
use kinora_cuda::{ChipBackend, simulation::chip_of};
use kinora_ptx::{Calibration, ChipSpec};
use serde::Serialize;

use super::{
    ObservePrediction,
    networks::{NetworkPrediction, predict},
};
use crate::{
    LiveSettings,
    image_to_video::{GenerateError, Precision, Stage},
    live::{LiveConfigs, estimate_live_on, live_networks},
};

/// Live video whose time is asked for.
#[derive(Clone, Copy, Debug)]
pub struct FrameRequest<'a> {
    /// The model.
    pub configs: &'a LiveConfigs,
    /// The stream.
    pub settings: &'a LiveSettings,
    /// How weights and activations are stored.
    pub precision: Precision,
}

/// What a frame of live video is predicted to take on a chip.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FramePrediction {
    /// The chip.
    pub chip: String,
    /// The device whose measured constants were used; `none` if published figures alone count.
    pub calibration: String,
    /// The stream.
    pub settings: LiveSettings,
    /// How weights and activations are stored.
    pub precision: Precision,
    /// Seconds of a frame, without its way to the GPU and back; 0 if frames are left as they are.
    pub frame_seconds: f64,
    /// Drawn frames per second; infinite if frames are left as they are.
    pub frames_per_second: f64,
    /// Seconds before the first frame after a new prompt: the text encoders, and what depends on prompts alone.
    pub prompt_seconds: f64,
    /// The memory of the stream, in bytes, as it is planned.
    pub peak_bytes: usize,
    /// Floating-point operations of a frame.
    pub flops_per_frame: u64,
    /// The operations that the chip's tensor cores do per second at best, as published.
    pub peak_flops_per_second: f64,
    /// The seconds that a frame's operations take at that rate.
    pub floor_seconds: f64,
    /// The frames per second of that floor.
    pub most_frames_per_second: f64,
    /// The networks: the text encoders, and that of a frame.
    pub networks: Vec<NetworkPrediction>,
}

/// Predicts a frame of live video on a chip. Without a calibration, that of the chip counts, if it is known.
///
/// # Errors
/// As [`predict_clip`](super::predict_clip).
pub fn predict_frame(
    request: &FrameRequest<'_>,
    chip: &ChipSpec,
    calibration: Option<&Calibration>,
    observe: &ObservePrediction<'_>,
) -> Result<FramePrediction, GenerateError> {
    let known = Calibration::of(chip);
    let calibration = calibration.unwrap_or(&known);
    let backend = ChipBackend::new(chip_of(chip), CpuOps::shared());
    let FrameRequest { configs, settings, precision } = *request;
    let precision = precision.unmeasured("frames are predicted")?;
    let estimate = estimate_live_on(configs, settings, precision, &backend)?;
    let networks = predict(live_networks(configs, settings, precision)?, chip, calibration, observe)?;
    let drawn = |network: &&NetworkPrediction| network.stage == Stage::Draw;
    let frame_seconds: f64 = networks.iter().filter(drawn).map(|network| network.run_seconds).sum();
    let all: f64 = networks.iter().map(|network| network.seconds).sum();
    let flops_per_frame = estimate.flops_per_frame();
    let floor_seconds = flops_per_frame as f64 / chip.tensor_flops();
    Ok(FramePrediction {
        chip: chip.name.clone(),
        calibration: calibration.device.clone(),
        settings: settings.clone(),
        precision,
        frame_seconds,
        frames_per_second: frame_seconds.recip(),
        prompt_seconds: all - frame_seconds,
        peak_bytes: estimate.peak_bytes(),
        flops_per_frame,
        peak_flops_per_second: chip.tensor_flops(),
        floor_seconds,
        most_frames_per_second: floor_seconds.recip(),
        networks,
    })
}
