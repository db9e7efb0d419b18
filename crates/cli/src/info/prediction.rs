//! How long a clip, or a frame of live video, would take on a chip that need not be here.

use std::{
    fmt::Write as _,
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
};

use kinora::{
    LiveSettings,
    image_to_video::{Configs, Precision, Settings},
    live::LiveConfigs,
    prediction::{
        ClipPrediction, ClipRequest, FramePrediction, FrameRequest, LimitShare, NetworkPrediction,
        PredictionProgress, PredictionStage, Reached, ReachedBy, predict_clip, predict_frame, reach,
    },
    quantity,
};
use kinora_ptx::{Calibration, ChipSpec};
use serde_json::json;

use super::{arguments::InfoArgs, text::Table};
use crate::{
    answer,
    display::{Display, Unit},
    failure::Failure,
    print,
    quantities::{Bytes, Flops, PictureSize, grouped},
};

/// The generated frames per second that a clip's settings are looked for.
const RATES: [f64; 2] = [8.0, 12.0];

/// What limits are named for a kind of layer: those that limit at least this share of its time.
const NAMED_LIMIT: f64 = 0.2;

/// Kinds of layers that take less of a network are left out of the table.
const SHOWN_KIND: f64 = 0.005;

/// Predicts a clip, and which settings would reach the rates; prints both.
pub fn run(
    configs: &Configs,
    settings: &Settings,
    precision: Precision,
    chip: &ChipSpec,
    arguments: &InfoArgs,
) -> Result<(), Failure> {
    let calibration = calibration(arguments)?;
    let progress = Bar::new(arguments.json);
    let request = ClipRequest { configs, settings, precision };
    let observe = |step: &PredictionProgress| progress.tell(step);
    let clip = predict_clip(&request, chip, calibration.as_ref(), &observe)?;
    let reached = reach(&request, chip, calibration.as_ref(), &clip, &RATES, &observe)?;
    progress.end();
    if !arguments.json {
        print(&clip_text(&clip, &reached))?;
    }
    answer(arguments.json, json!({"chip": chip, "prediction": clip, "reached": reached}), None)
}

/// Predicts a frame of live video, and prints it.
pub fn run_live(
    configs: &LiveConfigs,
    settings: &LiveSettings,
    precision: Precision,
    chip: &ChipSpec,
    arguments: &InfoArgs,
) -> Result<(), Failure> {
    let calibration = calibration(arguments)?;
    let progress = Bar::new(arguments.json);
    let request = FrameRequest { configs, settings, precision };
    let frame = predict_frame(&request, chip, calibration.as_ref(), &|step| progress.tell(step))?;
    progress.end();
    if !arguments.json {
        print(&frame_text(&frame))?;
    }
    answer(arguments.json, json!({"chip": chip, "prediction": frame}), None)
}

fn calibration(arguments: &InfoArgs) -> Result<Option<Calibration>, Failure> {
    let read = |path| Calibration::read(path).map_err(|error| Failure::Simulation(error.to_string()));
    arguments.calibration.as_deref().map(read).transpose()
}

/// A bar on standard error.
struct Bar(Mutex<Display>);

impl Bar {
    fn new(quiet: bool) -> Bar {
        Bar(Mutex::new(Display::new(quiet, false)))
    }

    fn tell(&self, step: &PredictionProgress) -> ControlFlow<()> {
        let name = match step.stage {
            PredictionStage::Compile => "compiling kernels",
            PredictionStage::Simulate => "simulating kernels",
        };
        let mut display = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        display.advance(name, Unit::Kernels, step.done as u64, step.total as u64);
        ControlFlow::Continue(())
    }

    fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).end_stage();
    }
}

fn clip_text(clip: &ClipPrediction, reached: &[Reached]) -> String {
    let Settings { width, height, frames, steps, .. } = clip.settings;
    let size = PictureSize { width, height };
    let mut text = format!(
        "A clip of {frames} frames, {size}, in {} and {steps} steps on {}: predicted, not measured\n",
        clip.precision, clip.chip
    );
    text += &basis(&clip.calibration);
    text += &tables(&clip.networks, clip.seconds);
    let _ = writeln!(
        text,
        "\n  {} for the clip: {} generated frames per second, {} of memory at the peak",
        seconds(clip.seconds),
        rate(clip.frames_per_second),
        Bytes(clip.peak_bytes as u64),
    );
    text += &floor(
        clip.flops as f64,
        clip.peak_flops_per_second,
        clip.floor_seconds,
        clip.most_frames_per_second,
    );
    text.push('\n');
    reached.iter().for_each(|reached| text += &reached_text(reached));
    text += "  Few steps need a model that was trained for few; times leave out reading weights, the photo and the video's file.\n";
    text
}

