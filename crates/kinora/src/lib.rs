//! Kinora for Rust programs: pipelines that turn a still image into a video, and the files they read and write.

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
pub use image_to_video::ImageToVideo;
/// GPUs: their kernels, and the compiler of these.
#[cfg(feature = "cuda")]
pub use kinora_cuda as cuda;
pub use kinora_graph::Tensor;
/// Models by their parts: folders, weights, the hub, networks, schedulers.
pub use kinora_models as models;
pub use kinora_models::image::RgbImage;
pub use kinora_profile::{self as profile, quantity};
/// A simulated GPU, for kernels.
#[cfg(feature = "simulator")]
pub use kinora_ptx as ptx;
/// What runs networks: the traits of a backend, and what they share.
pub use kinora_runtime as runtime;
