//! Files for what can only be read from one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A folder of this process. What is written there is replaced by the next input.
pub struct Scratch {
    folder: TempDir,
}

impl Scratch {
    /// An empty folder. In memory if there is such a place: a fuzzer writes thousands of files a second.
    pub fn new() -> Scratch {
        let memory = Path::new("/dev/shm");
        let around = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Scratch { folder: tempfile::Builder::new().prefix("kinora-fuzz-").tempdir_in(around).unwrap() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file, which is a new one even if there was one of that name: something may still have the old one mapped.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
        path
    }
}
