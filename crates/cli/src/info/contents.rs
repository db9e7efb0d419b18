//! What is in a model's folder.

use kinora_models::{
    folder::{FolderError, ModelFolder, Part},
    weights::{Variant, Weights, WeightsError},
};
use serde::Serialize;

/// What is in a model's folder.
#[derive(Serialize)]
pub struct Contents {
    pub folder: String,
    pub pipeline: String,
    pub parts: Vec<PartContents>,
    /// What the weights lack for what is asked for.
    pub problems: Vec<String>,
    /// What the model makes, in words.
    #[serde(skip)]
    pub product: &'static str,
}

/// A part of the model.
#[derive(Serialize)]
pub struct PartContents {
    pub name: String,
    pub class: String,
    /// The weights, once for each variant; none for a scheduler.
    pub weights: Vec<StoredWeights>,
}

/// The weights of a part in one variant.
#[derive(Serialize)]
pub struct StoredWeights {
    /// `fp16` and the like; `None` if the file names have none.
    pub variant: Option<String>,
    /// The element types, the most frequent first.
    pub types: Vec<String>,
    pub tensors: usize,
    pub parameters: u64,
    pub bytes: u64,
}

impl Contents {
    /// Opens every weights file of the folder. Only their headers are read.
    pub fn read(folder: &ModelFolder, product: &'static str) -> Result<Self, FolderError> {
        let parts = folder.parts().iter().map(|part| read_part(folder, part)).collect::<Result<_, _>>()?;
        // JSON has no way to write a name that is not Unicode.
        let path = folder.path().to_string_lossy().into_owned();
        let pipeline = folder.pipeline().to_owned();
        Ok(Contents { folder: path, pipeline, parts, problems: Vec::new(), product })
    }
}

fn read_part(folder: &ModelFolder, part: &Part) -> Result<PartContents, FolderError> {
    let mut weights = Vec::new();
    if part.has_weights() {
        let named = ["fp16", "bf16"].map(|name| Variant::Named(name.to_owned()));
        for variant in [Variant::Plain].into_iter().chain(named) {
            match folder.weights(part.name(), &variant) {
                Ok(found) => weights.push(stored(&found)),
                Err(FolderError::Weights(WeightsError::NotFound { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        if weights.is_empty() {
            // Says what is there instead.
            folder.weights(part.name(), &Variant::Plain)?;
        }
    }
    Ok(PartContents { name: part.name().to_owned(), class: part.class().to_owned(), weights })
}

fn stored(weights: &Weights) -> StoredWeights {
    let mut types: Vec<(String, u64)> = Vec::new();
    for tensor in weights.tensors() {
        let name = tensor.dtype();
        match types.iter_mut().find(|(known, _)| *known == name) {
            Some((_, elements)) => *elements += tensor.elements(),
            None => types.push((name, tensor.elements())),
        }
    }
    types.sort_by_key(|(_, elements)| std::cmp::Reverse(*elements));
    StoredWeights {
        variant: weights.variant().map(str::to_owned),
        types: types.into_iter().map(|(name, _)| name).collect(),
        tensors: weights.tensors().count(),
        parameters: weights.parameter_count(),
        bytes: weights.byte_count(),
    }
}
