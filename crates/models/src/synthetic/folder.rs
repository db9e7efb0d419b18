//! A model's folder whose weights are made from their names: everything can be tried without a download.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use kinora_graph::Graph;
use kinora_outside::without_temporary_name;
use safetensors::{Dtype, SafeTensorError, tensor::TensorView};
use serde_json::{Map, Value, json};

use super::tensor;
use crate::{
    folder::{INDEX, Kind},
    networks::NetworkError,
    weights::file_shape,
};

/// Why a synthetic model could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// There is something in the folder already.
    #[error("{}: this folder is not empty, and nothing in it is overwritten; give another folder", .0.display())]
    Exists(PathBuf),
    /// A network's configuration.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A file could not be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A weights file could not be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// What its writer says.
        source: SafeTensorError,
    },
}

impl SyntheticError {
    /// The error about a file in a temporary folder, as if it were already in its own.
    fn renamed(mut self, temporary: &Path, own: &Path) -> Self {
        if let SyntheticError::Io { path, .. } | SyntheticError::Weights { path, .. } = &mut self
            && let Ok(name) = path.strip_prefix(temporary)
        {
            *path = own.join(name);
        }
        self
    }
}

/// A folder to be written.
pub(super) struct FolderToWrite<'a> {
    /// The pipeline's class; `None` for a network by itself, which has no index.
    pub pipeline: Option<&'static str>,
    pub parts: Vec<PartToWrite<'a>>,
}

/// A part of it.
pub(super) struct PartToWrite<'a> {
    pub name: &'static str,
    pub kind: Kind,
    pub class: &'a str,
    pub config: &'a Value,
    /// Graphs that read all of its weights between them.
    pub graphs: Vec<Graph>,
    /// Further files, by name.
    pub files: Vec<(&'static str, String)>,
}

impl FolderToWrite<'_> {
    /// Writes the folder, which appears in its place when it is whole.
    pub fn write(&self, folder: &Path) -> Result<(), SyntheticError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| SyntheticError::Io { path, source }
        };
        let exists = match fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return Err(SyntheticError::Exists(folder.to_owned())),
            Ok(false) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(io(folder)(error)),
        };
        // A folder that is there may be a mount or the current one, which cannot be renamed over.
        let around = match folder.parent() {
            _ if exists => folder,
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(around).map_err(io(around))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kinora-").suffix(".model.partial");
        // Temporary folders are private by default; this one becomes the user's model. The umask applies as usual.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let partial =
            builder.tempdir_in(around).map_err(|error| io(around)(without_temporary_name(error)))?;
        self.write_parts(partial.path()).map_err(|error| error.renamed(partial.path(), folder))?;
        if exists {
            for name in self.names() {
                fs::rename(partial.path().join(&name), folder.join(&name)).map_err(io(folder))?;
            }
            return Ok(());
        }
        fs::rename(partial.path(), folder).map_err(io(folder))?;
        // It has a name of its own now, and is not temporary any more.
        let _ = partial.keep();
        Ok(())
    }

    /// What the folder holds. What says that it is a model's comes last.
    fn names(&self) -> Vec<String> {
        let parts = self.parts.iter();
        if self.pipeline.is_some() {
            return parts.map(|part| part.name.to_owned()).chain([INDEX.to_owned()]).collect();
        }
        let files = parts.flat_map(|part| {
            let weights = part.kind.weights_stem().map(|stem| format!("{stem}.safetensors"));
            weights.into_iter().chain([part.kind.config_file().to_owned()])
        });
        files.collect()
    }

    fn write_parts(&self, folder: &Path) -> Result<(), SyntheticError> {
        let mut index = Map::new();
        for part in &self.parts {
            let own = if self.pipeline.is_some() { folder.join(part.name) } else { folder.to_owned() };
            fs::create_dir_all(&own).map_err(|source| SyntheticError::Io { path: own.clone(), source })?;
            write_json(&own.join(part.kind.config_file()), part.config)?;
            for (name, text) in &part.files {
                write_text(&own.join(name), text)?;
            }
            if let Some(stem) = part.kind.weights_stem() {
                write_weights(&own.join(format!("{stem}.safetensors")), part.graphs.iter())?;
            }
            index.insert(part.name.to_owned(), json!([part.kind.library(), part.class]));
        }
        match self.pipeline {
            Some(pipeline) => {
                index.insert("_class_name".to_owned(), json!(pipeline));
                write_json(&folder.join(INDEX), &Value::Object(index))
            }
            None => Ok(()),
        }
    }
}

fn write_json(path: &Path, json: &Value) -> Result<(), SyntheticError> {
    write_text(path, &format!("{json:#}\n"))
}

fn write_text(path: &Path, text: &str) -> Result<(), SyntheticError> {
    fs::write(path, text).map_err(|source| SyntheticError::Io { path: path.to_owned(), source })
}

fn write_weights<'a>(path: &Path, graphs: impl Iterator<Item = &'a Graph>) -> Result<(), SyntheticError> {
    let failed = |source| SyntheticError::Weights { path: path.to_owned(), source };
    let mut weights: Vec<(&str, Vec<usize>, Vec<f32>)> = Vec::new();
    for (_, value) in graphs.flat_map(Graph::parameters) {
        let shape = file_shape(&value.ty.shape, &[]).to_vec();
        let values = tensor(&value.name, &shape);
        weights.push((&value.name, shape, values));
    }
    let mut views = Vec::with_capacity(weights.len());
    for (name, shape, values) in &weights {
        let bytes = bytemuck::cast_slice(values);
        views.push((*name, TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(failed)?));
    }
    // transformers refuses a file that does not say where it is from.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(metadata), path).map_err(failed)
}
