//! Whether the files of a model are what they were when they were downloaded.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use super::{
    Hub, HubError, HubId, Progress,
    cache::{RepoCache, at},
    digest::Digest,
    part::digest_of,
};

/// Where huggingface_hub notes what it downloaded into a folder of the user's own.
const NOTES: &str = ".cache/huggingface/download";
/// The longest such note: a commit, a digest and a time.
const LONGEST_NOTE: u64 = 1024;
/// Folders inside folders; a model has one level.
const DEEPEST: usize = 8;

/// A file of a model, and whether it is what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    /// Its name, from the model's folder on.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// What was found.
    pub state: FileState,
}

/// What is known about a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// They are as they were downloaded.
    Good(Digest),
    /// They are others.
    Damaged {
        /// What they should hash to.
        expected: Digest,
        /// What they hash to.
        got: Digest,
    },
    /// The file is a link to nothing.
    Missing,
    /// Nobody noted what they should be.
    Unknown,
}

impl FileState {
    /// Whether the file cannot be used.
    pub fn is_bad(&self) -> bool {
        matches!(self, FileState::Damaged { .. } | FileState::Missing)
    }
}

impl Hub {
    /// Hashes the files that the cache has of a model: of the revision that is named, otherwise of all.
    ///
    /// # Errors
    /// If the cache does not have the model, or a file cannot be read.
    pub fn verify(
        &self,
        id: &HubId,
        progress: &mut dyn Progress,
    ) -> Result<Vec<(String, Vec<CheckedFile>)>, HubError> {
        let cache = RepoCache::new(&self.cache, id);
        let mut known = HashMap::new();
        let mut checked = Vec::new();
        for commit in self.commits(id)? {
            let files = check(&cache.snapshot(&commit), &mut known, progress)?;
            checked.push((commit, files));
        }
        Ok(checked)
    }
}

/// Hashes the files in a folder that huggingface_hub or Kinora downloaded: a commit's in the cache, or a copy that
/// `hf download --local-dir` made.
///
/// # Errors
/// If a file cannot be read, or nothing says what the files should be.
pub fn verify_folder(folder: &Path, progress: &mut dyn Progress) -> Result<Vec<CheckedFile>, HubError> {
    let files = check(folder, &mut HashMap::new(), progress)?;
    match files.iter().all(|file| file.state == FileState::Unknown) {
        true => Err(HubError::NoHashes { path: folder.to_owned() }),
        false => Ok(files),
    }
}

/// Checks the files below a folder. Commits share blobs: `known` has those that were hashed.
fn check(
    folder: &Path,
    known: &mut HashMap<PathBuf, FileState>,
    progress: &mut dyn Progress,
) -> Result<Vec<CheckedFile>, HubError> {
    let mut names = Vec::new();
    names_below(folder, "", DEEPEST, &mut names)?;
    let mut files = Vec::new();
    for name in names {
        let path = folder.join(&name);
        let Ok(blob) = fs::canonicalize(&path) else {
            files.push(CheckedFile { name, path, bytes: 0, state: FileState::Missing });
            continue;
        };
        let metadata = fs::metadata(&blob).map_err(at(&blob))?;
        let state = match known.get(&blob) {
            Some(state) => *state,
            None if !metadata.is_file() => FileState::Unknown,
            None => state_of(&blob, expected_of(folder, &name, &blob), &name, progress)?,
        };
        known.insert(blob, state);
        files.push(CheckedFile { name, path, bytes: metadata.len(), state });
    }
    Ok(files)
}

fn state_of(
    blob: &Path,
    expected: Option<Digest>,
    name: &str,
    progress: &mut dyn Progress,
) -> Result<FileState, HubError> {
    let Some(expected) = expected else { return Ok(FileState::Unknown) };
    let got =
        digest_of(blob, expected, |done, total| progress.checked(name, done, total)).map_err(at(blob))?;
    Ok(if got == expected { FileState::Good(got) } else { FileState::Damaged { expected, got } })
}

/// What a file's contents should hash to: the name of its blob, or what was noted beside a copy.
fn expected_of(folder: &Path, name: &str, blob: &Path) -> Option<Digest> {
    let in_cache = blob.parent().and_then(Path::file_name).is_some_and(|parent| parent == "blobs");
    if in_cache {
        return Digest::parse(blob.file_name()?.to_str()?);
    }
    let note = folder.join(NOTES).join(format!("{name}.metadata"));
    let mut text = String::new();
    if !fs::metadata(&note).ok()?.is_file() {
        return None;
    }
    File::open(note).ok()?.take(LONGEST_NOTE).read_to_string(&mut text).ok()?;
    Digest::from_etag(text.lines().nth(1)?.as_bytes())
}

/// The names of the files below a folder, sorted. Links to folders are not followed.
fn names_below(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) -> Result<(), HubError> {
    let mut entries =
        fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(at(folder))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_folder = entry.file_type().map_err(at(&entry.path()))?.is_dir();
        if !is_folder {
            names.push(format!("{prefix}{name}"));
        } else if depth > 0 && !(prefix.is_empty() && name.starts_with('.')) {
            names_below(&entry.path(), &format!("{prefix}{name}/"), depth - 1, names)?;
        }
    }
    Ok(())
}
