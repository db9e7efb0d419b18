#![doc = include_str!("../README.md")]

pub mod device;
pub mod doctor;
pub mod image_to_video;
pub mod memory;
#[cfg(feature = "model-in-the-box")]
pub mod model_in_the_box;
pub mod photo;
mod setters;
pub mod video;

pub use device::Device;
pub use image_to_video::{Clip, ImageToVideo, LoadOptions, Settings};
/// GPUs: their kernels, and the compiler of these.
#[cfg(feature = "cuda")]
pub use kinora_cuda as cuda;
pub use kinora_graph::Tensor;
pub use kinora_models::{folder::ModelFolder, image::RgbImage};
/// Quantities as people read them: bytes, times, FLOPs.
pub use kinora_profile::quantity;
/// A simulated GPU, for kernels.
#[cfg(feature = "simulator")]
pub use kinora_ptx as ptx;
/// What runs networks: the traits of a backend, and what they share.
pub use kinora_runtime as runtime;

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
