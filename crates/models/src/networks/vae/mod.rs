//! The autoencoder between pixels and latents: `AutoencoderKLTemporalDecoder` of diffusers, whose decoder sees the frames of a
//! clip together, and `AutoencoderKL`, which decodes each image by itself. Both have the same encoder.
//!
//! Its weights have the names that diffusers writes: an attention's are `to_q`, `to_k`, `to_v` and `to_out.0`. Weights files
//! may have the older names as well: see [`crate::weights::Weights::tensor`].

mod attention;
mod config;
mod decoder;
mod encoder;

pub use config::VaeConfig;
pub use decoder::{Decode, decoder};
pub use encoder::{Encode, encoder};
pub(crate) use {decoder::decode, encoder::encode};

pub use super::pixels::Pixels;

/// Added to the variances of the norms of single images.
const EPSILON: f32 = 1e-6;
