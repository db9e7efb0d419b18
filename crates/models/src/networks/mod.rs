//! Networks as functions that build graphs, driven by the `config.json` of their folder.

pub mod denoise;
mod layers;
mod resnet;
pub mod unet;
