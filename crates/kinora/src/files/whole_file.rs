//! A file that appears whole or not at all.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use super::{folder, leftovers, permissions, system, temporary::TemporaryFile};

/// A file that is being written, and has its name only when all of it is on the disk. Dropped before [`WholeFile::finish`],
/// it leaves nothing.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report.txt");
/// use std::io::Write;
///
/// let mut file = kinora::files::WholeFile::create(&path, false)?;
/// file.write_all(b"all of it")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"all of it");
/// # Ok(())
/// # }
/// ```
pub struct WholeFile {
    path: PathBuf,
    replace: bool,
    file: BufWriter<TemporaryFile>,
}

impl WholeFile {
    /// Opens a temporary file beside `path`, and clears up what killed processes have left there.
    ///
    /// # Errors
    /// If the folder is missing or may not be written to.
    pub fn create(path: impl Into<PathBuf>, replace: bool) -> io::Result<Self> {
        let path = path.into();
        leftovers::sweep(folder(&path));
        let file = BufWriter::new(TemporaryFile::beside(&path)?);
        Ok(Self { path, replace, file })
    }

    /// Brings everything to the disk and gives the file its name.
    ///
    /// # Errors
    /// If the disk is full or fails. If another file has the name and is not to be replaced: [`io::ErrorKind::AlreadyExists`].
    pub fn finish(self) -> io::Result<()> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        system::sync(file.file())?;
        if self.replace {
            permissions::keep(file.file(), &self.path)?;
        }
        file.publish(&self.path, self.replace)?;
        system::sync_folder(folder(&self.path));
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
