//! Copying files and folders, and their sizes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::shell::TaskError;

/// An error of the file system, with the path.
pub fn io_error(path: &Path) -> impl FnOnce(io::Error) -> TaskError + '_ {
    move |source| TaskError::File { path: path.to_owned(), source }
}

/// Makes a folder and those above it.
pub fn make_folder(path: &Path) -> Result<(), TaskError> {
    fs::create_dir_all(path).map_err(io_error(path))
}

/// What is in a folder, in the order of names.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>())
        .map_err(io_error(folder))?;
    paths.sort();
    Ok(paths)
}

/// Copies a file, or a folder with all that is in it except Python's caches.
pub fn copy(from: &Path, to: &Path) -> Result<(), TaskError> {
    if from.is_dir() {
        make_folder(to)?;
        for path in entries(from)? {
            match path.file_name() {
                Some(name) if name != "__pycache__" => copy(&path, &to.join(name))?,
                _ => {}
            }
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        make_folder(folder)?;
    }
    fs::copy(from, to).map(drop).map_err(io_error(from))
}

/// Writes a script that can be run.
pub fn write_script(path: &Path, text: &str) -> Result<(), TaskError> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    fs::write(path, text).map_err(io_error(path))?;
    executable(path).map_err(io_error(path))
}

#[cfg(unix)]
fn executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Other systems have no such permission.
#[cfg(not(unix))]
fn executable(_: &Path) -> io::Result<()> {
    Ok(())
}

/// The bytes of a file, or of all files in a folder.
pub fn size(path: &Path) -> Result<u64, TaskError> {
    if path.is_dir() {
        return entries(path)?.iter().map(|entry| size(entry)).sum();
    }
    fs::metadata(path).map(|file| file.len()).map_err(io_error(path))
}

/// A number of bytes as a person reads it.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
