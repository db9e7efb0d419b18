//! The model that is part of the program: small, and trained on painted clips by the scripts in `training/`.
//!
//! ```no_run
//! use kinora::{ImageToVideo, LoadOptions, Settings, model_in_the_box};
//!
//! let model = model_in_the_box::open()?;
//! let settings = Settings::for_model(&model)?.seed(7);
//! let pipeline = ImageToVideo::new(model, LoadOptions::default())?;
//! pipeline.generate(&model_in_the_box::still()?, &settings)?.save("clip.mp4")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use kinora_models::{
    folder::{EmbeddedModel, FolderError, ModelFolder},
    image::RgbImage,
};

use crate::photo::{self, PhotoError};

static MODEL: EmbeddedModel = EmbeddedModel { name: "model-in-the-box", files: kinora_box::MODEL };

/// Opens the model.
///
/// # Errors
/// Only if the program was built from damaged files.
pub fn open() -> Result<ModelFolder, FolderError> {
    ModelFolder::embedded(&MODEL)
}

/// A still to make a clip of if there is no photo at hand: the first of [`stills`].
///
/// # Errors
/// Only if the program was built from a damaged file.
pub fn still() -> Result<RgbImage, PhotoError> {
    photo::decode(kinora_box::STILLS[0].1)
}

/// The stills that come with the model: the name of each, and its PNG file for [`photo::decode`].
pub fn stills() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    kinora_box::STILLS.iter().map(|&(file, bytes)| (file.trim_end_matches(".png"), bytes))
}
