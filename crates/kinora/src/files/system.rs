//! The operations by which files are changed. Everything that this crate writes goes through them.
//!
//! In the tests of this crate any of them may fail, or end the process: see `faults`. Otherwise they are the system's own.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
};

#[cfg(all(test, unix))]
use super::faults;

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    CreateFolder,
    Write,
    Sync,
    SyncFolder,
    SetMode,
    SetOwner,
    Rename,
    Remove,
    RemoveFolder,
}

#[cfg(not(all(test, unix)))]
fn begin(_: Operation) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
fn begin(operation: Operation) -> io::Result<()> {
    faults::begin(operation)
}

/// Creates a file that does not exist yet. It has the permissions `mode`, as far as the user's umask lets it.
pub(super) fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    begin(Operation::Create)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options.open(path)
}

/// Creates a folder that only its owner can look into.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    begin(Operation::CreateFolder)?;
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Writes to a file.
pub(super) struct Writer<'a>(pub(super) &'a File);

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(all(test, unix))]
        if faults::cuts_a_write_short() {
            let _ = self.0.write(&bytes[..bytes.len() / 2]);
        }
        begin(Operation::Write)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Brings a file's contents to the disk.
pub(super) fn sync(file: &File) -> io::Result<()> {
    begin(Operation::Sync)?;
    file.sync_all()
}

/// Makes the names in a folder survive a power cut. Not every file system can; the files are complete either way.
pub(super) fn sync_folder(path: &Path) {
    if begin(Operation::SyncFolder).is_ok()
        && let Ok(folder) = File::open(path)
    {
        let _ = folder.sync_all();
    }
}

/// Gives a file permissions.
#[cfg(unix)]
pub(super) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    begin(Operation::SetMode)?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// Gives a file an owner or a group.
#[cfg(unix)]
pub(super) fn set_owner(file: &File, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    begin(Operation::SetOwner)?;
    std::os::unix::fs::fchown(file, user, group)
}

/// Renames a file, in the place of another if there is one.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    begin(Operation::Rename)?;
    fs::rename(from, to)
}

/// Renames a file unless there is something in its place. No moment lies between looking and renaming if the system offers
/// that.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    begin(Operation::Rename)?;
    let mut file = tempfile::TempPath::try_from_path(from)?;
    file.disable_cleanup(true);
    file.persist_noclobber(to).map_err(|error| error.error)
}

/// Removes a file, or a link.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    begin(Operation::Remove)?;
    fs::remove_file(path)
}

/// Removes a folder that is empty.
pub(super) fn remove_folder(path: &Path) -> io::Result<()> {
    begin(Operation::RemoveFolder)?;
    fs::remove_dir(path)
}
