//! What killed processes have left in a folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{sequence, system, temporary};

/// Clears up a folder. Nothing is touched that a living process or another user owns.
///
/// Returns temporary folders that hold files of an earlier clip, and that must stay because other files have taken their names.
pub(crate) fn sweep(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let leftovers = entries.flatten().filter(|entry| temporary::is_temporary(&entry.file_name()));
    let mut leftovers: Vec<PathBuf> = leftovers.map(|entry| entry.path()).collect();
    leftovers.sort();
    if leftovers.is_empty() || !has_locks(folder) {
        return Vec::new();
    }
    leftovers.retain(|path| clear(path).is_err());
    leftovers
}

/// Removes a file or a folder that no living process owns. An error says that a folder holds what could not be put back.
fn clear(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !is_ours(&found) || !(found.is_file() || found.is_dir()) {
        return Ok(());
    }
    let Ok(open) = temporary::open(path) else { return Ok(()) };
    if !temporary::lock(&open, path) {
        return Ok(());
    }
    if found.is_dir() {
        return discard(path);
    }
    // If it cannot be removed now, perhaps it can next time.
    let _ = system::remove(path);
    Ok(())
}

/// Removes a temporary folder that numbered files wait in, after the old files inside it have been put back.
///
/// # Errors
/// If they could not be. The folder stays as it was.
pub(super) fn discard(path: &Path) -> io::Result<()> {
    if let Err(error) = sequence::roll_back(path) {
        // A folder cannot be listed when too many files are open; but if it is empty, it can be removed.
        return system::remove_folder(path).map_err(|_| error);
    }
    remove_files(&path.join(sequence::OLD));
    remove_files(path);
    Ok(())
}

/// Removes a folder and its files. Folders inside it are not ours, and keep it from being removed.
fn remove_files(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| !kind.is_dir()) {
            let _ = system::remove(&entry.path());
        }
    }
    let _ = system::remove_folder(folder);
}

#[cfg(unix)]
fn is_ours(found: &fs::Metadata) -> bool {
    // SAFETY: takes nothing, changes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    std::os::unix::fs::MetadataExt::uid(found) == user
}

#[cfg(not(unix))]
fn is_ours(_: &fs::Metadata) -> bool {
    true
}

/// Whether a lock in this folder is seen by everyone who can write to it.
#[cfg(target_os = "linux")]
fn has_locks(folder: &Path) -> bool {
    use std::{ffi::CString, mem::MaybeUninit, os::unix::ffi::OsStrExt};
    let Ok(folder) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends in a zero byte, and there is room for the answer.
    let asked = unsafe { libc::statfs(folder.as_ptr(), found.as_mut_ptr()) };
    // SAFETY: a call that succeeds has filled it in.
    asked == 0 && i128::from(unsafe { found.assume_init() }.f_type) != i128::from(libc::NFS_SUPER_MAGIC)
}

#[cfg(not(target_os = "linux"))]
fn has_locks(_: &Path) -> bool {
    true
}
