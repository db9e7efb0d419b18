//! What is said about a video that was drawn.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kinora::{
    Live, LiveSettings,
    video::{WrittenVideo, input::VideoInfo},
};
use kinora_profile::quantity;
use serde_json::{Value, json};

/// More times than anyone needs for a percentile: a stream may have no end.
const MOST_TIMES: usize = 1 << 20;

/// What is known of a video, as it is drawn.
#[derive(Default)]
pub struct Report {
    total: Option<u64>,
    device: String,
    settings: Option<LiveSettings>,
    pub warnings: Vec<String>,
    /// Frames that came while another was drawn.
    pub dropped: u64,
    /// How many frames later than its own a drawing was shown, at most.
    pub late: usize,
    /// Frames that were like the one before.
    pub repeated: u64,
    pub changes: u64,
    /// What was chosen to keep a deadline, and why.
    pub deadline: Option<String>,
    times: Vec<Duration>,
    files: Vec<PathBuf>,
    frames: usize,
    name: String,
    stopped: bool,
}

impl Report {
    pub fn new(info: &VideoInfo) -> Report {
        Report { total: info.frames, warnings: info.notes.clone(), ..Report::default() }
    }

    /// How many frames the input has, if it says so.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    pub fn begin(&mut self, live: &Live, settings: &LiveSettings, left_out: usize) {
        self.device = live.device();
        self.settings = Some(settings.clone());
        self.warnings.extend(super::drawing::prompt_warning(left_out));
    }

    /// A frame was drawn in this time.
    pub fn drawn(&mut self, time: Duration) {
        if self.times.len() < MOST_TIMES {
            self.times.push(time);
        }
    }

    pub fn end(&mut self, output: &Path, written: WrittenVideo, stopped: bool) {
        self.frames = written.frames;
        self.name = match written.files.as_slice() {
            [] => "standard output".to_owned(),
            [first, .., last] => format!("{} … {}", first.display(), last.display()),
            [_] => output.display().to_string(),
        };
        self.files = written.files;
        self.stopped = stopped;
    }

    /// The time that a share of the frames took at most.
    fn percentile(&self, share: f64) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = (times.len() as f64 * share).ceil() as usize;
        times.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }

    fn count(&self) -> String {
        if self.frames == 1 { "1 frame".to_owned() } else { format!("{} frames", self.frames) }
    }

    fn seed(&self) -> u64 {
        self.settings.as_ref().map_or(0, |settings| settings.seed)
    }

    /// What was written, in a line for a log.
    pub fn line(&self) -> String {
        let end = if self.stopped { ", stopped early" } else { "" };
        format!("wrote {} ({}, seed {}{end})", self.name, self.count(), self.seed())
    }

    /// The video and what it took.
    pub fn summary(&self) -> String {
        let time =
            |share| quantity::time(u64::try_from(self.percentile(share).as_nanos()).unwrap_or(u64::MAX));
        let mut text = format!(
            "{}: {}, seed {}\nfrom the frame's bytes to the result's: half within {}, 99 of 100 within {}",
            self.name,
            self.count(),
            self.seed(),
            time(0.5),
            time(0.99),
        );
        match self.late {
            0 => {}
            1 => text += "; shown 1 frame later",
            late => text += &format!("; shown {late} frames later"),
        }
        if self.repeated > 0 {
            text += &format!("; {} like the one before", self.repeated);
        }
        if self.dropped > 0 {
            text += &format!("; {} dropped", self.dropped);
        }
        text
    }

    /// Everything, for a program.
    pub fn json(&self) -> Value {
        let milliseconds = |share| self.percentile(share).as_secs_f64() * 1e3;
        json!({
            "files": self.files,
            "frames": self.frames,
            "dropped": self.dropped,
            "frames_late": self.late,
            "repeated": self.repeated,
            "changes": self.changes,
            "stopped": self.stopped,
            "device": self.device,
            "settings": self.settings,
            "frame_ms": { "p50": milliseconds(0.5), "p99": milliseconds(0.99), "max": milliseconds(1.0) },
            "deadline": self.deadline,
            "warnings": self.warnings,
        })
    }
}
