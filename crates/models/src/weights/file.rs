//! One safetensors file, on disk or a part of the program.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use safetensors::tensor::{Metadata, TensorInfo};

use super::{HeaderError, WeightsError, layout::ReadAt};

/// The bytes before the header: its length.
const PREFIX: u64 = size_of::<u64>() as u64;

/// The longest header that any reader of the format accepts.
const LONGEST_HEADER: u64 = 100_000_000;

/// A file's bytes.
enum Bytes {
    File(File),
    Embedded(&'static [u8]),
}

impl Bytes {
    fn length(&self) -> io::Result<u64> {
        match self {
            Bytes::File(file) => Ok(file.metadata()?.len()),
            Bytes::Embedded(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Fills `target` with the bytes from a place on. Several threads may do so at a time.
    fn read_at(&self, start: u64, target: &mut [u8]) -> io::Result<()> {
        match self {
            Bytes::File(file) => read_exact_at(file, start, target),
            Bytes::Embedded(bytes) => {
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                let end = start.saturating_add(target.len());
                target.copy_from_slice(bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, start: u64, target: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, target, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut start: u64, mut target: &mut [u8]) -> io::Result<()> {
    while !target.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, target, start)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                target = &mut target[read..];
                start += read as u64;
            }
        }
    }
    Ok(())
}

/// A safetensors file whose header has been read and fits its length. It stays open, so that a file that takes its name
/// meanwhile is not mistaken for it.
pub(super) struct WeightsFile {
    path: PathBuf,
    bytes: Bytes,
    /// Where the tensors begin.
    data: u64,
    header: Metadata,
}

impl WeightsFile {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let file = kinora_outside::open(path)
            .map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
        WeightsFile::of(path, Bytes::File(file))
    }

    /// Reads the header of a file that is a part of the program. `path` is for errors.
    pub fn embedded(path: &Path, bytes: &'static [u8]) -> Result<Self, WeightsError> {
        WeightsFile::of(path, Bytes::Embedded(bytes))
    }

    fn of(path: &Path, bytes: Bytes) -> Result<Self, WeightsError> {
        let path = path.to_owned();
        let (data, header) = read_header(&path, &bytes)?;
        Ok(WeightsFile { path, bytes, data, header })
    }

    /// Shape, element type and place of a tensor.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.header.info(name)
    }

    /// What the header says beside its tensors.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// The names of the tensors, in the order of their data.
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Hands over a tensor's bytes: little-endian, row-major.
    pub fn read(
        &self,
        info: &TensorInfo,
        take: impl FnOnce(&ReadAt<'_>) -> io::Result<()>,
    ) -> Result<(), WeightsError> {
        // The header's check has seen that the whole file has no more bytes than a u64 counts.
        let start = self.data + info.data_offsets.0 as u64;
        take(&|at, target| self.bytes.read_at(start + at, target)).map_err(|source| {
            match self.bytes.length() {
                Ok(got) if got < self.length() => {
                    WeightsError::Truncated { path: self.path.clone(), expected: self.length(), got }
                }
                _ => WeightsError::Io { path: self.path.clone(), source },
            }
        })
    }

    /// The bytes that the file had when it was opened.
    fn length(&self) -> u64 {
        self.data + self.header.data_len() as u64
    }
}

/// Where the data begins, and what lies there.
fn read_header(path: &Path, bytes: &Bytes) -> Result<(u64, Metadata), WeightsError> {
    let path = || PathBuf::from(path);
    let io = |source| WeightsError::Io { path: path(), source };
    let damaged = |source: HeaderError| WeightsError::Header { path: path(), source };
    let got = bytes.length().map_err(io)?;
    if got < PREFIX {
        return Err(WeightsError::Truncated { path: path(), expected: PREFIX, got });
    }
    let mut prefix = [0; PREFIX as usize];
    bytes.read_at(0, &mut prefix).map_err(io)?;
    let length = u64::from_le_bytes(prefix);
    if length > got - PREFIX {
        return Err(damaged(HeaderError::LongerThanFile { length, file: got }));
    }
    if length > LONGEST_HEADER {
        return Err(damaged(HeaderError::TooLong { length, limit: LONGEST_HEADER }));
    }
    let mut header = vec![0; length as usize];
    bytes.read_at(PREFIX, &mut header).map_err(io)?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| damaged(error.into()))?;
    let data = PREFIX + length;
    let expected = data.saturating_add(metadata.data_len() as u64);
    match got {
        _ if got < expected => Err(WeightsError::Truncated { path: path(), expected, got }),
        _ if got > expected => Err(WeightsError::TrailingBytes { path: path(), expected, got }),
        _ => Ok((data, metadata)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of zeros takes no room on the disk.
    #[test]
    fn the_longest_header_is_read_and_a_longer_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        for (length, too_long) in [(LONGEST_HEADER, false), (LONGEST_HEADER + 1, true)] {
            let path = folder.path().join("zeros.safetensors");
            std::fs::write(&path, length.to_le_bytes()).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(PREFIX + length).unwrap();
            let Err(WeightsError::Header { source, .. }) = WeightsFile::open(&path) else {
                panic!("{length}")
            };
            assert_eq!(matches!(source, HeaderError::TooLong { .. }), too_long, "{length}: {source}");
        }
    }

    /// Only a file that has become shorter is cut short: a disk that fails is said to.
    #[test]
    fn a_read_that_fails_for_another_reason_keeps_it() {
        let header = br#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[1, 2, 3, 4]].concat();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        std::fs::write(&path, &bytes).unwrap();
        let file = WeightsFile::open(&path).unwrap();
        let info = file.info("a").unwrap();
        let fails = |read: &ReadAt<'_>| {
            read(0, &mut [0; 4])?;
            Err(io::Error::other("the disk"))
        };
        let error = file.read(info, fails).unwrap_err();
        assert!(
            matches!(&error, WeightsError::Io { source, .. } if source.to_string() == "the disk"),
            "{error}"
        );
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let error = file.read(info, fails).unwrap_err();
        assert!(matches!(error, WeightsError::Truncated { .. }), "{error}");
    }
}
