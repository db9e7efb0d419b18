//! A file that appears whole or not at all.

use std::{
    fs, io,
    io::{BufWriter, Stdout, Write},
    path::{Path, PathBuf},
};

use tempfile::{Builder, NamedTempFile, TempPath};

use super::{VideoError, is_standard_output};

/// Where an encoder's bytes go.
pub(super) enum Output {
    /// A temporary file beside the result.
    File(PendingFile),
    /// Standard output, which takes everything at once.
    Standard { path: PathBuf, stream: BufWriter<Stdout> },
}

/// A temporary file that is removed when it is dropped, unless it was given its name before.
pub(super) struct PendingFile {
    path: PathBuf,
    overwrite: bool,
    file: BufWriter<NamedTempFile>,
}

impl Output {
    /// Checks the place, and opens a temporary file there.
    pub(super) fn create(path: &Path, overwrite: bool) -> Result<Self, VideoError> {
        if is_standard_output(path) {
            return Ok(Self::Standard { path: path.into(), stream: BufWriter::new(io::stdout()) });
        }
        check_free(path, overwrite)?;
        let file = temporary(path).tempfile_in(folder(path)).map_err(|error| unwritable(path, error))?;
        Ok(Self::File(PendingFile { path: path.into(), overwrite, file: BufWriter::new(file) }))
    }

    /// Brings everything to the disk and gives the file its name.
    pub(super) fn publish(self) -> Result<Vec<PathBuf>, VideoError> {
        match self {
            Self::File(PendingFile { path, overwrite, file }) => {
                let file = file.into_inner().map_err(|error| VideoError::io(&path, error.into_error()))?;
                file.as_file().sync_all().map_err(|error| VideoError::io(&path, error))?;
                rename(file.into_temp_path(), &path, overwrite)?;
                sync_folder(&path);
                Ok(vec![path])
            }
            Self::Standard { path, mut stream } => {
                stream.flush().map_err(|error| VideoError::io(&path, error))?;
                Ok(Vec::new())
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(pending) => pending.file.write(bytes),
            Self::Standard { stream, .. } => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(pending) => pending.file.flush(),
            Self::Standard { stream, .. } => stream.flush(),
        }
    }
}

/// The folder a path lies in.
pub(super) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Whether a file may be written at `path`, as far as can be known before it is.
pub(super) fn check_free(path: &Path, overwrite: bool) -> Result<(), VideoError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Err(VideoError::IsFolder { path: path.into() }),
        Ok(_) if !overwrite => Err(VideoError::Exists { path: path.into() }),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::metadata(folder(path)) {
            Ok(_) => Ok(()),
            Err(_) => Err(VideoError::MissingFolder { folder: folder(path).into() }),
        },
        Err(error) => Err(unwritable(path, error)),
    }
}

/// Temporary names for the file at `path`: `.kinora-Ab12Cd.mp4.partial`.
pub(super) fn temporary(path: &Path) -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".kinora-");
    builder.suffix(match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) if extension.eq_ignore_ascii_case("mp4") => ".mp4.partial",
        Some(extension) if extension.eq_ignore_ascii_case("gif") => ".gif.partial",
        Some(extension) if extension.eq_ignore_ascii_case("png") => ".png.partial",
        _ => ".y4m.partial",
    });
    // Temporary files are private by default; this one becomes the user's video. The umask applies as usual.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// Gives a temporary file its name. Without `overwrite` a file that has appeared since the check is left alone, and no
/// moment lies between looking and renaming if the system offers that.
pub(super) fn rename(file: TempPath, path: &Path, overwrite: bool) -> Result<(), VideoError> {
    let renamed = if overwrite { file.persist(path) } else { file.persist_noclobber(path) };
    renamed.map_err(|error| VideoError::io(path, error.error))
}

/// Makes the new name itself survive a power cut. Not every file system can; the file is complete either way.
pub(super) fn sync_folder(path: &Path) {
    if let Ok(folder) = fs::File::open(folder(path)) {
        let _ = folder.sync_all();
    }
}

/// An error at the start, in the user's words.
pub(super) fn unwritable(path: &Path, source: io::Error) -> VideoError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            VideoError::DiskFull { path: path.into() }
        }
        _ => VideoError::Unwritable { path: path.into(), source },
    }
}
