//! Contents on their way into the cache: hashed as they arrive, and kept if the download breaks off.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

use super::{
    HubError,
    answer::FileFacts,
    cache::{at, incomplete},
    digest::{Digest, Hasher},
};

/// How much is read at a time.
pub(super) const CHUNK: usize = 256 * 1024;

/// The beginning of a blob.
pub(super) struct Part {
    file: File,
    path: PathBuf,
    blob: PathBuf,
    facts: FileFacts,
    hasher: Hasher,
    length: u64,
}

impl Part {
    /// Opens what an earlier download left of a blob, or starts again.
    pub fn open(blob: &Path, facts: FileFacts) -> Result<Part, HubError> {
        let path = incomplete(blob);
        let folder = blob.parent().unwrap_or(blob);
        fs::create_dir_all(folder).map_err(at(folder))?;
        // Whatever else has this name would not be the beginning of a file.
        if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
            fs::remove_file(&path).map_err(at(&path))?;
        }
        let mut options = File::options();
        let file =
            options.create(true).truncate(false).read(true).write(true).open(&path).map_err(at(&path))?;
        let (blob, hasher) = (blob.to_owned(), facts.digest.hasher(facts.size));
        let mut part = Part { file, path, blob, facts, hasher, length: 0 };
        part.hash_what_is_there()?;
        if part.length > facts.size {
            part.restart()?;
        }
        Ok(part)
    }

    fn hash_what_is_there(&mut self) -> Result<(), HubError> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let read = read_some(&mut self.file, &mut buffer).map_err(at(&self.path))?;
            if read == 0 || self.length > self.facts.size {
                return Ok(());
            }
            self.hasher.update(&buffer[..read]);
            self.length += read as u64;
        }
    }

    /// How much has arrived.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds what has arrived.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.file.write_all(bytes).map_err(at(&self.path))?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Throws away what has arrived.
    pub fn restart(&mut self) -> Result<(), HubError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(at(&self.path))?;
        self.hasher = self.facts.digest.hasher(self.facts.size);
        self.length = 0;
        Ok(())
    }

    /// Makes the whole contents appear as the blob, or gives back an empty part if they are not what the hub said.
    pub fn finish(mut self) -> Result<Option<Part>, HubError> {
        let hasher = std::mem::replace(&mut self.hasher, self.facts.digest.hasher(self.facts.size));
        if self.length != self.facts.size || hasher.finish() != self.facts.digest {
            self.restart()?;
            return Ok(Some(self));
        }
        self.file.sync_all().map_err(at(&self.path))?;
        fs::rename(&self.path, &self.blob).map_err(at(&self.blob))?;
        Ok(None)
    }

    /// Removes it.
    pub fn discard(self) -> Result<(), HubError> {
        fs::remove_file(&self.path).map_err(at(&self.path))
    }
}

/// Hashes a whole file, to be compared with `expected`; `watch` is told how much of it was read.
pub(super) fn digest_of(
    path: &Path,
    expected: Digest,
    mut watch: impl FnMut(u64, u64),
) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut hasher = expected.hasher(length);
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    loop {
        match read_some(&mut file, &mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => {
                hasher.update(&buffer[..read]);
                done += read as u64;
                watch(done, length);
            }
        }
    }
}

/// Reads until something has come; a signal may interrupt the call.
pub(super) fn read_some(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
