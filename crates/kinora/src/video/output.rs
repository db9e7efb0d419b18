//! Where an encoder's bytes go.

use std::{
    fs, io,
    io::{BufWriter, Stdout, Write},
    path::{Path, PathBuf},
};

use super::{VideoError, is_standard_stream};
use crate::files::{Inputs, WholeFile, folder};

/// Where an encoder's bytes go.
pub(super) enum Output {
    /// A file that appears when it is finished.
    File { path: PathBuf, inputs: Inputs, file: Box<WholeFile> },
    /// Standard output, which takes everything at once.
    Standard { path: PathBuf, stream: BufWriter<Stdout> },
}

impl Output {
    /// Checks the place, and opens a temporary file there.
    pub(super) fn create(path: &Path, overwrite: bool, inputs: &Inputs) -> Result<Self, VideoError> {
        if is_standard_stream(path) {
            return Ok(Self::Standard { path: path.into(), stream: BufWriter::new(io::stdout()) });
        }
        check_free(path, overwrite, inputs)?;
        let file = WholeFile::create(path, overwrite).map_err(|error| unwritable(path, error))?;
        Ok(Self::File { path: path.into(), inputs: inputs.clone(), file: Box::new(file) })
    }

    /// Brings everything to the disk and gives the file its name.
    pub(super) fn publish(self) -> Result<Vec<PathBuf>, VideoError> {
        match self {
            Self::File { path, inputs, file } => {
                if inputs.contains(&path) {
                    return Err(VideoError::IsInput { path });
                }
                file.finish().map_err(|error| VideoError::io(&path, error))?;
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
            Self::File { file, .. } => file.write(bytes),
            Self::Standard { stream, .. } => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.flush(),
            Self::Standard { stream, .. } => stream.flush(),
        }
    }
}

/// Whether a file may be written at `path`, as far as can be known before it is.
pub(super) fn check_free(path: &Path, overwrite: bool, inputs: &Inputs) -> Result<(), VideoError> {
    if inputs.contains(path) {
        return Err(VideoError::IsInput { path: path.into() });
    }
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

/// An error at the start, in the user's words.
pub(super) fn unwritable(path: &Path, source: io::Error) -> VideoError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            VideoError::DiskFull { path: path.into() }
        }
        _ => VideoError::Unwritable { path: path.into(), source },
    }
}
