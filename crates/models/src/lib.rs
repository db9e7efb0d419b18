//! Video diffusion models: their weights, their networks as graph builders, their schedulers, and the image processing
//! around them. Nothing here knows which device runs a network.

// What the integration tests share is used by unit tests too, and names the crate from outside.
#[cfg(test)]
extern crate self as kinora_models;

pub mod folder;
pub mod hub;
pub mod image;
pub mod json;
pub mod lora;
pub mod networks;
pub mod noise;
pub mod presets;
pub mod schedulers;
pub mod synthetic;
pub mod tokenizer;
pub mod weights;
