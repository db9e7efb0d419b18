//! Networks as functions that build graphs, driven by the `config.json` of their folder.

pub mod clip_vision;
mod error;
mod layers;
mod resnet;
pub mod vae;

pub use error::NetworkError;
