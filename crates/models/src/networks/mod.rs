//! Networks as functions that build graphs, driven by the `config.json` of their folder.

mod attention;
mod clip_layer;
pub mod clip_text;
pub mod clip_vision;
pub mod controlnet;
pub mod denoise;
mod error;
mod fixed;
pub mod frame;
mod layers;
pub mod memory;
mod pixels;
mod resnet;
pub mod step_cache;
mod time_layers;
pub mod tiny_vae;
mod transformer_block;
pub mod unet;
pub mod unet2d;
mod unet_blocks;
mod unet_levels;
pub mod vae;

pub use error::NetworkError;
pub use pixels::Pixels;
pub use unet_blocks::Residuals;
