//! Numbered files that take their names together.
//!
//! They wait in a temporary folder under their own names. When all are there:
//!
//! 1. A manifest joins them, and a folder for old files beside it.
//! 2. Files that are in the way, and those of an earlier clip that the new one does not reach, move to the folder for old files.
//! 3. The new files take their names.
//! 4. The manifest takes its name. This one rename makes the new clip valid.
//! 5. The temporary folder is removed with the old files in it.
//!
//! Before step 4, everything can be put back: the new files are known by the manifest that waits with them, the old ones by where they
//! are. This is done at once if an operation fails, and by the next process if this one is killed.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{
    Inputs, folder,
    manifest::{Manifest, Stamp},
    permissions, system,
    temporary::{self, TemporaryFolder},
};

/// The folder for old files, inside the temporary one.
pub(super) const OLD: &str = "old";
/// How the names of manifests end.
const MANIFEST: &str = "kinora";

/// Numbered files that wait until all are there.
pub(crate) struct Sequence {
    /// The name that the numbers are added to.
    path: PathBuf,
    waiting: TemporaryFolder,
    count: usize,
}

/// What has changed.
#[derive(Debug)]
pub(crate) struct Published {
    /// The new files, in order.
    pub(crate) files: Vec<PathBuf>,
    /// Files that follow the last number, and were left alone.
    pub(crate) left: Vec<PathBuf>,
}

/// Why the files do not have their names.
#[derive(Debug)]
pub(crate) enum PublishError {
    /// An operation on a file failed, and nothing has changed.
    Io { path: PathBuf, source: io::Error },
    /// The file is one of the inputs.
    Input { path: PathBuf },
    /// The file is a folder.
    Folder { path: PathBuf },
    /// Old files could not be put back, and are still in a folder.
    NotRestored { failure: Box<PublishError>, folder: PathBuf, source: io::Error },
}

impl Sequence {
    /// Opens a temporary folder.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.into(), waiting: TemporaryFolder::beside(path)?, count: 0 })
    }

    /// Adds a file.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(&numbered(&self.path, self.count + 1), bytes)?;
        self.count += 1;
        Ok(())
    }

    /// Gives every file its name; after an error, what was there before is there again.
    pub(crate) fn publish(self, overwrite: bool, inputs: &Inputs) -> Result<Published, PublishError> {
        let files: Vec<PathBuf> = (1..=self.count).map(|number| numbered(&self.path, number)).collect();
        for path in &files {
            if inputs.contains(path) {
                return Err(PublishError::Input { path: path.clone() });
            }
            if path.is_dir() && !path.is_symlink() {
                return Err(PublishError::Folder { path: path.clone() });
            }
        }
        if let Err(failure) = self.exchange(&files, overwrite, inputs) {
            return Err(match roll_back(self.waiting.path()) {
                Ok(()) => failure,
                Err(source) => PublishError::NotRestored {
                    failure: Box::new(failure),
                    folder: self.waiting.path().to_owned(),
                    source,
                },
            });
        }
        system::sync_folder(folder(&self.path));
        let left = (self.count + 1..).map(|number| numbered(&self.path, number));
        Ok(Published { files, left: left.take_while(|path| is_file(path)).collect() })
    }

    fn exchange(&self, files: &[PathBuf], overwrite: bool, inputs: &Inputs) -> Result<(), PublishError> {
        let old = if overwrite { self.replaced(files, inputs) } else { Vec::new() };
        self.prepare(files, overwrite).map_err(|source| failed(&self.path, source))?;
        for path in &old {
            let aside = self.waiting.path().join(OLD).join(name(path));
            system::rename(path, &aside).map_err(|source| failed(path, source))?;
        }
        for path in files {
            system::rename_new(&self.waiting(path), path).map_err(|source| failed(path, source))?;
        }
        let manifest = manifest_path(&self.path);
        system::rename(&self.waiting.path().join(waiting_manifest(&self.path)), &manifest)
            .map_err(|source| failed(&manifest, source))
    }

    /// The files that will be gone: those in the way, and those that only an earlier clip's manifest explains.
    fn replaced(&self, files: &[PathBuf], inputs: &Inputs) -> Vec<PathBuf> {
        let earlier = Manifest::read(&manifest_path(&self.path)).unwrap_or_default();
        let stale = earlier.files.iter().zip(1..).skip(files.len()).filter_map(|(stamp, number)| {
            let path = numbered(&self.path, number);
            (Stamp::of(&path) == Some(*stamp) && !inputs.contains(&path)).then_some(path)
        });
        files.iter().filter(|path| is_file(path)).cloned().chain(stale).collect()
    }

    /// Everything that can be done before a file changes its name.
    fn prepare(&self, files: &[PathBuf], overwrite: bool) -> io::Result<()> {
        let mut manifest = Manifest::default();
        for path in files {
            let waiting = self.waiting(path);
            if overwrite && is_file(path) {
                permissions::keep(&temporary::open(&waiting)?, path)?;
            }
            manifest.files.push(Stamp::of(&waiting).ok_or(io::ErrorKind::NotFound)?);
        }
        self.write(Path::new(&waiting_manifest(&self.path)), &manifest.to_json()?)?;
        system::create_folder(&self.waiting.path().join(OLD))?;
        system::sync_folder(self.waiting.path());
        Ok(())
    }

    /// Where a file waits.
    fn waiting(&self, path: &Path) -> PathBuf {
        self.waiting.path().join(name(path))
    }

    /// Writes a file that waits.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = system::create_new(&self.waiting(path), 0o666)?;
        system::Writer(&file).write_all(bytes)?;
        system::sync(&file)
    }
}

