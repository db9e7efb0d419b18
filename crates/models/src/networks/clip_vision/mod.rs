//! The image encoder that gives a diffusion model what an image shows: `CLIPVisionModelWithProjection` of transformers.

mod config;
mod encoder;

pub use config::ClipVisionConfig;
pub use encoder::encoder;

pub(super) use config::activation;
