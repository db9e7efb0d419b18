//! A model as diffusers saves it: a folder with `model_index.json`, and in it a folder for each part of the model with
//! its configuration and its weights.

mod classes;
mod embedded;
mod error;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kinora_outside::{read_text, shortened, to_text};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::weights::{PartFiles, Variant, Weights};
pub(crate) use classes::Kind;
pub use embedded::EmbeddedModel;
pub use error::FolderError;

/// The file that says which parts a model has.
pub(crate) const INDEX: &str = "model_index.json";
/// The file with the settings that suit the model.
const DEFAULTS: &str = "defaults.json";

/// The most bytes of a configuration or an index. The longest that is published has some hundred thousand.
pub(crate) const MAX_TEXT: u64 = 16 << 20;

/// A model's folder whose index has been read and names only what Kinora knows.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    path: PathBuf,
    pipeline: String,
    parts: Vec<Part>,
    /// The files, if they are in the program.
    embedded: Option<&'static EmbeddedModel>,
}

/// One part of a model.
#[derive(Clone, Debug)]
pub struct Part {
    name: String,
    class: String,
    kind: Kind,
}

impl Part {
    /// Its name in the pipeline, and that of its folder: `unet`, `vae` …
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its class: `UNetSpatioTemporalConditionModel` …
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Whether it has weights: a network does, a scheduler and an image processor do not.
    pub fn has_weights(&self) -> bool {
        self.kind.weights_stem().is_some()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }
}

impl ModelFolder {
    /// Opens a model's folder. Only the index is read; the parts are when they are asked for.
    ///
    /// # Errors
    /// If the path is not a model's folder, or the model is not one that Kinora runs.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFolder, FolderError> {
        let path = path.as_ref().to_owned();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(FolderError::NotAFolder(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(FolderError::NotFound(path)),
            Err(source) => return Err(FolderError::Io { path, source }),
        }
        let index = path.join(INDEX);
        let text = match read(&index) {
            Err(FolderError::MissingFile(_)) => return Err(FolderError::NoIndex(path)),
            text => text?,
        };
        let (pipeline, parts) = read_index(&index, &text)?;
        Ok(ModelFolder { path, pipeline, parts, embedded: None })
    }

    /// Where the folder is; of a model that is [embedded](ModelFolder::embedded), a name for it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The pipeline's class.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// The parts of the model.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// A part by its name.
    ///
    /// # Errors
    /// If the model has no such part; it has all that its pipeline needs.
    pub fn part(&self, name: &str) -> Result<&Part, FolderError> {
        self.parts
            .iter()
            .find(|part| part.name == name)
            .ok_or_else(|| FolderError::MissingPart { path: self.path.join(INDEX), part: name.to_owned() })
    }

    /// The file with a part's configuration: `config.json`, or what its kind calls it.
    ///
    /// # Errors
    /// If the model has no such part.
    pub fn config_path(&self, part: &str) -> Result<PathBuf, FolderError> {
        let part = self.part(part)?;
        Ok(self.path.join(&part.name).join(part.kind.config_file()))
    }

    /// A part's configuration, read as any type (`serde_json::Value` for all of it).
    ///
    /// # Errors
    /// If the file is missing, is not JSON, or lacks something.
    pub fn config<T: DeserializeOwned>(&self, part: &str) -> Result<T, FolderError> {
        let text = self.config_text(part)?;
        let path = self.config_path(part)?;
        serde_json::from_str(&text).map_err(|source| FolderError::Json { path, source })
    }

    /// The text of a part's configuration, for the readers that have rules of their own.
    ///
    /// # Errors
    /// If the file is missing or is not text.
    pub fn config_text(&self, part: &str) -> Result<String, FolderError> {
        let path = self.config_path(part)?;
        let Some(model) = self.embedded else { return read(&path) };
        let part = self.part(part)?;
        let bytes = model.file(&format!("{}/{}", part.name, part.kind.config_file()));
        text(bytes.ok_or_else(|| FolderError::MissingFile(path.clone()))?, path)
    }