/// Puts everything back that the files in a temporary folder have replaced, unless they are a valid clip by now.
///
/// # Errors
/// If other files have taken the names of the old ones, which then stay where they are, or an operation fails.
pub(super) fn roll_back(waiting: &Path) -> io::Result<()> {
    let old = waiting.join(OLD);
    let Some(clip) = clip_under_way(waiting)?.filter(|_| old.is_dir()) else { return Ok(()) };
    let manifest =
        Manifest::read(&waiting.join(waiting_manifest(&clip))).ok_or(io::ErrorKind::InvalidData)?;
    let published = manifest.files.iter().zip(1..).filter_map(|(stamp, number)| {
        let path = numbered(&clip, number);
        let waits = fs::symlink_metadata(waiting.join(name(&path))).is_ok();
        (!waits && Stamp::of(&path) == Some(*stamp)).then_some(path)
    });
    let published: Vec<PathBuf> = published.collect();
    let replaced: Vec<PathBuf> = fs::read_dir(&old)?
        .map(|entry| Ok(folder(&clip).join(entry?.file_name())))
        .collect::<io::Result<_>>()?;
    // All or nothing: half of an old clip would only add to the confusion.
    let taken = |path: &&PathBuf| fs::symlink_metadata(path).is_ok() && !published.contains(path);
    if replaced.iter().any(|path| taken(&path)) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    for path in &published {
        system::rename_new(path, &waiting.join(name(path)))?;
    }
    for path in &replaced {
        system::rename_new(&old.join(name(path)), path)?;
    }
    system::remove_folder(&old)
}

/// The clip whose manifest still waits in a temporary folder: its path, as [`Sequence::create`] was given it.
fn clip_under_way(waiting: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(waiting)? {
        let name = PathBuf::from(entry?.file_name());
        if let (Some(clip), true) = (name.file_stem(), name.extension() == Some(OsStr::new(MANIFEST))) {
            return Ok(Some(folder(waiting).join(clip)));
        }
    }
    Ok(None)
}

fn failed(path: &Path, source: io::Error) -> PublishError {
    PublishError::Io { path: path.into(), source }
}

/// `clip.png` with a number: `clip-0001.png`.
pub(crate) fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number:04}."));
    name.push(path.extension().unwrap_or_default());
    path.with_file_name(name)
}

/// The manifest of the clip `clip.png`: `.clip.png.kinora`.
pub(crate) fn manifest_path(path: &Path) -> PathBuf {
    let mut hidden = OsString::from(".");
    hidden.push(waiting_manifest(path));
    path.with_file_name(hidden)
}

/// What the manifest is called while it waits: `clip.png.kinora`.
fn waiting_manifest(path: &Path) -> OsString {
    let mut name = name(path).to_owned();
    name.push(".");
    name.push(MANIFEST);
    name
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Whether there is something at the path that a file can take the place of.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !found.is_dir())
}
