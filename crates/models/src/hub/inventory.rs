//! What the cache holds, and taking things out of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use kinora_graph::DType;

use super::{
    Hub, HubError, HubId,
    answer::is_commit,
    cache::{RepoCache, at, read_reference},
    needed_of,
};
use crate::{folder::index_name, weights::Variant};

/// A model in the cache.
#[derive(Clone, Debug)]
pub struct CachedModel {
    /// Its name on the hub.
    pub id: HubId,
    /// Where it is.
    pub folder: PathBuf,
    /// The bytes on the disk, with what downloads left that were not finished.
    pub bytes: u64,
    /// The bytes of downloads that were not finished.
    pub unfinished_bytes: u64,
    /// Its commits; none if no download was ever finished.
    pub revisions: Vec<CachedRevision>,
}

/// A commit of a model in the cache.
#[derive(Clone, Debug)]
pub struct CachedRevision {
    /// The commit.
    pub commit: String,
    /// The branches and tags that stand for it.
    pub names: Vec<String>,
    /// The bytes of its files; commits may share some.
    pub bytes: u64,
    /// When a file of it was last written.
    pub modified: Option<SystemTime>,
    /// Whether Kinora can run it: `None` if it is not a model for Kinora.
    pub complete: Option<bool>,
}

/// What was taken out of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The commits.
    pub commits: Vec<String>,
    /// The bytes that are free again.
    pub bytes: u64,
}

impl Hub {
    /// The models in the cache, by name.
    ///
    /// # Errors
    /// If the cache cannot be read. A cache that is not there holds nothing.
    pub fn models(&self) -> Result<Vec<CachedModel>, HubError> {
        let mut models = Vec::new();
        for name in names_in(&self.cache)? {
            let repo = name.strip_prefix("models--").map(|name| name.replacen("--", "/", 1));
            let id = repo.as_deref().and_then(HubId::parse);
            if let Some(id) = id.filter(|_| self.cache.join(&name).is_dir()) {
                models.push(self.model(id)?);
            }
        }
        models.sort_by(|a, b| a.id.repo().cmp(b.id.repo()));
        Ok(models)
    }

    /// What the cache holds of a model.
    ///
    /// # Errors
    /// If it holds nothing of it, or cannot be read.
    pub fn cached_model(&self, id: &HubId) -> Result<CachedModel, HubError> {
        match RepoCache::new(&self.cache, id).folder.is_dir() {
            true => self.model(id.clone()),
            false => Err(self.not_cached(id)),
        }
    }

    fn not_cached(&self, id: &HubId) -> HubError {
        HubError::NotCached { id: id.clone(), cache: self.cache.clone() }
    }

    fn model(&self, id: HubId) -> Result<CachedModel, HubError> {
        let cache = RepoCache::new(&self.cache, &id);
        let mut references: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, commit) in references_of(&cache)? {
            references.entry(commit).or_default().push(name);
        }
        let mut bytes: u64 = 0;
        let mut unfinished_bytes = 0;
        let blobs = cache.folder.join("blobs");
        for name in names_in(&blobs)? {
            let length = fs::symlink_metadata(blobs.join(&name)).map_or(0, |metadata| metadata.len());
            bytes += length;
            if name.ends_with(".incomplete") || name.ends_with(".part") {
                unfinished_bytes += length;
            }
        }
        let mut revisions = Vec::new();
        for commit in commits_of(&cache)? {
            let folder = cache.snapshot(&commit);
            let files = files_of(&folder)?;
            // On a file system without links the contents are here.
            bytes += files.iter().filter(|file| !file.is_link).map(|file| file.bytes).sum::<u64>();
            revisions.push(CachedRevision {
                names: references.remove(&commit).unwrap_or_default(),
                bytes: files.iter().map(|file| file.bytes).sum(),
                modified: files.iter().filter_map(|file| file.modified).max(),
                complete: is_complete(&id, &folder),
                commit,
            });
        }
        Ok(CachedModel { id, folder: cache.folder, bytes, unfinished_bytes, revisions })
    }

    /// The commits of a model that the cache has: the one that is named, otherwise all.
    pub(super) fn commits(&self, id: &HubId) -> Result<Vec<String>, HubError> {
        let cache = RepoCache::new(&self.cache, id);
        let commits = match id.names_revision() {
            true => cache.commit_of(id.revision()).into_iter().collect(),
            false => commits_of(&cache)?,
        };
        match commits.is_empty() {
            true => Err(self.not_cached(id)),
            false => Ok(commits),
        }
    }

    /// Takes a model out of the cache: the revision that is named, otherwise all of it. What other revisions need
    /// stays.
    ///
    /// # Errors
    /// If the cache does not have it, another program is downloading it, or it cannot be removed.
    pub fn remove(&self, id: &HubId) -> Result<Removal, HubError> {
        let cache = RepoCache::new(&self.cache, id);
        let before = self.cached_model(id)?;
        refuse_while_downloading(id, &cache)?;
        let all: Vec<String> = before.revisions.iter().map(|revision| revision.commit.clone()).collect();
        let commits = if id.names_revision() { self.commits(id)? } else { all.clone() };
        if all.iter().all(|commit| commits.contains(commit)) {
            fs::remove_dir_all(&cache.folder).map_err(at(&cache.folder))?;
            if cache.locks.is_dir() {
                fs::remove_dir_all(&cache.locks).map_err(at(&cache.locks))?;
            }
            return Ok(Removal { commits, bytes: before.bytes });
        }
        remove_commits(&cache, &commits)?;
        let after = self.cached_model(id)?;
        Ok(Removal { commits, bytes: before.bytes.saturating_sub(after.bytes) })
    }
}

