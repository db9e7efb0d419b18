//! The text encoder that gives a diffusion model what a prompt asks for: `CLIPTextModel` and
//! `CLIPTextModelWithProjection` of transformers.
//!
//! Its weights have the names of published files, which begin with `text_model.`.

mod config;
mod encoder;

pub use config::ClipTextConfig;
pub use encoder::{TextEncode, encoder};
