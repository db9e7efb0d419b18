//! The cache that all clients of the hub share, as huggingface_hub lays it out:
//!
//! ```text
//! models--OWNER--NAME/
//!     blobs/DIGEST                  the contents of a file; DIGEST.incomplete while they are downloaded
//!     refs/main                     the commit that a branch or tag stood for
//!     snapshots/COMMIT/unet/…       the files of a commit, as links to their blobs
//! .locks/models--OWNER--NAME/DIGEST.lock
//! ```

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{HubError, HubId, Progress, answer::is_commit, digest::Digest};

/// The longest reference that is read: a commit and a line's end.
const LONGEST_REFERENCE: u64 = 64;
/// How often a lock is tried again.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// The part of the cache that holds one model.
#[derive(Clone, Debug)]
pub(super) struct RepoCache {
    /// `models--OWNER--NAME`.
    pub folder: PathBuf,
    /// `.locks/models--OWNER--NAME`.
    pub locks: PathBuf,
}

/// Holds a file's lock until it is dropped; nothing if the file system has no locks.
pub(super) struct Lock(#[allow(dead_code, reason = "closing the file releases the lock")] Option<File>);

/// Says which file an error is about.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> HubError + use<> {
    let path = path.to_owned();
    move |source| HubError::Cache { path, source }
}

impl RepoCache {
    pub fn new(cache: &Path, id: &HubId) -> Self {
        let name = format!("models--{}", id.repo().replace('/', "--"));
        RepoCache { folder: cache.join(&name), locks: cache.join(".locks").join(&name) }
    }

    /// Where the files of a commit are.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Where contents are.
    pub fn blob(&self, digest: Digest) -> PathBuf {
        self.folder.join("blobs").join(digest.to_string())
    }

    /// The commit that the cache knows for a revision: a branch or tag refers to one, a commit is one itself.
    pub fn commit_of(&self, revision: &str) -> Option<String> {
        if is_commit(revision) && self.snapshot(revision).is_dir() {
            return Some(revision.to_owned());
        }
        read_reference(&self.folder.join("refs").join(revision))
    }

    /// Remembers which commit a branch or tag stands for.
    pub fn set_reference(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        let path = self.folder.join("refs").join(revision);
        // A cache that nobody may write to is as good as any if there is nothing to write.
        if revision == commit || read_reference(&path).as_deref() == Some(commit) {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(at(folder))?;
        let written = || -> io::Result<()> {
            let mut builder = tempfile::Builder::new();
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
            let mut file = builder.tempfile_in(folder)?;
            file.write_all(commit.as_bytes())?;
            file.persist(&path)?;
            Ok(())
        };
        written().map_err(at(&path))
    }

    /// Waits until no other program downloads these contents, and keeps others from it. Gives up if the other program
    /// makes no progress for `patience`.
    pub fn lock(
        &self,
        id: &HubId,
        file: &str,
        digest: Digest,
        patience: Duration,
        progress: &mut dyn Progress,
    ) -> Result<Lock, HubError> {
        fs::create_dir_all(&self.locks).map_err(at(&self.locks))?;
        let path = self.locks.join(format!("{digest}.lock"));
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(at(&path))?;
        let part = incomplete(&self.blob(digest));
        let length = || fs::metadata(&part).map_or(0, |metadata| metadata.len());
        let (mut since, mut before, mut told) = (Instant::now(), length(), false);
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Lock(Some(lock))),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    return Ok(Lock(None));
                }
                Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
            }
            if !told {
                progress.waiting(file);
                told = true;
            }
            if length() != before {
                (since, before) = (Instant::now(), length());
            } else if since.elapsed() > patience {
                return Err(HubError::Busy { id: id.clone(), file: file.to_owned() });
            }
            thread::sleep(LOCK_POLL.min(patience));
        }
    }

    /// Makes a blob appear as a file of a commit. `new` says that no other commit uses the blob yet: on file systems
    /// without links it is moved, otherwise copied.
    pub fn link(&self, digest: Digest, commit: &str, file: &str, new: bool) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(file);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(at(folder))?;
        // A link whose file was deleted, or a file of another length.
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(at(&path))?;
        }
        // Up from the file's folder, through the snapshot and `snapshots`.
        let up = "../".repeat(file.split('/').count() + 1);
        if symlink(Path::new(&format!("{up}blobs/{digest}")), &path).is_ok() {
            return Ok(());
        }
        let blob = self.blob(digest);
        let placed = if new { fs::rename(&blob, &path) } else { fs::copy(&blob, &path).map(drop) };
        placed.map_err(at(&path))
    }
}

/// Where the contents of a blob are while they are downloaded.
pub(super) fn incomplete(blob: &Path) -> PathBuf {
    blob.with_extension("incomplete")
}

/// The commit in a reference.
pub(super) fn read_reference(path: &Path) -> Option<String> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST_REFERENCE).read_to_string(&mut text).ok()?;
    let commit = text.trim();
    is_commit(commit).then(|| commit.to_owned())
}

#[cfg(unix)]
fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(windows)]
fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a commit stands for itself, and only if its files are there.
    #[test]
    fn a_folder_named_like_a_branch_is_not_its_commit() {
        let folder = tempfile::tempdir().unwrap();
        let cache = RepoCache::new(folder.path(), &HubId::parse("owner/name").unwrap());
        let (commit, other) = ("a".repeat(40), "b".repeat(40));
        for name in ["main", &commit] {
            fs::create_dir_all(cache.snapshot(name)).unwrap();
        }
        assert_eq!(cache.commit_of("main"), None);
        assert_eq!(cache.commit_of(&commit), Some(commit.clone()));
        assert_eq!(cache.commit_of(&other), None);
        cache.set_reference("main", &other).unwrap();
        assert_eq!(cache.commit_of("main"), Some(other));
    }
}
