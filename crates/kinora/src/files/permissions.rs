//! A file that takes the place of another has its permissions.

use std::{fs, fs::File, io, path::Path};

/// The permissions of a new file, before the user's umask.
const NEW: u32 = 0o666;

/// What a temporary file is created with: it must not be open to anyone who cannot read the file that it will replace.
pub(super) fn at_first(replaced: &Path) -> u32 {
    of(replaced).map_or(NEW, |mode| mode & NEW)
}

/// Gives a file the permissions of the one that it will replace and, if the system allows it, its owner.
#[cfg(unix)]
pub(super) fn keep(file: &File, replaced: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;

    use super::system;
    let (Ok(old), Some(mode)) = (fs::symlink_metadata(replaced), of(replaced)) else { return Ok(()) };
    let new = file.metadata()?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        // Only the administrator can give files away; a group can be set by its members.
        let _ = system::set_owner(file, Some(old.uid()), Some(old.gid()))
            .or_else(|_| system::set_owner(file, None, Some(old.gid())));
    }
    if file.metadata()?.mode() & 0o777 == mode { Ok(()) } else { system::set_mode(file, mode) }
}

/// Other systems take a new file's permissions from its folder.
#[cfg(not(unix))]
pub(super) fn keep(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

/// The permissions of a file. A link has none of its own.
#[cfg(unix)]
fn of(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|found| found.mode() & 0o777)
}

#[cfg(not(unix))]
fn of(_: &Path) -> Option<u32> {
    None
}
