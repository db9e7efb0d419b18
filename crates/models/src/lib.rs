//! Video diffusion models: their weights, their networks as graph builders, their schedulers, and the image processing
//! around them. Nothing here knows which device runs a network.

pub mod folder;
pub mod hub;
pub mod networks;
pub mod synthetic;
pub mod weights;
