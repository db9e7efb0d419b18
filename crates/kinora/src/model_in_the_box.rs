//! The model that is a part of the program: small, trained on painted clips by the scripts in `training/`.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use kinora::{ImageToVideo, image_to_video::{LoadOptions, Settings}, model_in_the_box};
//!
//! let model = model_in_the_box::open()?;
//! let settings = Settings::for_model(&model)?;
//! let pipeline = ImageToVideo::new(model, LoadOptions::default())?;
//! let clip = pipeline.generate(&model_in_the_box::still()?, &settings, &mut |_| ControlFlow::Continue(()))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use kinora_models::folder::{EmbeddedModel, FolderError, ModelFolder};

use crate::photo::{Photo, PhotoError};

/// Names files of the model with their contents.
macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../../assets/model/", $path)))),+]
    };
}

static MODEL: EmbeddedModel = EmbeddedModel {
    name: "model-in-the-box",
    files: files![
        "model_index.json",
        "defaults.json",
        "feature_extractor/preprocessor_config.json",
        "image_encoder/config.json",
        "image_encoder/model.safetensors",
        "scheduler/scheduler_config.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ],
};

static STILL: &[u8] = include_bytes!("../../../assets/stills/flyer.png");

/// Opens the model.
///
/// # Errors
/// Only where the program was built from damaged files.
pub fn open() -> Result<ModelFolder, FolderError> {
    ModelFolder::embedded(&MODEL)
}

/// A still to make a clip of where there is no photo.
///
/// # Errors
/// Only where the program was built from a damaged file.
pub fn still() -> Result<Photo, PhotoError> {
    Photo::decode(STILL)
}
