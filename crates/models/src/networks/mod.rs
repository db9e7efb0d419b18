//! Networks as functions that build graphs, driven by the `config.json` of their folder.

mod layers;
mod resnet;
