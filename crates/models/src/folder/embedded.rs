//! A model that is a part of the program.

use std::path::{Path, PathBuf};

use super::{FolderError, ModelFolder, index_name, read_index};

/// A model whose files are in the program: as `include_bytes!` brings them there.
///
/// ```
/// use kinora_models::folder::{EmbeddedModel, ModelFolder};
///
/// static MODEL: EmbeddedModel = EmbeddedModel {
///     name: "nothing",
///     files: &[("model_index.json", b"{}")],
/// };
/// // What is embedded is read as what lies in a folder.
/// let error = ModelFolder::embedded(&MODEL).unwrap_err().to_string();
/// assert!(error.contains("embedded/nothing/model_index.json"), "{error}");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedModel {
    /// What it is called.
    pub name: &'static str,
    /// The files by their paths in the model's folder, with `/` between: `unet/config.json` …
    pub files: &'static [(&'static str, &'static [u8])],
}

impl EmbeddedModel {
    /// The folder that the model would be in, for errors and reports.
    pub(super) fn path(&self) -> PathBuf {
        Path::new("embedded").join(self.name)
    }

    /// A file by its path in the model's folder.
    pub(super) fn file(&self, path: &str) -> Option<&'static [u8]> {
        self.files.iter().find(|(known, _)| *known == path).map(|(_, bytes)| *bytes)
    }

    /// The files of a part, by their names in its folder; all if it is the model's own.
    pub(super) fn part(&self, folder: &str) -> Vec<(&'static str, &'static [u8])> {
        let within = |path: &'static str| match folder {
            "" => Some(path),
            _ => path.strip_prefix(folder)?.strip_prefix('/'),
        };
        self.files.iter().filter_map(|&(path, bytes)| Some((within(path)?, bytes))).collect()
    }
}

impl ModelFolder {
    /// Opens a model that is a part of the program. Only the index is read; the parts are when they are asked for.
    ///
    /// # Errors
    /// If there is no index, or the model is not one that Kinora runs.
    pub fn embedded(model: &'static EmbeddedModel) -> Result<ModelFolder, FolderError> {
        let path = model.path();
        let found = index_name(|name| model.file(name).is_some());
        let found = found.and_then(|name| Some((name, model.file(name)?)));
        let Some((name, bytes)) = found else { return Err(FolderError::NoIndex(path)) };
        let index = path.join(name);
        let (pipeline, parts) = read_index(&index, &String::from_utf8_lossy(bytes))?;
        Ok(ModelFolder { path, pipeline, parts, embedded: Some(model) })
    }
}
