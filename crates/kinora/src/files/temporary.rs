//! Temporary files and folders that belong to a living process.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use kinora_outside::without_temporary_name;
use tempfile::Builder;

use super::{folder, leftovers, permissions, system};

const PREFIX: &str = ".kinora-";
const SUFFIX: &str = ".partial";

/// Whether a name is one of those that temporary files and folders get.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(PREFIX.as_bytes()) && name.ends_with(SUFFIX.as_bytes())
}

/// A file that is removed when it is dropped, unless it was given its name.
pub(super) struct TemporaryFile {
    file: File,
    /// `None` once it has another name.
    path: Option<PathBuf>,
}

impl TemporaryFile {
    /// A temporary file beside the one at `path`.
    pub(super) fn beside(path: &Path) -> io::Result<Self> {
        let mode = permissions::at_first(path);
        let (file, path) = named(path, |path| {
            let file = system::create_new(path, mode)?;
            own(&file, path)?;
            Ok(file)
        })?;
        Ok(Self { file, path: Some(path) })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name. Its lock is held until it has it.
    pub(super) fn publish(mut self, path: &Path, replace: bool) -> io::Result<()> {
        if let Some(from) = &self.path {
            let rename = if replace { system::rename } else { system::rename_new };
            rename(from, path)?;
            self.path = None;
        }
        Ok(())
    }
}

impl Write for TemporaryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        system::Writer(&self.file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // If this fails, the file is a leftover for the next process.
            let _ = system::remove(path);
        }
    }
}

/// A folder that is removed when it is dropped, after the old files inside it have been put back: see
/// [`leftovers::discard`].
pub(super) struct TemporaryFolder {
    path: PathBuf,
    /// Keeps the folder locked. `None` if the system has no such locks.
    _lock: Option<File>,
}

impl TemporaryFolder {
    /// A temporary folder beside the file at `path`.
    pub(super) fn beside(path: &Path) -> io::Result<Self> {
        let (lock, path) = named(path, |path| {
            system::create_folder(path)?;
            match open(path) {
                Ok(lock) => own(&lock, path).map(|()| Some(lock)),
                // A system that opens no folders has no locks for them either.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
                Err(error) => {
                    let _ = system::remove_folder(path);
                    Err(error)
                }
            }
        })?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // If this fails, the folder is a leftover for the next process.
        let _ = leftovers::discard(&self.path);
    }
}

/// Makes something with a new name beside the file at `path`: `.kinora-Ab12Cd.mp4.partial`.
fn named<T>(path: &Path, make: impl FnMut(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    let mut suffix = path.extension().map_or_else(Default::default, |extension| {
        let mut suffix = OsStr::new(".").to_owned();
        suffix.push(extension);
        suffix
    });
    suffix.push(SUFFIX);
    let made = Builder::new()
        .prefix(PREFIX)
        .suffix(&suffix)
        // What is removed goes through our own operations.
        .disable_cleanup(true)
        .make_in(folder(path), make)
        .map_err(without_temporary_name)?;
    let (made, path) = made.into_parts();
    Ok((made, path.to_path_buf()))
}

/// Opens a file or a folder for [`lock`], without following a link.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(path)
}

/// Locks something that was just created. Another process may take it for a leftover before that; then it is as if the name
/// had been taken.
fn own(file: &File, path: &Path) -> io::Result<()> {
    match file.try_lock() {
        // Without locks nothing is cleared up, and so nothing of ours either.
        Err(TryLockError::Error(_)) => Ok(()),
        Ok(()) if is_at(file, path) => Ok(()),
        Ok(()) | Err(TryLockError::WouldBlock) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

/// Locks something that no living process owns. The lock lasts as long as `file`.
pub(super) fn lock(file: &File, path: &Path) -> bool {
    file.try_lock().is_ok() && is_at(file, path)
}

/// Whether an open file is still what its path leads to.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let (open, named) = (file.metadata().map(identity), fs::symlink_metadata(path).map(identity));
    open.ok().is_some_and(|open| named.is_ok_and(|named| open == named))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
