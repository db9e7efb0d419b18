//! Compiled kernels on disk, so that only the first start compiles.
//!
//! A file a kernel, named by its key. Files are written beside their place, flushed, and renamed into it: a reader, in
//! this process or another, sees a whole file or none. What a crash or a full disk damaged all the same is noticed by its
//! checksum, removed, and made again. Nothing that goes wrong here stops a run.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use sha2::{Digest, Sha256};

use super::{resources::Resources, source::Key};

/// Begins every file; the last byte is the format's number.
const MAGIC: [u8; 8] = *b"KINORAK\x01";
/// What stands before the code: magic, key, whether there are figures, four of them, the length, the checksum.
const HEADER: usize = 8 + 32 + 4 + 16 + 8 + 32;
/// How a kernel's file is named.
const EXTENSION: &str = "kernel";
/// The most bytes of a kernel's code; the largest of ours has less than a million.
pub(super) const MAX_CODE: u64 = 64 << 20;
/// A temporary file this old belongs to a process that is gone.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The size that the cache is kept to, unless said otherwise.
pub const DEFAULT_CACHE_BYTES: u64 = 512 << 20;

/// Code as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub bytes: Vec<u8>,
    pub resources: Option<Resources>,
}

/// A folder of compiled kernels.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// The folder for this user's kernels: under `KINORA_CACHE_DIR`, or else where the system keeps such things. `None` if
/// the user has no such place.
pub fn user_folder() -> Option<PathBuf> {
    folder_from(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn folder_from(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let ours = || {
        if cfg!(windows) {
            return variable("LOCALAPPDATA").map(|folder| folder.join("kinora").join("cache"));
        }
        let home = || variable("HOME");
        if cfg!(target_os = "macos") {
            return home().map(|folder| folder.join("Library/Caches/kinora"));
        }
        // A relative path here means nothing, by the rules for this variable.
        let cache = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
        cache.or_else(|| home().map(|folder| folder.join(".cache"))).map(|folder| folder.join("kinora"))
    };
    variable("KINORA_CACHE_DIR").or_else(ours).map(|folder| folder.join("kernels"))
}

impl Cache {
    pub fn new(folder: &Path, limit: u64) -> Cache {
        Cache { folder: folder.to_owned(), limit }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.to_string()).with_extension(EXTENSION)
    }

    /// The code kept under a key. A damaged file is removed.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        let path = self.path(key);
        let bytes = kinora_outside::read(&path, MAX_CODE).ok()?;
        let entry = decode(key, &bytes);
        if entry.is_none() {
            let _ = fs::remove_file(&path);
        } else if let Ok(file) = OpenOptions::new().append(true).open(&path) {
            // What is used stays; if the time cannot be set, it only goes sooner.
            let _ = file.set_modified(SystemTime::now());
        }
        entry
    }

    /// Keeps code under a key.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, key: &Key, entry: &Entry) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        write_whole(&self.path(key), &encode(key, entry))
    }

    /// Removes what was not used for the longest time, if there is too much, and what dead processes left.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn trim(&self) -> io::Result<()> {
        let mut files = Vec::new();
        let mut total = 0;
        for entry in fs::read_dir(&self.folder)?.flatten() {
            // A file that another process has just removed does not matter.
            let Ok(metadata) = entry.metadata() else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let path = entry.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if extension == Some(EXTENSION) {
                total += metadata.len();
                files.push((modified, metadata.len(), path));
            } else if extension == Some("tmp") && modified.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(&path);
            }
        }
        files.sort();
        for (_, bytes, path) in files {
            if total <= self.limit {
                break;
            }
            if fs::remove_file(&path).is_ok() {
                total -= bytes;
            }
        }
        Ok(())
    }
}

/// Writes a file so that at no time a part of it stands under its name.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".new-").suffix(".tmp").tempfile_in(folder)?;
    file.write_all(bytes)?;
    File::sync_all(file.as_file())?;
    file.persist(path)?;
    Ok(())
}

fn encode(key: &Key, entry: &Entry) -> Vec<u8> {
    let figures = entry.resources.unwrap_or_default();
    let figures = [figures.registers, figures.spill_bytes, figures.stack_bytes, figures.shared_bytes];
    let mut bytes = Vec::with_capacity(HEADER + entry.bytes.len());
    bytes.extend(MAGIC);
    bytes.extend(key.0);
    bytes.extend(u32::from(entry.resources.is_some()).to_le_bytes());
    figures.iter().for_each(|figure| bytes.extend(figure.to_le_bytes()));
    bytes.extend((entry.bytes.len() as u64).to_le_bytes());
    bytes.extend(checksum(&bytes, &entry.bytes));
    bytes.extend(&entry.bytes);
    bytes
}

/// `None` if anything is not as it was written.
fn decode(key: &Key, bytes: &[u8]) -> Option<Entry> {
    let (header, code) = bytes.split_at_checked(HEADER)?;
    let (described, sum) = header.split_at(HEADER - 32);
    let word = |at: usize| Some(u32::from_le_bytes(described.get(at..at + 4)?.try_into().ok()?));
    let length = u64::from_le_bytes(described.get(60..68)?.try_into().ok()?);
    let intact = described[..8] == MAGIC
        && described[8..40] == key.0
        && length == code.len() as u64
        && *sum == checksum(described, code);
    if !intact {
        return None;
    }
    let resources = Resources {
        registers: word(44)?,
        spill_bytes: word(48)?,
        stack_bytes: word(52)?,
        shared_bytes: word(56)?,
    };
    Some(Entry { bytes: code.to_vec(), resources: (word(40)? != 0).then_some(resources) })
}

