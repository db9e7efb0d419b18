//! Which frames of live video fit which machine, and about how fast they are there: planned for GPUs that are not here.

use serde::Serialize;

use super::{LiveConfigs, LiveEstimate, LiveSettings, estimate::Request};
use crate::image_to_video::{
    GenerateError, Precision,
    hardware::{MACHINES, Machine},
    nearest_side,
};

/// What an H200 reaches of its published rate over a frame of SD-Turbo with the tiny autoencoder: 1.02 TFLOP, in the 4.03 ms that
/// were measured before upsamplers were folded (`bench/results/h200/live`). Other GPUs have not been measured, and are taken to reach the same share.
const GPU_SHARE: f64 = 0.255;

/// Shares of the sides that are tried, in eighths.
const EIGHTHS: [usize; 7] = [8, 7, 6, 5, 4, 3, 2];

/// Live video on a machine.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LiveFit {
    /// The machine.
    pub machine: Machine,
    /// The frames that fit; `None` if not even the smallest that were tried do.
    pub frame: Option<FittingFrame>,
}

/// Frames that fit a machine: those that were asked for, or the nearest to them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FittingFrame {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// How weights and activations are stored.
    pub precision: Precision,
    /// The memory of the stream, in bytes, as it is planned.
    pub peak_bytes: usize,
    /// About how many frames per second are drawn: a frame's arithmetic at the share of the published rate that was measured on one
    /// GPU and one CPU. An estimate, not a measurement.
    pub estimated_frames_per_second: f64,
}

/// Plans live video for each of [`MACHINES`]: f16 on GPUs, f32 on a CPU, and what fits if that does not.
///
/// # Errors
/// If the settings or the configurations are refused.
pub fn live_fits(configs: &LiveConfigs, settings: &LiveSettings) -> Result<Vec<LiveFit>, GenerateError> {
    let fit = |machine: Machine| Ok(LiveFit { frame: fit(configs, settings, &machine)?, machine });
    MACHINES.into_iter().map(fit).collect()
}

fn fit(
    configs: &LiveConfigs,
    settings: &LiveSettings,
    machine: &Machine,
) -> Result<Option<FittingFrame>, GenerateError> {
    let (backend, first) = machine.backend();
    // Half precision first: it costs less of the picture than a smaller one.
    let precisions: &[Precision] = if first == Precision::F32 { &[first, Precision::F16] } else { &[first] };
    for settings in sizes(configs, settings) {
        for &precision in precisions {
            let request = Request {
                configs,
                settings: &settings,
                precision,
                backend: &*backend,
                unet: None,
                input: None,
            };
            let estimate = request.estimate()?;
            if estimate.peak_bytes() <= machine.budget() {
                return Ok(Some(fitting(machine, &settings, precision, &estimate)));
            }
        }
    }
    Ok(None)
}

/// The settings, and the same with smaller frames.
fn sizes(configs: &LiveConfigs, settings: &LiveSettings) -> Vec<LiveSettings> {
    let unit = configs.side_unit();
    let part = |side: usize, eighths: usize| match eighths {
        8 => side,
        _ => nearest_side(side * eighths / 8, unit),
    };
    let smaller = |eighths: usize| {
        settings.clone().width(part(settings.width, eighths)).height(part(settings.height, eighths))
    };
    let mut sizes: Vec<LiveSettings> = EIGHTHS.into_iter().map(smaller).collect();
    sizes.dedup();
    sizes
}

fn fitting(
    machine: &Machine,
    settings: &LiveSettings,
    precision: Precision,
    estimate: &LiveEstimate,
) -> FittingFrame {
    FittingFrame {
        width: settings.width,
        height: settings.height,
        precision,
        peak_bytes: estimate.peak_bytes(),
        estimated_frames_per_second: machine.seconds(estimate.flops_per_frame(), GPU_SHARE).recip(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_within_the_memory() {
        let configs = LiveConfigs::preset("sdxl-turbo").unwrap();
        let settings = LiveSettings::for_configs(&configs).width(2048).height(2048);
        let fits = live_fits(&configs, &settings).unwrap();
        assert_eq!(fits.len(), MACHINES.len());
        let frame_of = |name: &str| {
            let fit = fits.iter().find(|fit| fit.machine.name.starts_with(name)).unwrap();
            let frame = fit.frame.clone().unwrap_or_else(|| panic!("nothing fits {name}"));
            assert!((frame.peak_bytes as u64) < fit.machine.memory_bytes, "{name}");
            frame
        };
        // The UNet alone has 2.6 billion parameters: 5 GB in f16, so a card of 8 GB draws smaller frames than one of 80 GB.
        let (small, large) = (frame_of("RTX 4060"), frame_of("H100"));
        assert_eq!((large.width, large.height, large.precision), (2048, 2048, Precision::F16));
        assert!(small.width < 2048 && small.width.is_multiple_of(configs.side_unit()), "{small:?}");
    }

    /// The share is the measured one: SD-Turbo's frame took 4.03 ms on an H200, whose tensor cores are an H100's.
    #[test]
    fn an_estimate_agrees_with_what_was_measured() {
        let configs = LiveConfigs::preset("sd-turbo").unwrap().tiny_autoencoder().unwrap();
        let fits = live_fits(&configs, &LiveSettings::for_configs(&configs)).unwrap();
        let h100 = fits.iter().find(|fit| fit.machine.name.starts_with("H100")).unwrap();
        let rate = h100.frame.as_ref().unwrap().estimated_frames_per_second;
        assert!((rate * 4.03e-3 - 1.0).abs() < 0.05, "{rate} frames per second");
    }
}