/// Removes some commits, their references, and the blobs that only they use.
fn remove_commits(cache: &RepoCache, commits: &[String]) -> Result<(), HubError> {
    let mut dropped = BTreeSet::new();
    let mut kept = BTreeSet::new();
    for commit in commits_of(cache)? {
        let blobs = if commits.contains(&commit) { &mut dropped } else { &mut kept };
        blobs.extend(files_of(&cache.snapshot(&commit))?.into_iter().filter_map(|file| file.blob));
    }
    // The references first: what they lead to is never half a model.
    for (name, commit) in references_of(cache)? {
        if commits.contains(&commit) {
            let path = cache.folder.join("refs").join(name);
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    for commit in commits {
        let folder = cache.snapshot(commit);
        fs::remove_dir_all(&folder).map_err(at(&folder))?;
    }
    let blobs = cache.folder.join("blobs");
    for name in dropped.difference(&kept) {
        let blob = blobs.join(name);
        if blob.symlink_metadata().is_ok() {
            fs::remove_file(&blob).map_err(at(&blob))?;
        }
    }
    Ok(())
}

fn refuse_while_downloading(id: &HubId, cache: &RepoCache) -> Result<(), HubError> {
    for name in names_in(&cache.locks)? {
        let Ok(file) = File::open(cache.locks.join(&name)) else { continue };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(HubError::InUse { id: id.clone() });
        }
    }
    Ok(())
}

/// Whether a commit's folder has all that Kinora needs; `None` if it is not a model for Kinora.
fn is_complete(id: &HubId, folder: &Path) -> Option<bool> {
    index_name(|name| folder.join(name).exists())?;
    let mut complete = Some(false);
    for precision in [DType::F16, DType::F32] {
        match needed_of(id, folder, &Variant::For(precision)) {
            Ok(_) => return Some(true),
            Err(HubError::Folder(_)) => complete = None,
            Err(_) => {}
        }
    }
    complete
}

/// A file of a commit.
struct SnapshotFile {
    is_link: bool,
    bytes: u64,
    modified: Option<SystemTime>,
    /// The name of its blob.
    blob: Option<String>,
}

fn files_of(folder: &Path) -> Result<Vec<SnapshotFile>, HubError> {
    let mut files = Vec::new();
    for name in names_in(folder)? {
        let path = folder.join(name);
        let metadata = fs::symlink_metadata(&path).map_err(at(&path))?;
        if metadata.is_dir() {
            files.extend(files_of(&path)?);
            continue;
        }
        let target = fs::read_link(&path).ok();
        let blob = target.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let contents = fs::metadata(&path).ok();
        files.push(SnapshotFile {
            is_link: metadata.is_symlink(),
            bytes: contents.as_ref().map_or(0, fs::Metadata::len),
            modified: contents.and_then(|contents| contents.modified().ok()),
            blob: blob.map(str::to_owned),
        });
    }
    Ok(files)
}

fn commits_of(cache: &RepoCache) -> Result<Vec<String>, HubError> {
    let snapshots = cache.folder.join("snapshots");
    let mut commits = names_in(&snapshots)?;
    commits.retain(|name| is_commit(name) && snapshots.join(name).is_dir());
    Ok(commits)
}

/// The branches and tags that the cache knows, with their commits. Names may have slashes: `refs/pr/3`.
fn references_of(cache: &RepoCache) -> Result<Vec<(String, String)>, HubError> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(prefix) = open.pop() {
        let folder = cache.folder.join("refs").join(&prefix);
        for name in names_in(&folder)? {
            let path = folder.join(&name);
            let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                open.push(name);
            } else if let Some(commit) = read_reference(&path) {
                found.push((name, commit));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The names in a folder, sorted; none if it is not there.
fn names_in(folder: &Path) -> Result<Vec<String>, HubError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(at(folder))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(at(folder))?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
