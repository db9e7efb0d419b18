//! Which clip would reach a number of frames per second on a chip.

use kinora_ptx::{Calibration, ChipSpec};
use serde::Serialize;

use super::{ClipPrediction, ClipRequest, ObservePrediction, predict_clip};
use crate::image_to_video::{Estimate, GenerateError, PartEstimate, Settings, Stage, nearest_side};

/// Shares of the sides that are tried, in eighths.
const EIGHTHS: [usize; 7] = [8, 7, 6, 5, 4, 3, 2];

/// Steps that are tried, beside those that were asked for. Few need a model that was trained for few.
const STEPS: [usize; 7] = [10, 8, 6, 4, 3, 2, 1];

/// The share of the frames that is tried beside all of them.
const FEWER_FRAMES: [usize; 2] = [4, 7];

/// How many settings are predicted launch by launch for a rate, at most.
const MOST_PREDICTED: usize = 3;

/// The settings that would reach a rate.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Reached {
    /// The rate, in generated frames per second.
    pub frames_per_second: f64,
    /// What reaches it, the most work first: the clip that was asked for, or else of each number of steps and frames the largest
    /// picture, unless another has as much of everything. None if nothing that was tried does.
    pub by: Vec<ReachedBy>,
}

/// Settings, and the rate that they reach.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct ReachedBy {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Frames.
    pub frames: usize,
    /// Denoising steps.
    pub steps: usize,
    /// Generated frames per second.
    pub frames_per_second: f64,
    /// Whether every launch was predicted; otherwise the rate is scaled from another clip's by the networks' operations.
    pub predicted: bool,
}

impl ReachedBy {
    /// Settings at a rate.
    fn new(settings: &Settings, steps: usize, frames_per_second: f64, predicted: bool) -> ReachedBy {
        let Settings { width, height, frames, .. } = *settings;
        ReachedBy { width, height, frames, steps, frames_per_second, predicted }
    }

    /// Whether it is at least as much in every respect.
    fn has_as_much_as(&self, other: &ReachedBy) -> bool {
        self.width * self.height >= other.width * other.height
            && self.frames >= other.frames
            && self.steps >= other.steps
    }

    fn work(&self) -> usize {
        self.width * self.height * self.frames * self.steps
    }
}

/// A size and a number of frames, with its networks' operations.
struct Tried {
    settings: Settings,
    estimate: Estimate,
}

/// Which settings would reach some rates, the least of them first. The rates are scaled from a clip's prediction; what reaches one
/// with the most work is then predicted itself.
///
/// # Errors
/// As [`predict_clip`].
pub fn reach(
    request: &ClipRequest<'_>,
    chip: &ChipSpec,
    calibration: Option<&Calibration>,
    from: &ClipPrediction,
    rates: &[f64],
    observe: &ObservePrediction<'_>,
) -> Result<Vec<Reached>, GenerateError> {
    let mut tried = Vec::new();
    for settings in grid(request) {
        let estimate = ClipRequest { settings: &settings, ..*request }.estimate(chip)?;
        tried.push(Tried { settings, estimate });
    }
    rates.iter().map(|&rate| reach_one(request, chip, calibration, from, (rate, &tried), observe)).collect()
}

fn reach_one(
    request: &ClipRequest<'_>,
    chip: &ChipSpec,
    calibration: Option<&Calibration>,
    from: &ClipPrediction,
    (rate, tried): (f64, &[Tried]),
    observe: &ObservePrediction<'_>,
) -> Result<Reached, GenerateError> {
    if from.frames_per_second >= rate {
        let asked = ReachedBy::new(request.settings, request.settings.steps, from.frames_per_second, true);
        return Ok(Reached { frames_per_second: rate, by: vec![asked] });
    }
    let mut by = largest(from, rate, tried, request.settings.steps);
    for one in by.iter_mut().take(MOST_PREDICTED) {
        let settings = request.settings.clone().width(one.width).height(one.height);
        let settings = settings.frames(one.frames).decode_chunk(one.frames).steps(one.steps);
        let clip =
            predict_clip(&ClipRequest { settings: &settings, ..*request }, chip, calibration, observe)?;
        one.frames_per_second = clip.frames_per_second;
        one.predicted = true;
        if one.frames_per_second >= rate {
            break;
        }
    }
    // What was predicted may fall short of what was scaled.
    by.retain(|one| one.frames_per_second >= rate);
    Ok(Reached { frames_per_second: rate, by })
}

/// What reaches a rate by scaling, without what another has as much of.
fn largest(from: &ClipPrediction, rate: f64, tried: &[Tried], most_steps: usize) -> Vec<ReachedBy> {
    let mut by: Vec<ReachedBy> = Vec::new();
    for steps in steps(most_steps) {
        for Tried { settings, estimate } in tried {
            let scaled = settings.frames as f64 / scaled_seconds(from, estimate, steps);
            let one = ReachedBy::new(settings, steps, scaled, false);
            // Steps and sizes fall, so that what has as much of everything came before.
            if scaled >= rate && !by.iter().any(|known| known.has_as_much_as(&one)) {
                by.push(one);
            }
        }
    }
    by.sort_by_key(|one| std::cmp::Reverse(one.work()));
    by
}

