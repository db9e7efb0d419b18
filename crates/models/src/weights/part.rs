//! Where the files of one part of a model are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kinora_outside::{read_text, to_text};

use super::{WeightsError, file::WeightsFile};
use crate::folder::MAX_TEXT;

/// The files of one part of a model: in a folder, or in the program itself.
#[derive(Clone, Debug)]
pub(crate) enum PartFiles {
    /// A folder.
    Folder(PathBuf),
    /// A part of a model that is embedded: its name for errors, and its files by their names.
    Embedded { folder: PathBuf, files: Vec<(&'static str, &'static [u8])> },
}

impl PartFiles {
    /// The folder, for errors.
    pub fn folder(&self) -> &Path {
        match self {
            PartFiles::Folder(folder) | PartFiles::Embedded { folder, .. } => folder,
        }
    }

    /// The names of the files, in order.
    pub fn names(&self) -> Result<Vec<String>, WeightsError> {
        match self {
            PartFiles::Folder(folder) => list(folder),
            PartFiles::Embedded { files, .. } => {
                let mut names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
                names.sort();
                Ok(names)
            }
        }
    }

    fn embedded(&self, name: &str) -> Option<&'static [u8]> {
        let PartFiles::Embedded { files, .. } = self else { return None };
        files.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes)
    }

    /// A file as text.
    pub fn text(&self, name: &str) -> Result<String, WeightsError> {
        let path = self.folder().join(name);
        let read = match self.embedded(name) {
            Some(bytes) => to_text(bytes.to_vec()),
            None => read_text(&path, MAX_TEXT),
        };
        read.map_err(|source| WeightsError::Io { path, source })
    }

    /// A file of weights.
    pub(super) fn weights(&self, name: &str) -> Result<WeightsFile, WeightsError> {
        let path = self.folder().join(name);
        match self.embedded(name) {
            Some(bytes) => WeightsFile::embedded(&path, bytes),
            None => WeightsFile::open(&path),
        }
    }
}

/// The names in a folder.
pub(crate) fn list(folder: &Path) -> Result<Vec<String>, WeightsError> {
    let io = |source| WeightsError::Io { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        names.extend(entry.map_err(io)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
