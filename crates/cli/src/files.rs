//! Files that a command reads, and files that it writes beside its answer.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use kinora::files::{Inputs, WholeFile};

use crate::{clip::arguments::RequestArgs, failure::Failure, interrupt};

/// A file that can be written.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    replace: bool,
    inputs: Inputs,
}

/// The files that clips of these photos are made from.
pub fn inputs_of<'a>(photos: impl IntoIterator<Item = &'a PathBuf>, request: &RequestArgs) -> Vec<PathBuf> {
    let model = request.model.iter().flat_map(|model| model_files(Path::new(model)));
    photos.into_iter().cloned().chain(model).collect()
}

/// The files of a model folder. A model that is named in another way lies where no output goes.
pub fn model_files(folder: &Path) -> Vec<PathBuf> {
    let index = folder.join("model_index.json");
    if !index.is_file() {
        return Vec::new();
    }
    let within =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let parts =
        within(folder).filter(|path| path.is_dir()).flat_map(|part| within(&part).collect::<Vec<_>>());
    let is_read = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "json" || extension == "safetensors")
    };
    [index, folder.join("defaults.json")].into_iter().chain(parts.filter(is_read)).collect()
}

/// Refuses an input, a file that exists, unless it is to be replaced, and one in a folder that is not writable.
pub fn check(path: &Path, replace: bool, inputs: &Inputs) -> Result<NewFile, Failure> {
    let file = NewFile { path: path.to_owned(), replace, inputs: inputs.clone() };
    file.refuse_input()?;
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            return Err(file.failure(io::Error::other("something other than a file has that name")));
        }
        Ok(_) if !replace => return Err(Failure::FileExists(path.to_owned())),
        _ => {}
    }
    interrupt::uninterrupted(|| file.open().map(drop))?;
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

/// A file's path with its folder resolved. A link with the file's name is not followed: the file replaces it.
fn place(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize();
    folder.ok().zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

impl NewFile {
    fn refuse_input(&self) -> Result<(), Failure> {
        if self.inputs.contains(&self.path) {
            let text = format!(
                "{} is an input and would be overwritten; choose another name for the output",
                self.path.display()
            );
            return Err(Failure::Usage(text));
        }
        Ok(())
    }

    fn open(&self) -> Result<WholeFile, Failure> {
        WholeFile::create(&self.path, self.replace).map_err(|source| self.failure(source))
    }

    fn failure(&self, source: io::Error) -> Failure {
        match source.kind() {
            io::ErrorKind::AlreadyExists => Failure::FileExists(self.path.clone()),
            _ => Failure::File { path: self.path.clone(), source },
        }
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
        self.refuse_input()?;
        let mut file = self.open()?;
        file.write_all(bytes).and_then(|()| file.finish()).map_err(|source| self.failure(source))
    }
}