fn checksum(header: &[u8], code: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(header).chain_update(code).finalize().into()
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use super::*;

    fn key(number: u8) -> Key {
        Key([number; 32])
    }

    fn entry(number: u8, length: usize) -> Entry {
        let resources = Resources { registers: u32::from(number), spill_bytes: 4, ..Resources::default() };
        Entry { bytes: vec![number; length], resources: Some(resources) }
    }

    #[test]
    fn what_is_put_is_got() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(&folder.path().join("deep/er"), 1 << 20);
        assert_eq!(cache.get(&key(1)), None);
        for kept in [entry(1, 1000), entry(1, 0), Entry { resources: None, ..entry(1, 7) }] {
            cache.put(&key(1), &kept).unwrap();
            assert_eq!(cache.get(&key(1)), Some(kept));
        }
        assert_eq!(cache.get(&key(2)), None);
    }

    #[test]
    fn a_damaged_file_is_removed_and_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path(), 1 << 20);
        let whole = encode(&key(3), &entry(3, 500));
        let mut damaged: Vec<Vec<u8>> =
            [0, 1, 8, 40, HEADER - 1, HEADER, HEADER + 499].map(|length| whole[..length].to_vec()).into();
        for at in [0, 7, 8, 39, 40, 45, 61, 70, HEADER, HEADER + 499] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            damaged.push(bytes);
        }
        damaged.push([whole.clone(), vec![0]].concat());
        // Another kernel's file under this one's name.
        damaged.push(encode(&key(4), &entry(3, 500)));
        for bytes in damaged {
            fs::write(cache.path(&key(3)), &bytes).unwrap();
            assert_eq!(cache.get(&key(3)), None);
            assert!(!cache.path(&key(3)).exists());
            cache.put(&key(3), &entry(3, 500)).unwrap();
            assert_eq!(cache.get(&key(3)), Some(entry(3, 500)));
        }
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path(), 3 * (HEADER as u64 + 1000));
        for number in 1..=4 {
            cache.put(&key(number), &entry(number, 1000)).unwrap();
            let time = SystemTime::now() - Duration::from_secs(1000 - u64::from(number));
            let file = OpenOptions::new().append(true).open(cache.path(&key(number))).unwrap();
            file.set_modified(time).unwrap();
        }
        // Using the oldest makes it the newest.
        assert!(cache.get(&key(1)).is_some());
        let abandoned = folder.path().join(".new-1.tmp");
        fs::write(&abandoned, "").unwrap();
        let file = OpenOptions::new().append(true).open(&abandoned).unwrap();
        file.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        let under_way = folder.path().join(".new-2.tmp");
        fs::write(&under_way, "").unwrap();
        cache.trim().unwrap();
        let there: Vec<u8> = (1..=4).filter(|&number| cache.get(&key(number)).is_some()).collect();
        assert_eq!(there, [1, 3, 4]);
        assert!(!abandoned.exists() && under_way.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let cache = Cache::new(&file.join("kernels"), 1 << 20);
        assert!(cache.put(&key(1), &entry(1, 10)).is_err());
        assert_eq!(cache.get(&key(1)), None);
        assert!(cache.trim().is_err());
    }

    /// What the writers of the next test do, in each thread of each process.
    fn write_and_read(folder: &Path) {
        let cache = Cache::new(folder, 1 << 30);
        for round in 0..40u8 {
            let number = round % 4;
            cache.put(&key(number), &entry(number, 50_000)).unwrap();
            // Whoever wrote last, what is there is whole.
            assert_eq!(cache.get(&key(number)), Some(entry(number, 50_000)));
        }
    }

    #[test]
    fn several_processes_and_threads_write_at_once() {
        const FOLDER: &str = "KINORA_TEST_CACHE_WRITER";
        if let Some(folder) = std::env::var_os(FOLDER) {
            return write_and_read(Path::new(&folder));
        }
        let folder = tempfile::tempdir().unwrap();
        // This test again, in processes of their own.
        let program = std::env::current_exe().unwrap();
        let name = "compiler::cache::tests::several_processes_and_threads_write_at_once";
        let mut others: Vec<_> = (0..3)
            .map(|_| {
                Command::new(&program).args([name, "--exact"]).env(FOLDER, folder.path()).spawn().unwrap()
            })
            .collect();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| write_and_read(folder.path()));
            }
        });
        for other in &mut others {
            assert!(other.wait().unwrap().success());
        }
        // Nothing but the four kernels is left.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn the_folder_is_the_users_own_unless_named() {
        let with = |pairs: &[(&str, &str)]| {
            folder_from(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| PathBuf::from(pair.1)))
        };
        assert_eq!(with(&[("KINORA_CACHE_DIR", "/x")]), Some("/x/kernels".into()));
        assert_eq!(with(&[]), None);
        if cfg!(target_os = "linux") {
            let home = ("HOME", "/h");
            assert_eq!(with(&[home]), Some("/h/.cache/kinora/kernels".into()));
            assert_eq!(with(&[home, ("XDG_CACHE_HOME", "/c")]), Some("/c/kinora/kernels".into()));
            assert_eq!(with(&[home, ("XDG_CACHE_HOME", "c")]), Some("/h/.cache/kinora/kernels".into()));
        }
    }
}
