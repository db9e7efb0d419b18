//! Files that appear whole or not at all, and inputs that are never replaced.
//!
//! A [`WholeFile`] is written to a temporary file beside its place, which is renamed when all of it is on the disk. The numbered
//! files of a clip do the same together: see [`video`](crate::video).
//!
//! | if … | then … |
//! | --- | --- |
//! | an operation fails | what was there before is there again, and nothing else |
//! | the process is killed | the next file that is written to the folder clears up first: see below |
//! | a file exists | it is replaced only if that was asked for, and never if it is one of the [`Inputs`] |
//! | a file is replaced | the new one has its permissions and, if the system allows it, its owner |
//! | a symbolic link has the file's name | the file replaces the link; what the link points to stays as it was |
//!
//! # What a killed process leaves
//!
//! Temporary files and folders are called `.kinora-*.partial`. Their process holds a lock on each, which the system drops when the
//! process ends, however it ends. Whoever writes to the folder next removes those that belong to the same user and are
//! not locked. If the process was killed while the numbered files of a clip took their names, the old clip is put back first. If other
//! files have taken those names meanwhile, nothing is touched. The same is true if the file system has no locks, and on NFS, where a lock may not be
//! visible to other machines. Windows has no locks on folders, so numbered clips are not cleared up there.

#[cfg(all(test, unix))]
mod faults;
#[cfg(all(test, unix))]
mod faults_in_turn;
mod inputs;
mod leftovers;
mod manifest;
mod permissions;
mod sequence;
mod system;
mod temporary;
mod whole_file;

use std::path::Path;

pub use inputs::Inputs;
pub use whole_file::WholeFile;

pub(crate) use leftovers::sweep;
pub(crate) use sequence::{PublishError, Published, Sequence, manifest_path, numbered};

/// Whether the file at a path is the manifest of numbered files.
pub(crate) fn is_manifest(path: &Path) -> bool {
    manifest::Manifest::read(path).is_some()
}

/// The folder that a path lies in.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
