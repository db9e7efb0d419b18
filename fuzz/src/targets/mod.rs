//! The targets, one file for each crate's or module's subject.

mod graph;
mod hub;
mod live;
mod matrix;
mod model;
mod photo;
mod profile;
mod ptx;
mod results;
mod video;
mod weights;

use crate::{Shape, Target};

/// Every target.
pub static TARGETS: &[Target] = &[
    Target { name: "photo", shape: Shape::Bytes, max_bytes: 4096, run: photo::decode },
    Target { name: "video_stream", shape: Shape::Bytes, max_bytes: 4096, run: video::stream },
    Target { name: "mp4", shape: Shape::Bytes, max_bytes: 8192, run: video::mp4 },
    Target { name: "weights", shape: Shape::Safetensors, max_bytes: 4096, run: weights::file },
    Target { name: "weights_index", shape: Shape::Json, max_bytes: 4096, run: weights::index },
    Target { name: "model_index", shape: Shape::Json, max_bytes: 2048, run: model::model_index },
    Target { name: "defaults", shape: Shape::Json, max_bytes: 1024, run: model::defaults },
    Target { name: "unet", shape: Shape::Json, max_bytes: 4096, run: model::unet },
    Target { name: "vae", shape: Shape::Json, max_bytes: 4096, run: model::vae },
    Target { name: "image_encoder", shape: Shape::Json, max_bytes: 4096, run: model::image_encoder },
    Target { name: "preprocessor", shape: Shape::Json, max_bytes: 2048, run: model::preprocessor },
    Target { name: "tiny_vae", shape: Shape::Json, max_bytes: 2048, run: model::tiny_vae },
    Target { name: "scheduler", shape: Shape::Json, max_bytes: 4096, run: model::scheduler },
    Target { name: "unet2d", shape: Shape::Json, max_bytes: 4096, run: live::unet2d },
    Target { name: "controlnet", shape: Shape::Json, max_bytes: 4096, run: live::controlnet },
    Target { name: "text_encoder", shape: Shape::Json, max_bytes: 2048, run: live::text_encoder },
    Target { name: "tokenizer", shape: Shape::Json, max_bytes: 4096, run: live::tokenizer },
    Target { name: "lora", shape: Shape::Safetensors, max_bytes: 4096, run: live::lora },
    Target { name: "hub_listing", shape: Shape::Json, max_bytes: 4096, run: hub::listing },
    Target { name: "hub_headers", shape: Shape::Lines, max_bytes: 2048, run: hub::headers },
    Target { name: "graph", shape: Shape::Json, max_bytes: 4096, run: graph::json },
    Target { name: "ptx", shape: Shape::Lines, max_bytes: 16384, run: ptx::module },
    Target { name: "matrix_market", shape: Shape::Lines, max_bytes: 4096, run: matrix::market },
    Target { name: "matrix_recipe", shape: Shape::Bytes, max_bytes: 128, run: matrix::recipe },
    Target { name: "profile", shape: Shape::Json, max_bytes: 8192, run: profile::json },
    Target { name: "results", shape: Shape::Json, max_bytes: 8192, run: results::json },
];
