//! Video diffusion models: their weights, their networks as graph builders, their schedulers, and the image processing
//! around them. Nothing here knows which device runs a network.

pub mod image;
pub mod networks;
pub mod noise;
pub mod schedulers;
pub mod synthetic;