fn reached_text(reached: &Reached) -> String {
    let begin = format!("  {} frames per second", rate(reached.frames_per_second));
    if reached.by.is_empty() {
        return format!("{begin}: not with any settings that were tried\n");
    }
    let one = |by: &ReachedBy| {
        let size = PictureSize { width: by.width, height: by.height };
        let steps = if by.steps == 1 { "1 step".to_owned() } else { format!("{} steps", by.steps) };
        let how = if by.predicted { "predicted" } else { "scaled from the above" };
        format!("    {size}, {} frames, {steps}: {} ({how})\n", by.frames, rate(by.frames_per_second))
    };
    format!("{begin} with\n{}", reached.by.iter().map(one).collect::<String>())
}

fn frame_text(frame: &FramePrediction) -> String {
    let LiveSettings { width, height, steps, .. } = frame.settings;
    let size = PictureSize { width, height };
    let steps = if steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") };
    let mut text = format!(
        "A frame of live video, {size}, in {} and {steps} on {}: predicted, not measured\n",
        frame.precision, frame.chip
    );
    text += &basis(&frame.calibration);
    text += &tables(&frame.networks, frame.networks.iter().map(|network| network.seconds).sum());
    if frame.frame_seconds <= 0.0 {
        text += "\n  frames are left as they are\n";
        return text;
    }
    let _ = writeln!(
        text,
        "\n  {} for a frame: {} frames per second; {} before the first after a new prompt; {} of memory",
        seconds(frame.frame_seconds),
        rate(frame.frames_per_second),
        seconds(frame.prompt_seconds),
        Bytes(frame.peak_bytes as u64),
    );
    text += &floor(
        frame.flops_per_frame as f64,
        frame.peak_flops_per_second,
        frame.floor_seconds,
        frame.most_frames_per_second,
    );
    text
}

/// What the prediction rests on.
fn basis(calibration: &str) -> String {
    match calibration {
        "none" => "from the chip's published figures alone\n".to_owned(),
        device => format!("from the chip's published figures, and constants measured on {device}\n"),
    }
}

/// The networks, and then what their layers take by kind.
fn tables(networks: &[NetworkPrediction], all: f64) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut stages = Table::new(["network", "runs", "launches", "a run", "in all", "share"]);
    let mut kinds = Table::new(["network", "kind of layer", "layers", "in all", "share", "limited by"]);
    for network in networks {
        stages.row([
            network.name.to_owned(),
            grouped(network.runs as u64),
            grouped(network.launches as u64),
            seconds(network.run_seconds),
            seconds(network.seconds),
            percent(network.seconds / all),
        ]);
        for kind in network.kinds.iter().filter(|kind| kind.share >= SHOWN_KIND) {
            kinds.row([
                network.name.to_owned(),
                kind.kind.replace('_', " "),
                grouped(kind.calls as u64),
                seconds(kind.seconds),
                percent(kind.share),
                limits(&kind.limits),
            ]);
        }
    }
    format!("{stages}\n{kinds}")
}

fn limits(limits: &[LimitShare]) -> String {
    let named = limits.iter().enumerate().filter(|(place, limit)| *place == 0 || limit.share >= NAMED_LIMIT);
    let text = |limit: &LimitShare| format!("{} {:.0} %", limit.resource.describe(), 100.0 * limit.share);
    named.map(|(_, limit)| text(limit)).collect::<Vec<_>>().join(", ")
}

fn seconds(seconds: f64) -> String {
    quantity::time((seconds * 1e9).round() as u64)
}

/// Frames per second with three digits.
fn rate(frames_per_second: f64) -> String {
    match frames_per_second {
        ..0.0995 => format!("{frames_per_second:.3}"),
        ..9.95 => format!("{frames_per_second:.2}"),
        ..99.5 => format!("{frames_per_second:.1}"),
        _ => format!("{frames_per_second:.0}"),
    }
}

/// What the chip's peak allows.
fn floor(flops: f64, peak_flops_per_second: f64, floor_seconds: f64, most_frames_per_second: f64) -> String {
    format!(
        "  floor: {} at the tensor cores' peak of {} take {}: at most {} frames per second\n",
        Flops(flops),
        quantity::prefixed(peak_flops_per_second, "FLOP/s"),
        seconds(floor_seconds),
        rate(most_frames_per_second),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (frames, text) in
            [(0.0123, "0.012"), (0.949, "0.95"), (8.0, "8.00"), (41.46, "41.5"), (248.1, "248")]
        {
            assert_eq!(rate(frames), text);
        }
    }

    #[test]
    fn what_reaches_a_rate_is_said_plainly() {
        assert_eq!(basis("none"), "from the chip's published figures alone\n");
        assert!(basis("an H200").contains("constants measured on an H200"));
    }
}
