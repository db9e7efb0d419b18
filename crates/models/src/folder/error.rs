//! What can be wrong with a model's folder.

use std::{io, path::PathBuf};

use super::classes;
use crate::{tokenizer::TokenizerError, weights::WeightsError};

/// Why a model's folder could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// There is nothing at the path.
    #[error("{}: there is no such folder", .0.display())]
    NotFound(PathBuf),
    /// The path is a file's.
    #[error(
        "{}: this is a file, and a model is a folder: one with model_index.json and a folder for each part of the \
         model, as diffusers saves it. A single-file checkpoint can be converted with diffusers: \
         StableVideoDiffusionPipeline.from_single_file(file).save_pretrained(folder), or StableDiffusionPipeline",
        .0.display()
    )]
    NotAFolder(PathBuf),
    /// The folder is not a model's.
    #[error(
        "{}: there is no model_index.json here. A model's folder, as diffusers saves it, has model_index.json and \
         a folder for each part: unet, vae, scheduler, and image_encoder or text_encoder",
        .0.display()
    )]
    NoIndex(PathBuf),
    /// A file of the model is not there.
    #[error("{}: this file of the model is missing", .0.display())]
    MissingFile(PathBuf),
    /// A file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not JSON, or not what it must be.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// The model index does not describe a pipeline.
    #[error("{}: {problem}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The pipeline is of a kind that Kinora does not run.
    #[error("{}: the class of the model is {class}; Kinora runs {}", path.display(), classes::pipelines())]
    UnknownPipeline {
        /// The model index.
        path: PathBuf,
        /// The pipeline's class.
        class: String,
    },
    /// A part is of a kind that Kinora does not know.
    #[error(
        "{}: the part {part} is a {class}; for it, Kinora knows {}",
        path.display(),
        classes::of_part(pipeline, part)
    )]
    UnknownClass {
        /// The model index.
        path: PathBuf,
        /// The pipeline's class.
        pipeline: &'static str,
        /// The part.
        part: String,
        /// Its class.
        class: String,
    },
    /// The pipeline lacks a part.
    #[error(
        "{}: the model has no {part}, which must be one of {}",
        path.display(),
        classes::of_part(pipeline, part)
    )]
    MissingPart {
        /// The model index.
        path: PathBuf,
        /// The pipeline's class.
        pipeline: &'static str,
        /// The part.
        part: String,
    },
    /// A part was asked for that models of this kind do not have.
    #[error("{}: the model's class is {pipeline}, and such a model has no {part}", path.display())]
    NoSuchPart {
        /// The model's folder.
        path: PathBuf,
        /// The pipeline's class.
        pipeline: &'static str,
        /// The part.
        part: String,
    },
    /// The model is of a kind that something else needs.
    #[error("{}: the model's class is {class}, but this needs one of {}", path.display(), needed.join(", "))]
    OtherPipeline {
        /// The model's folder.
        path: PathBuf,
        /// The pipeline's class.
        class: &'static str,
        /// The classes that would do.
        needed: &'static [&'static str],
    },
    /// The files of a tokenizer.
    #[error("{}: {source}", path.display())]
    Tokenizer {
        /// The tokenizer's folder.
        path: PathBuf,
        /// What is wrong.
        source: Box<TokenizerError>,
    },
    /// Something was asked of a part that it does not have.
    #[error("the model's {part} has no weights: its class is {class}")]
    NoWeights {
        /// The part.
        part: String,
        /// Its class.
        class: String,
    },
    /// The weights of a part.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}
