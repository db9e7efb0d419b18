//! The small autoencoder between pixels and latents, for live video: `AutoencoderTiny` of diffusers.
//!
//! It has 3×3 convolutions and ReLU alone, no norm and no attention, so that each frame of a video is encoded and decoded by
//! itself, in a fraction of the large autoencoder's time.

mod config;
mod network;

pub use config::TinyVaeConfig;
pub use network::{Batch, decoder, encoder};
pub(crate) use network::{decode, encode};
