//! What is said about a finished clip.

use std::{path::PathBuf, time::Duration};

use kinora::{
    image_to_video::{Report, Settings, StageTime},
    video::{VideoOptions, WrittenVideo},
};
use kinora_profile::quantity;
use serde_json::{Value, json};

use super::{Maker, Notices, jobs::Job};
use crate::{
    clip::Still,
    quantities::{Bytes, Flops, PictureSize, clock},
};

/// A clip that was made and written.
pub struct Made {
    pub written: WrittenVideo,
    pub report: Report,
    /// What was said while it was made and written.
    pub warnings: Vec<String>,
}

impl Made {
    /// What was written, in a line for a log.
    pub fn line(&self) -> String {
        let Settings { width, height, seed, .. } = self.report.settings;
        let frames = plural(self.written.frames, "frame");
        let to = if self.written.files.is_empty() { "to " } else { "" };
        format!("wrote {to}{} ({frames}, {}, seed {seed})", self.name(), PictureSize { width, height })
    }

    /// The clip and what it took.
    pub fn summary(&self, options: &VideoOptions) -> String {
        let Made { written, report, .. } = self;
        let Settings { width, height, seed, .. } = report.settings;
        let size = PictureSize { width, height };
        let rate = options.frame_rate.as_f64();
        let bytes: u64 =
            written.files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
        let bytes = if bytes > 0 { format!(", {}", Bytes(bytes)) } else { String::new() };
        let seconds = written.frames as f64 / rate;
        let frames = plural(written.frames, "frame");
        format!(
            "{}: {frames} of {size}, plays for {seconds:.1} s at {rate} frames per second{bytes}\n\
             generated in {}: {} frames per second, {} per frame; {} of memory at its peak, seed {seed}",
            self.name(),
            clock(Duration::from_secs_f64(report.seconds)),
            three_digits(report.generated_frames_per_second),
            quantity::time((report.seconds_per_frame * 1e9) as u64),
            Bytes(report.plan.peak_bytes() as u64),
        )
    }

    /// Warnings about files that are not a part of the clip, and that someone should know of.
    pub(super) fn left_behind(&self) -> Vec<String> {
        let follow = match self.written.left.as_slice() {
            [] => None,
            [only] => {
                Some(format!("{} is not a part of the clip but follows its last frame", only.display()))
            }
            [first, .., last] => Some(format!(
                "{} to {} are not a part of the clip but follow its last frame",
                first.display(),
                last.display()
            )),
        };
        let follow = follow.map(|text| {
            format!("{text}: programs that read numbered files will go on there; move them away")
        });
        let killed = self.written.unrestored.iter().map(|folder| {
            format!(
                "{} holds files of a clip whose writer was killed, and other files have taken their names; take out what you \
                 need, then remove it",
                folder.display()
            )
        });
        follow.into_iter().chain(killed).collect()
    }

    /// The name of what was written.
    fn name(&self) -> String {
        match self.written.files.as_slice() {
            [] => "standard output".to_owned(),
            [first, .., last] => format!("{} … {}", first.display(), last.display()),
            // A clip of one frame is numbered, too.
            [only] => only.display().to_string(),
        }
    }

    /// Where the time and the memory went, for `--verbose`.
    pub fn details(&self) -> Vec<String> {
        let report = &self.report;
        let time = |seconds: f64| clock(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        let stage = |stage: &StageTime| format!("{} {}", stage.stage.describe(), time(stage.seconds));
        let stages: Vec<String> = report.stages.iter().map(stage).collect();
        let mut lines = vec![format!("time: {}", stages.join(", "))];
        if let (Some(&first), Some(most)) =
            (report.step_seconds.first(), report.step_seconds.iter().copied().reduce(f64::max))
        {
            let least = report.step_seconds.iter().copied().fold(first, f64::min);
            lines.push(format!("{} of {least:.2} to {most:.2} s", plural(report.step_seconds.len(), "step")));
        }
        for load in &report.loads {
            let gpu = load.gpu.map_or_else(String::new, |gpu| {
                format!(
                    ": weights {}, {} compiled in {}, {} found; {} by the plan, {} by the driver",
                    time(gpu.weights_seconds),
                    plural(gpu.kernels_compiled, "kernel"),
                    time(gpu.kernels_seconds),
                    gpu.kernels_found,
                    Bytes(gpu.planned_bytes as u64),
                    Bytes(gpu.driver_bytes as u64),
                )
            });
            lines.push(format!("{} loaded in {}{gpu}", load.part, time(load.seconds)));
        }
        for part in &report.plan.parts {
            lines.push(format!(
                "{}: {} of weights, {} of activations, {} a run",
                part.name,
                Bytes(part.weight_bytes as u64),
                Bytes(part.arena_bytes as u64),
                Flops(part.flops as f64),
            ));
        }
        let flops = report.plan.flops() as f64;
        lines.push(format!("{} in all, {}/s", Flops(flops), Flops(flops / report.seconds)));
        lines
    }

    /// The same and everything else, for a program.
    pub fn json(&self, job: &Job, still: &Still, notices: &Notices, maker: &Maker<'_>) -> Value {
        // JSON has no way to write a name that is not Unicode.
        let names = |files: &[PathBuf]| {
            files.iter().map(|file| file.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        json!({
            "photo": still.json(job.photo.as_deref()),
            "files": names(&self.written.files),
            "left": names(&self.written.left),
            "frames": self.written.frames,
            "playback_frames_per_second": maker.video.frame_rate.as_f64(),
            "quality": maker.video.quality,
            "notes": notices.notes,
            "warnings": notices.warnings,
            "memory_limit": maker.order.limit,
            "report": self.report,
        })
    }
}

/// A number above 0 with three digits that count: `0.0123`, `4.56`, `789`.
fn three_digits(number: f64) -> String {
    let decimals = (2.0 - number.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{number:.decimals$}")
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (number, text) in
            [(0.01234, "0.0123"), (0.5, "0.500"), (4.556, "4.56"), (78.91, "78.9"), (1234.5, "1234")]
        {
            assert_eq!(three_digits(number), text);
        }
    }
}
