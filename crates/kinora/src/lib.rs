#![doc = include_str!("../README.md")]

#[cfg(all(test, unix))]
mod children;
pub mod device;
pub mod doctor;
pub mod files;
pub mod image_to_video;
pub mod live;
pub mod memory;
#[cfg(feature = "model-in-the-box")]
pub mod model_in_the_box;
pub mod photo;
#[cfg(all(feature = "cuda", feature = "simulator"))]
pub mod prediction;
pub mod quantisation;
mod setters;
pub mod video;

pub use device::Device;
pub use image_to_video::{Clip, ImageToVideo, LoadOptions, Settings};
pub use kinora_graph::Tensor;
pub use kinora_models::{folder::ModelFolder, image::RgbImage};
/// Quantities as people read them: bytes, times, FLOPs.
pub use kinora_profile::quantity;
pub use live::{Live, LiveModel, LiveSettings};

/// Models: the hub that they are downloaded from, and what can be wrong with them. The crate `kinora-models` has their parts:
/// networks, weights and schedulers.
pub mod models {
    pub use kinora_models::{
        folder::{EmbeddedModel, FolderError},
        hub,
        image::ImageError,
        networks::NetworkError,
        schedulers::{SchedulerError, SchedulerKind},
        weights::{Variant, WeightsError},
    };
}

/// Where the time of a clip goes. The crate `kinora-profile` makes tables, pages and traces of a profile.
pub mod profile {
    pub use kinora_profile::{Ceilings, Machine, Profile, Profiler};
}

/// What runs networks: the traits of a backend, and what backends share.
pub mod runtime {
    pub use kinora_runtime::{
        Backend, Candidates, Carried, DeviceError, DeviceErrorKind, DeviceLoad, HostFrames, HostOps,
        KernelSet, LoadContext, Loader, Network, NetworkMemory, PlannedNetwork, RunError, SharedWeights,
        StepLoop, StepObserver, StepResults, Stop, Tensors, Tuning, TuningObserver, TuningProgress,
        TuningStage, tensors,
    };
}

/// A simulated GPU: runs the PTX of a kernel on the CPU, checks it and counts what it costs. The crate `kinora-ptx` has the rest.
#[cfg(feature = "simulator")]
pub mod simulator {
    pub use kinora_ptx::{
        Argument, Calibration, Checks, ChipSpec, Counters, DeviceLimits, DeviceOutput, Finding, LaunchConfig,
        Module, Prediction, PtxError, Report, Resource, Simulator,
    };
}
