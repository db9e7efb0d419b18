//! What is said about a video that was drawn.

use std::{path::PathBuf, time::Duration};

use kinora::{
    Live, LiveSettings,
    video::{WrittenVideo, input::VideoInfo},
};
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
    /// Whether frames that come while another is drawn are dropped.
    realtime: bool,
    /// Frames that came while another was drawn.
    pub dropped: u64,
    /// How many frames later than its own a drawing was shown, at most.
    pub late: usize,
    /// Frames that were like the one before.
    pub repeated: u64,
    pub changes: u64,
    /// Changes that came too late to take effect.
    pub unused: usize,
    /// What was chosen to keep a deadline, and why.
    pub deadline: Option<String>,
    times: Vec<Duration>,
    files: Vec<PathBuf>,
    frames: usize,
    name: String,
    /// Why it ended before its input did, if so.
    ended: Option<&'static str>,
}

impl Report {
    pub fn new(info: &VideoInfo, realtime: bool) -> Report {
        Report { total: info.frames, warnings: info.notes.clone(), realtime, ..Report::default() }
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

    /// The program that read standard output has ended, after so many frames: no error, since it has all that it wanted.
    pub fn reader_is_gone(&mut self, frames: usize) {
        self.frames = frames;
        "standard output".clone_into(&mut self.name);
        self.ended = Some("its reader has ended");
    }

    pub fn end(&mut self, written: WrittenVideo, stopped: bool) {
        self.frames = written.frames;
        self.name = match written.files.as_slice() {
            [] => "standard output".to_owned(),
            [first, .., last] => format!("{} … {}", first.display(), last.display()),
            // A picture of its own is numbered, too.
            [only] => only.display().to_string(),
        };
        self.files = written.files;
        self.ended = stopped.then_some("stopped early");
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

    /// What drawing a frame took, from its bytes to the result's. Nothing if none was drawn.
    fn latency(&self) -> Option<String> {
        let milliseconds = |share| self.percentile(share).as_secs_f64() * 1e3;
        let drawn = !self.times.is_empty();
        drawn.then(|| format!("p50 {:.1} ms, p99 {:.1} ms a frame", milliseconds(0.5), milliseconds(0.99)))
    }

    /// What was written, in a line for a log.
    pub fn line(&self) -> String {
        let dropped = (self.realtime || self.dropped > 0).then(|| format!("{} dropped", self.dropped));
        let facts = [
            Some(self.count()),
            dropped,
            self.latency(),
            Some(format!("seed {}", self.seed())),
            self.ended.map(str::to_owned),
        ];
        let to = if self.files.is_empty() { "to " } else { "" };
        format!("wrote {to}{} ({})", self.name, facts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }

    /// The video and what it took.
    pub fn summary(&self) -> String {
        let mut text = format!("{}: {}, seed {}", self.name, self.count(), self.seed());
        if let Some(ended) = self.ended {
            text += &format!(", {ended}");
        }
        if let Some(latency) = self.latency() {
            text += &format!("\nfrom the frame's bytes to the result's: {latency}");
        }
        match self.late {
            0 => {}
            1 => text += "; shown 1 frame later",
            late => text += &format!("; shown {late} frames later"),
        }
        if self.repeated > 0 {
            text += &format!("; {} shown again because the input was similar", self.repeated);
        }
        if self.realtime || self.dropped > 0 {
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
            "changes_unused": self.unused,
            "stopped": self.ended.is_some(),
            "device": self.device,
            "settings": self.settings,
            "frame_ms": { "p50": milliseconds(0.5), "p99": milliseconds(0.99), "max": milliseconds(1.0) },
            "deadline": self.deadline,
            "warnings": self.warnings,
        })
    }
}
