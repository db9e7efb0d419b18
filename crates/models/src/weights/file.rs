//! One safetensors file, mapped into memory or a part of the program.

use std::{
    fs::File,
    ops::Deref,
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use safetensors::tensor::{Metadata, TensorInfo};

use super::{HeaderError, WeightsError};

/// The bytes before the header: its length.
const PREFIX: usize = size_of::<u64>();

/// The longest header that any reader of the format accepts.
const LONGEST_HEADER: u64 = 100_000_000;

/// A file's bytes.
enum Bytes {
    Mapped(Mmap),
    Embedded(&'static [u8]),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Embedded(bytes) => bytes,
        }
    }
}

/// A safetensors file whose header has been read and fits its length.
pub(super) struct WeightsFile {
    bytes: Bytes,
    /// Where the tensors begin.
    data: usize,
    header: Metadata,
}

impl WeightsFile {
    /// Maps a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let io = |source| WeightsError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        if length < PREFIX as u64 {
            return Err(WeightsError::Truncated {
                path: path.to_owned(),
                expected: PREFIX as u64,
                got: length,
            });
        }
        // SAFETY: the map is only read, and lives as long as the slices taken from it. Nothing can keep another program
        // from changing the file meanwhile. If one writes to it, the weights read are partly new ones: they are
        // copied out as plain bytes, any of which is a valid number, and nothing is decided from them; the header is
        // parsed once, into memory of our own. If one cuts the file short, the system ends this program (SIGBUS) when
        // it reads beyond the new end. Downloads and savers replace files by renaming, which does not touch a map.
        let bytes = unsafe { Mmap::map(&file) }.map_err(io)?;
        WeightsFile::of(path, Bytes::Mapped(bytes))
    }

    /// Reads the header of a file that is a part of the program. `path` is for errors.
    pub fn embedded(path: &Path, bytes: &'static [u8]) -> Result<Self, WeightsError> {
        WeightsFile::of(path, Bytes::Embedded(bytes))
    }

    fn of(path: &Path, bytes: Bytes) -> Result<Self, WeightsError> {
        let (data, header) = read_header(path, &bytes)?;
        Ok(WeightsFile { bytes, data, header })
    }

    /// Shape, element type and place of a tensor.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.header.info(name)
    }

    /// The names of the tensors, in the order of their data.
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// A tensor's bytes: little-endian, row-major, at any alignment.
    pub fn data(&self, info: &TensorInfo) -> Option<&[u8]> {
        let (start, end) = info.data_offsets;
        self.bytes.get(self.data.checked_add(start)?..self.data.checked_add(end)?)
    }
}

/// Where the data begins, and what lies there.
fn read_header(path: &Path, bytes: &[u8]) -> Result<(usize, Metadata), WeightsError> {
    let path = || PathBuf::from(path);
    let damaged = |source: HeaderError| WeightsError::Header { path: path(), source };
    let got = bytes.len() as u64;
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(WeightsError::Truncated { path: path(), expected: PREFIX as u64, got });
    };
    let length = u64::from_le_bytes(*prefix);
    if length > LONGEST_HEADER && length < got {
        return Err(damaged(HeaderError::TooLong { length, limit: LONGEST_HEADER }));
    }
    let header = usize::try_from(length).ok();
    let Some(header) = header.and_then(|n| rest.get(..n)) else {
        return Err(damaged(HeaderError::LongerThanFile { length, file: got }));
    };
    let metadata: Metadata = serde_json::from_slice(header).map_err(|error| damaged(error.into()))?;
    let data = PREFIX + header.len();
    let expected = data as u64 + metadata.data_len() as u64;
    match got {
        _ if got < expected => Err(WeightsError::Truncated { path: path(), expected, got }),
        _ if got > expected => Err(WeightsError::TrailingBytes { path: path(), expected, got }),
        _ => Ok((data, metadata)),
    }
}
