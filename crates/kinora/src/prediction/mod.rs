//! How long a clip, or a frame of live video, would take on a GPU that is not here.
//!
//! The networks are planned for the chip, every kernel that they would launch is compiled for it, and the simulator predicts each distinct
//! launch from a sample of its blocks. The sum is a prediction from published figures, not a measurement: of H100 and H200
//! with the constants that were measured on an H200, of other chips without any. It leaves out what a GPU does not compute:
//! reading weights, the photo, the video's file.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use kinora::{
//!     Settings,
//!     image_to_video::{Configs, Precision},
//!     prediction::{ClipRequest, predict_clip},
//!     simulator::ChipSpec,
//! };
//!
//! let configs = Configs::svd();
//! let settings = Settings::for_configs(&configs).steps(10);
//! let request = ClipRequest { configs: &configs, settings: &settings, precision: Precision::F16 };
//! let clip = predict_clip(&request, &ChipSpec::t4(), None, &|_| ControlFlow::Continue(()))?;
//! println!("{:.1} s, and never below {:.1} s", clip.seconds, clip.floor_seconds);
//! # Ok::<(), kinora::image_to_video::GenerateError>(())
//! ```

mod clip;
mod live;
mod networks;
mod reach;

use std::ops::ControlFlow;

pub use clip::{ClipPrediction, ClipRequest, predict_clip};
pub use live::{FramePrediction, FrameRequest, predict_frame};
pub use networks::{KindPrediction, LayerPrediction, LimitShare, NetworkPrediction};
pub use reach::{Reached, ReachedBy, reach};
use serde::Serialize;

/// What a prediction is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PredictionStage {
    /// Compiling kernels; each counts twice, once for its virtual and once for its machine code.
    Compile,
    /// Simulating launches.
    Simulate,
}

/// How far a prediction is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PredictionProgress {
    /// What it is doing.
    pub stage: PredictionStage,
    /// How much of it is done.
    pub done: usize,
    /// How much there is in all.
    pub total: usize,
}

/// An observer of a prediction, which may stop it. It is called from several threads.
pub type ObservePrediction<'a> = dyn Fn(&PredictionProgress) -> ControlFlow<()> + Sync + 'a;