    /// The text of `defaults.json`, beside the index: the settings that suit the model. Most models have none;
    /// diffusers does not read it.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn defaults_text(&self) -> Result<Option<String>, FolderError> {
        let path = self.defaults_path();
        let text = match self.embedded {
            Some(model) => match model.file(DEFAULTS) {
                Some(bytes) => text(bytes, path),
                None => return Ok(None),
            },
            None => read(&path),
        };
        match text {
            Err(FolderError::MissingFile(_)) => Ok(None),
            text => text.map(Some),
        }
    }

    /// Where [its text](ModelFolder::defaults_text) would be.
    pub fn defaults_path(&self) -> PathBuf {
        self.path.join(DEFAULTS)
    }

    /// A part's weights.
    ///
    /// # Errors
    /// If the part has none, or [`Weights::open`] refuses them.
    pub fn weights(&self, part: &str, variant: &Variant) -> Result<Weights, FolderError> {
        let part = self.part(part)?;
        let Some(stem) = part.kind.weights_stem() else {
            return Err(FolderError::NoWeights { part: part.name.clone(), class: part.class.clone() });
        };
        let folder = self.path.join(&part.name);
        let files = match self.embedded {
            Some(model) => PartFiles::Embedded { folder, files: model.part(&part.name) },
            None if folder.is_dir() => PartFiles::Folder(folder),
            None => return Err(FolderError::NotFound(folder)),
        };
        Ok(Weights::of(&files, stem, variant)?)
    }
}

/// The text of a file in the program.
fn text(bytes: &[u8], path: PathBuf) -> Result<String, FolderError> {
    to_text(bytes.to_vec()).map_err(|source| FolderError::Io { path, source })
}

fn read(path: &Path) -> Result<String, FolderError> {
    read_text(path, MAX_TEXT).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => FolderError::MissingFile(path.to_owned()),
        _ => FolderError::Io { path: path.to_owned(), source },
    })
}

/// The pipeline and its parts, from the text of a model index that lies at `path`.
pub(crate) fn read_index(path: &Path, text: &str) -> Result<(String, Vec<Part>), FolderError> {
    let at = || path.to_owned();
    let shown = |class: &str| shortened(class, 120).into_owned();
    let index: Value =
        serde_json::from_str(text).map_err(|source| FolderError::Json { path: at(), source })?;
    let problem = |problem: &str| FolderError::Index { path: at(), problem: problem.to_owned() };
    let index =
        index.as_object().ok_or_else(|| problem("this is not a model index: it must be a JSON object"))?;
    let class = index
        .get("_class_name")
        .and_then(Value::as_str)
        .ok_or_else(|| problem("there is no _class_name, so the kind of model is unknown"))?;
    let Some(pipeline) = classes::PIPELINES.iter().find(|known| known.class == class) else {
        return Err(FolderError::UnknownPipeline { path: at(), class: shown(class) });
    };
    let mut parts = Vec::new();
    for known in pipeline.parts {
        let name = known.name.to_owned();
        let class = match index.get(known.name).map(Value::as_array) {
            Some(Some(entry)) => match entry.as_slice() {
                [_, Value::String(class)] => class.clone(),
                // A part that the pipeline was saved without.
                [_, Value::Null] => return Err(FolderError::MissingPart { path: at(), part: name }),
                _ => return Err(problem(&format!("{name} must be [library, class]"))),
            },
            Some(None) => return Err(problem(&format!("{name} must be [library, class]"))),
            None => return Err(FolderError::MissingPart { path: at(), part: name }),
        };
        if !known.classes.contains(&class.as_str()) {
            return Err(FolderError::UnknownClass { path: at(), part: name, class: shown(&class) });
        }
        parts.push(Part { name, class, kind: known.kind });
    }
    Ok((pipeline.class.to_owned(), parts))
}