/// The clip that was asked for and smaller ones, the largest first.
fn grid(request: &ClipRequest<'_>) -> Vec<Settings> {
    let (unit, asked) = (request.configs.side_unit(), request.settings);
    let side = |side: usize, eighths: usize| match eighths {
        8 => side,
        _ => nearest_side(side * eighths / 8, unit),
    };
    let [part, whole] = FEWER_FRAMES;
    let mut grid = Vec::new();
    for eighths in EIGHTHS {
        for frames in [asked.frames, asked.frames * part / whole] {
            let size = asked.clone().width(side(asked.width, eighths)).height(side(asked.height, eighths));
            grid.push(size.frames(frames.max(1)).decode_chunk(frames.max(1)));
        }
    }
    grid.dedup();
    grid
}

/// The numbers of steps that are tried.
fn steps(asked: usize) -> impl Iterator<Item = usize> {
    [asked].into_iter().chain(STEPS.into_iter().filter(move |&steps| steps < asked))
}

/// The seconds of a clip, if each stage reaches the share of the chip's rate that it reaches in the clip that was predicted.
fn scaled_seconds(from: &ClipPrediction, estimate: &Estimate, steps: usize) -> f64 {
    let seconds_per_flop = |stage: Stage| {
        let of_stage = || from.networks.iter().filter(|network| network.stage == stage);
        let flops: u64 = of_stage().map(|network| network.flops).sum();
        of_stage().map(|network| network.seconds).sum::<f64>() / (flops.max(1) as f64)
    };
    let seconds = |part: &PartEstimate| {
        let runs = if part.stage == Stage::Denoise { steps } else { part.runs };
        (part.flops as f64 * runs as f64 + part.flops_once as f64) * seconds_per_flop(part.stage)
    };
    estimate.parts.iter().map(seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        image_to_video::{Configs, Precision},
        prediction::NetworkPrediction,
    };

    /// A prediction in which every stage takes so many seconds for each of its operations.
    fn even(request: &ClipRequest<'_>, chip: &ChipSpec, seconds_per_flop: f64) -> ClipPrediction {
        let estimate = request.estimate(chip).unwrap();
        let networks: Vec<NetworkPrediction> = estimate
            .parts
            .iter()
            .map(|part| {
                let flops = part.flops * part.runs as u64 + part.flops_once;
                let seconds = flops as f64 * seconds_per_flop;
                NetworkPrediction {
                    name: part.name,
                    stage: part.stage,
                    runs: part.runs,
                    seconds,
                    once_seconds: 0.0,
                    run_seconds: seconds / part.runs as f64,
                    launches: 1,
                    flops,
                    kinds: Vec::new(),
                    calls: Vec::new(),
                }
            })
            .collect();
        let seconds: f64 = networks.iter().map(|network| network.seconds).sum();
        ClipPrediction {
            chip: chip.name.clone(),
            calibration: "none".into(),
            settings: request.settings.clone(),
            precision: request.precision,
            seconds,
            frames_per_second: request.settings.frames as f64 / seconds,
            peak_bytes: 0,
            flops: estimate.flops(),
            peak_flops_per_second: chip.tensor_flops(),
            floor_seconds: 0.0,
            most_frames_per_second: 0.0,
            networks,
        }
    }

    #[test]
    fn what_is_scaled_follows_the_operations_of_the_networks() {
        let (configs, chip) = (Configs::svd(), ChipSpec::t4());
        let settings = Settings::for_configs(&configs).steps(10);
        let request = ClipRequest { configs: &configs, settings: &settings, precision: Precision::F16 };
        let from = even(&request, &chip, 1e-13);
        let estimate = request.estimate(&chip).unwrap();
        assert!((scaled_seconds(&from, &estimate, 10) / from.seconds - 1.0).abs() < 1e-9);
        // Nine steps fewer are nine times the UNet's step less.
        let unet = estimate.unet().unwrap().flops as f64 * 1e-13;
        let one_step = scaled_seconds(&from, &estimate, 1);
        assert!((one_step / 9f64.mul_add(-unet, from.seconds) - 1.0).abs() < 1e-9);

        let tried: Vec<Tried> = grid(&request)
            .into_iter()
            .map(|settings| Tried {
                estimate: ClipRequest { settings: &settings, ..request }.estimate(&chip).unwrap(),
                settings,
            })
            .collect();
        let unit = configs.side_unit();
        assert!(tried.iter().all(|one| one.settings.width.is_multiple_of(unit)));
        let rate = 2.0 * from.frames_per_second;
        let by = largest(&from, rate, &tried, 10);
        assert!(by.len() > 3, "{by:?}");
        for (at, one) in by.iter().enumerate() {
            assert!(one.frames_per_second >= rate && !one.predicted);
            assert!(one.width * one.height < 1024 * 576 || one.steps < 10, "{one:?}");
            assert!(
                by.iter().enumerate().all(|(other, two)| other == at || !two.has_as_much_as(one)),
                "{by:?}"
            );
        }
        assert!(by.is_sorted_by_key(|one| std::cmp::Reverse(one.work())));
        assert!(largest(&from, 1e9, &tried, 10).is_empty());

        // What was asked for is enough, and nothing else is tried.
        let slow = &[from.frames_per_second / 2.0];
        let stop = |_: &crate::prediction::PredictionProgress| std::ops::ControlFlow::Break(());
        let reached = reach(&request, &chip, None, &from, slow, &stop).unwrap();
        assert_eq!((reached[0].by.len(), reached[0].by[0].steps, reached[0].by[0].width), (1, 10, 1024));
    }
}
