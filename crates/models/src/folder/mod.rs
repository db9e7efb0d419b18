//! A model as diffusers saves it: a folder with `model_index.json`, and in it a folder for each part of the model with
//! its configuration and its weights. A network that comes by itself is a folder with its configuration and its weights.

mod classes;
mod embedded;
mod error;
mod index;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kinora_outside::{read_text, to_text};
use serde::de::DeserializeOwned;

use crate::{
    tokenizer::ClipTokenizer,
    weights::{PartFiles, Variant, Weights},
};
pub(crate) use classes::Kind;
pub use embedded::EmbeddedModel;
pub use error::FolderError;
pub(crate) use index::{INDEX, index_name, read_index};

/// The file with the settings that suit the model.
const DEFAULTS: &str = "defaults.json";

/// The most bytes of a configuration or an index. The longest that is published has some hundred thousand.
pub(crate) const MAX_TEXT: u64 = 16 << 20;

/// A model's folder whose index has been read and names only what Kinora knows.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    path: PathBuf,
    pipeline: &'static str,
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
    /// The model's folder is the part's own.
    alone: bool,
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

    /// The path of a file of the part in the model's folder.
    pub(crate) fn file(&self, name: &str) -> String {
        match self.folder() {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        }
    }

    /// The name of its folder in the model's; nothing if that is its own.
    fn folder(&self) -> &str {
        if self.alone { "" } else { &self.name }
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
        let Some(name) = index_name(|name| path.join(name).exists()) else {
            return Err(FolderError::NoIndex(path));
        };
        let index = path.join(name);
        let (pipeline, parts) = read_index(&index, &read(&index)?)?;
        Ok(ModelFolder { path, pipeline, parts, embedded: None })
    }

    /// Where the folder is; of a model that is [embedded](ModelFolder::embedded), a name for it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the model is a part of the program, so that nothing lies beside it.
    pub fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// The pipeline's class.
    pub fn pipeline(&self) -> &'static str {
        self.pipeline
    }

    /// Whether the pipeline is of one of these classes.
    ///
    /// # Errors
    /// If it is of none; the error names them.
    pub fn require(&self, needed: &'static [&'static str]) -> Result<(), FolderError> {
        match needed.contains(&self.pipeline) {
            true => Ok(()),
            false => {
                Err(FolderError::OtherPipeline { path: self.path.clone(), class: self.pipeline, needed })
            }
        }
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
        let missing = || FolderError::NoSuchPart {
            path: self.path.clone(),
            pipeline: self.pipeline,
            part: name.to_owned(),
        };
        self.parts.iter().find(|part| part.name == name).ok_or_else(missing)
    }

    /// The file with a part's configuration: `config.json`, or what its kind calls it.
    ///
    /// # Errors
    /// If the model has no such part.
    pub fn config_path(&self, part: &str) -> Result<PathBuf, FolderError> {
        let part = self.part(part)?;
        Ok(self.path.join(part.file(part.kind.config_file())))
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
        let bytes = model.file(&part.file(part.kind.config_file()));
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
        Ok(Weights::of(&self.files(part)?, stem, variant)?)
    }

    /// The tokenizer in a part.
    ///
    /// # Errors
    /// If the model has no such part, or its files are not those of such a tokenizer.
    pub fn tokenizer(&self, part: &str) -> Result<ClipTokenizer, FolderError> {
        let files = self.files(self.part(part)?)?;
        let path = files.folder().to_owned();
        ClipTokenizer::of(&files).map_err(|source| FolderError::Tokenizer { path, source: source.into() })
    }

    /// Where a part's files are.
    fn files(&self, part: &Part) -> Result<PartFiles, FolderError> {
        let folder = match part.folder() {
            "" => self.path.clone(),
            name => self.path.join(name),
        };
        match self.embedded {
            Some(model) => Ok(PartFiles::Embedded { folder, files: model.part(part.folder()) }),
            None if folder.is_dir() => Ok(PartFiles::Folder(folder)),
            None => Err(FolderError::NotFound(folder)),
        }
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
