//! What the numbered files of a clip were when they were written.

use std::{fs, io, path::Path, time::UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Read no further: a hundred thousand frames take a tenth of it.
const LARGEST: u64 = 64 << 20;

/// A line for every numbered file, in order. The files' names are not in it: they follow from the manifest's own, so no manifest can
/// name a file outside its folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) files: Vec<Stamp>,
}

/// A file's length and the time of its last change, which a rename keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    bytes: u64,
    seconds: u64,
    nanoseconds: u32,
}

impl Manifest {
    /// `None` if there is no manifest at the path.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = kinora_outside::read(path, LARGEST).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub(super) fn to_json(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }
}

impl Stamp {
    /// `None` if the path has no ordinary file: links and folders do not count.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, nanoseconds) = (modified.as_secs(), modified.subsec_nanos());
        Some(Self { bytes: found.len(), seconds, nanoseconds })
    }
}
