//! Files that a command writes beside its answer.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use kinora_outside::without_temporary_name;

use crate::{failure::Failure, interrupt};

/// A file that can be written.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    replace: bool,
}

/// Refuses a file that exists, unless it is to be replaced, and one in a folder that is not writable.
pub fn check(path: &Path, replace: bool) -> Result<NewFile, Failure> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            let source = io::Error::other("something other than a file has that name");
            return Err(Failure::File { path: path.to_owned(), source });
        }
        Ok(_) if !replace => return Err(Failure::FileExists(path.to_owned())),
        _ => {}
    }
    let file = NewFile { path: path.to_owned(), replace };
    interrupt::uninterrupted(|| file.temporary().map(drop).map_err(|source| file.failure(source)))?;
    Ok(file)
}

/// Refuses two output files of the same name: the last would replace the others.
pub fn refuse_same<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    let mut named = HashSet::new();
    match paths.into_iter().find(|path| !named.insert(place(path))) {
        Some(path) => {
            let text = format!("{} is named for two outputs; give each file its own name", path.display());
            Err(Failure::Usage(text))
        }
        None => Ok(()),
    }
}

/// Refuses to overwrite an input.
pub fn refuse_inputs<'a>(
    inputs: &[&Path],
    outputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let read: HashSet<PathBuf> = inputs.iter().map(|path| place(path)).collect();
    match outputs.into_iter().find(|path| read.contains(&place(path))) {
        Some(path) => {
            let text = format!(
                "{} is an input and would be overwritten; choose another name for the output",
                path.display()
            );
            Err(Failure::Usage(text))
        }
        None => Ok(()),
    }
}

/// A file's path with its folder resolved. A link with the file's name is not followed: the file replaces it.
fn place(path: &Path) -> PathBuf {
    let folder = folder(path).canonicalize();
    folder.ok().zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl NewFile {
    fn temporary(&self) -> io::Result<tempfile::NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".new-").suffix(".tmp");
        // The permissions of an ordinary file under the user's umask: a temporary file would stay private.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(folder(&self.path))
    }

    fn failure(&self, source: io::Error) -> Failure {
        Failure::File { path: self.path.clone(), source: without_temporary_name(source) }
    }

    /// Writes the file so that it is never seen half-written under its name.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        interrupt::uninterrupted(|| self.replaced(bytes))
    }

    /// The same for files that are kept even when the program is asked to end, within [`interrupt::to_completion`].
    /// Returns the file's name.
    pub fn keep(&self, bytes: &[u8]) -> Result<PathBuf, Failure> {
        self.replaced(bytes).map(|()| self.path.clone())
    }

    fn replaced(&self, bytes: &[u8]) -> Result<(), Failure> {
        let replaced = || {
            let mut file = self.temporary()?;
            file.write_all(bytes)?;
            File::sync_all(file.as_file())?;
            match self.replace {
                true => file.persist(&self.path).map(drop).map_err(io::Error::from),
                false => file.persist_noclobber(&self.path).map(drop).map_err(io::Error::from),
            }
        };
        replaced().map_err(|source| self.failure(source))
    }
}
