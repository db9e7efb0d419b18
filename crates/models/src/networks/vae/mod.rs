//! The autoencoder between pixels and latents, whose decoder sees the frames of a clip together:
//! `AutoencoderKLTemporalDecoder` of diffusers.
//!
//! The names of its weights are those of diffusers since 0.15 (`to_q`, `to_k`, `to_v`, `to_out.0`), under which Stable Video
//! Diffusion is published. Older files of other autoencoders call them `query`, `key`, `value` and `proj_attn`.

mod attention;
mod config;
mod decoder;
mod encoder;

pub use config::VaeConfig;
pub use decoder::{Decode, Pixels, decoder};
pub use encoder::{Encode, encoder};

/// Added to the variances of the norms of single images.
const EPSILON: f32 = 1e-6;
