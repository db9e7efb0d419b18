//! How a clip was made.

use std::time::Instant;

use kinora_models::schedulers::SchedulerKind;
use kinora_profile::{OpenSpan, Profiler};
use kinora_runtime::DeviceLoad;
use serde::Serialize;

use super::{Estimate, Precision, Settings, Stage};

/// How a clip was made.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The model's folder.
    pub model: String,
    /// What it ran on.
    pub device: String,
    /// How weights and activations were stored.
    pub precision: Precision,
    /// The scheduler that ran.
    pub scheduler: SchedulerKind,
    /// The settings, with the seed.
    pub settings: Settings,
    /// Seconds from the plan to the last frame; with measuring, if activations were measured for it.
    pub seconds: f64,
    /// [`seconds`](Self::seconds) divided by the frames.
    pub seconds_per_frame: f64,
    /// How many frames were made in a second, loading and everything else included. It is not the rate that a file plays at.
    pub generated_frames_per_second: f64,
    /// Seconds of each stage, in the order in which they first began.
    pub stages: Vec<StageTime>,
    /// Seconds of each denoising step.
    pub step_seconds: Vec<f64>,
    /// Memory and FLOPs, according to the plan that ran.
    pub plan: Estimate,
    /// What loading each network took, in order. Networks kept from the clip before are not included.
    pub loads: Vec<LoadReport>,
}

/// What loading a network took.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LoadReport {
    /// The network.
    pub part: &'static str,
    /// Seconds in all.
    pub seconds: f64,
    /// What it took on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<DeviceLoad>,
}

/// How long a stage took.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Seconds, all parts together.
    pub seconds: f64,
}

/// A stage that has begun. A stage that ends in an error is in the profile, but in no report.
pub(super) struct RunningStage {
    stage: Stage,
    since: Instant,
    span: OpenSpan,
}

impl RunningStage {
    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }
}

/// Measures the stages of a run and reports them to a profiler.
pub(super) struct Stopwatch {
    profiler: Profiler,
    start: Instant,
    stages: Vec<StageTime>,
    steps: Vec<f64>,
    pub loads: Vec<LoadReport>,
}

impl Stopwatch {
    pub fn start(profiler: &Profiler) -> Self {
        Stopwatch {
            profiler: profiler.clone(),
            start: Instant::now(),
            stages: Vec::new(),
            steps: Vec::new(),
            loads: Vec::new(),
        }
    }

    pub fn profiler(&self) -> &Profiler {
        &self.profiler
    }

    /// Begins a stage, or a part of one.
    pub fn begin(&self, stage: Stage) -> RunningStage {
        RunningStage { stage, span: self.profiler.span(stage.name()), since: Instant::now() }
    }

    /// Adds the time since a stage began to that stage.
    pub fn end(&mut self, running: RunningStage) {
        let RunningStage { stage, since, span } = running;
        let seconds = since.elapsed().as_secs_f64();
        drop(span);
        match self.stages.iter_mut().find(|time| time.stage == stage) {
            Some(time) => time.seconds += seconds,
            None => self.stages.push(StageTime { stage, seconds }),
        }
    }

    /// Records a step that began at this moment and ends now.
    pub fn add_step(&mut self, since: Instant) {
        self.steps.push(since.elapsed().as_secs_f64());
    }

    /// All the times.
    pub fn stop(self) -> Times {
        let Stopwatch { start, stages, steps, loads, .. } = self;
        Times { seconds: start.elapsed().as_secs_f64(), stages, steps, loads }
    }
}

/// The times of a run.
pub(super) struct Times {
    pub seconds: f64,
    pub stages: Vec<StageTime>,
    pub steps: Vec<f64>,
    pub loads: Vec<LoadReport>,
}
