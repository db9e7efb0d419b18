//! Kinora for Rust programs: pipelines that turn a still image into a video, and the files they read and write.

pub mod image_to_video;
pub mod photo;
pub mod video;

pub use image_to_video::ImageToVideo;
