//! A task without a description: a source, NumPy's files, and a launch.

use std::path::{Path, PathBuf};

use super::{Task, TaskError};
use crate::{Element, inputs::npy::Array};

/// What a command line says of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Arrays {
    /// The kernel's source.
    pub source: PathBuf,
    /// Its name, if the source has several.
    pub entry: Option<String>,
    /// Blocks on each axis; expressions are possible, but there are no sizes.
    pub grid: Vec<String>,
    /// Threads of a block on each axis.
    pub block: Vec<String>,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u64,
    /// Inputs: names and files.
    pub inputs: Vec<(String, PathBuf)>,
    /// Outputs: names, and files that hold what is right.
    pub outputs: Vec<(String, PathBuf)>,
    /// The arguments in order: names of the above, or numbers such as `i32: 5`.
    pub arguments: Vec<String>,
}

impl Task {
    /// A task whose inputs and right results are files of NumPy's.
    ///
    /// # Errors
    /// If a file cannot be read, or the parts do not go together.
    pub fn from_arrays(arrays: &Arrays) -> Result<Task, TaskError> {
        let folder = std::env::current_dir()
            .map_err(|source| TaskError::Unreadable { path: PathBuf::from("."), source })?;
        let absolute = |path: &Path| folder.join(path).display().to_string();
        // A serialiser knows how to write texts of any kind.
        let mut table = toml::Table::new();
        let text = |text: &str| toml::Value::String(text.to_owned());
        let list = |texts: &[String]| toml::Value::Array(texts.iter().map(|one| text(one)).collect());
        let mut kernel = toml::Table::new();
        kernel.insert("source".to_owned(), text(&arrays.source.display().to_string()));
        if let Some(entry) = &arrays.entry {
            kernel.insert("entry".to_owned(), text(entry));
        }
        kernel.insert("grid".to_owned(), list(&arrays.grid));
        kernel.insert("block".to_owned(), list(&arrays.block));
        kernel.insert(
            "shared".to_owned(),
            toml::Value::Integer(i64::try_from(arrays.shared).unwrap_or(i64::MAX)),
        );
        kernel.insert("arguments".to_owned(), list(&arrays.arguments));
        table.insert("kernel".to_owned(), toml::Value::Table(kernel));
        let name = arrays.source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        table.insert("name".to_owned(), text(&name));
        let mut files = toml::Table::new();
        for (kind, named) in [("input", &arrays.inputs), ("output", &arrays.outputs)] {
            let mut buffers = Vec::new();
            for (name, path) in named {
                let (element, shape) = form(path)?;
                let mut buffer = toml::Table::new();
                buffer.insert("name".to_owned(), text(name));
                buffer.insert("element".to_owned(), text(element.name()));
                let extents = shape
                    .iter()
                    .map(|&extent| toml::Value::Integer(i64::try_from(extent).unwrap_or(i64::MAX)));
                buffer.insert("shape".to_owned(), toml::Value::Array(extents.collect()));
                if kind == "input" {
                    buffer.insert("file".to_owned(), text(&absolute(path)));
                } else {
                    files.insert(name.clone(), text(&absolute(path)));
                }
                buffers.push(toml::Value::Table(buffer));
            }
            if !buffers.is_empty() {
                table.insert(kind.to_owned(), toml::Value::Array(buffers));
            }
        }
        let mut reference = toml::Table::new();
        reference.insert("files".to_owned(), toml::Value::Table(files));
        table.insert("reference".to_owned(), toml::Value::Table(reference));
        // Relative to the current folder, so that messages name the source as it was given.
        Task::from_text(&table.to_string(), Path::new(""))
    }
}

/// What a file of NumPy's holds.
fn form(path: &Path) -> Result<(Element, Vec<usize>), TaskError> {
    match Array::read(path) {
        Ok(array) => Ok((array.element, array.shape)),
        Err(error) => {
            let source = std::io::Error::other(error.to_string());
            Err(TaskError::Unreadable { path: path.to_owned(), source })
        }
    }
}
