//! What was measured, kept in a file.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{compiler::write_whole, vendor::Libraries};

/// Changed when what is measured, or how, or a candidate's name changes: older results are dropped then.
const FORMAT: u32 = 3;
/// The most bytes of a file.
const MAX_BYTES: u64 = 64 << 20;

/// The version of the kernels.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What was measured of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The median of each candidate.
    pub milliseconds: BTreeMap<String, f32>,
    /// Why a candidate is out.
    pub refused: BTreeMap<String, String>,
    /// The scratch memory, in bytes, of the candidates that are a library's: to ask the library takes it a while.
    pub workspace: BTreeMap<String, usize>,
}

/// The fastest candidate of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fastest {
    pub name: String,
    /// The scratch memory of a library's.
    pub workspace: Option<usize>,
}

/// The records of a GPU.
#[derive(Debug)]
pub(super) struct Records {
    path: Option<PathBuf>,
    calls: BTreeMap<String, Record>,
}

#[derive(Debug, Serialize, Deserialize)]
struct File<'a> {
    format: u32,
    /// The kernels that were measured: those of another version of Kinora may be others by the same name.
    kernels: String,
    /// The libraries that were measured, by their versions.
    libraries: String,
    calls: Cow<'a, BTreeMap<String, Record>>,
}

/// What a file holds that is of use: nothing if it cannot be read, or if other kernels were measured.
fn read(path: &Path, libraries: &Libraries) -> Option<BTreeMap<String, Record>> {
    let file: File<'_> = serde_json::from_slice(&kinora_outside::read(path, MAX_BYTES).ok()?).ok()?;
    let current = file.format == FORMAT && file.kernels == VERSION && file.libraries == libraries.versions();
    current.then(|| file.calls.into_owned())
}

impl Records {
    /// The records of a GPU by its name; empty if there is no file that can be read.
    pub fn open(folder: Option<PathBuf>, gpu: &str, libraries: &Libraries) -> Records {
        let plain: String = gpu.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = folder.map(|folder| folder.join("tuning").join(format!("{plain}.json")));
        let calls = path.as_ref().and_then(|path| read(path, libraries)).unwrap_or_default();
        Records { path, calls }
    }

    /// The fastest candidate of a call, if it was measured.
    pub fn fastest(&self, signature: &str) -> Option<Fastest> {
        let record = self.calls.get(signature)?;
        let (name, _) = record.milliseconds.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
        Some(Fastest { name: name.clone(), workspace: record.workspace.get(name).copied() })
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether a call was measured.
    pub fn contains(&self, signature: &str) -> bool {
        self.calls.contains_key(signature)
    }

    pub fn insert(&mut self, signature: String, record: Record) {
        self.calls.insert(signature, record);
    }

    /// Writes the file, with what another process may have measured meanwhile. A folder that cannot be written costs the
    /// next process the measurements, and nothing else.
    pub fn save(&mut self, libraries: &Libraries) {
        let Some(path) = &self.path else { return };
        for (signature, record) in read(path, libraries).unwrap_or_default() {
            self.calls.entry(signature).or_insert(record);
        }
        let file = File {
            format: FORMAT,
            kernels: VERSION.to_owned(),
            libraries: libraries.versions(),
            calls: Cow::Borrowed(&self.calls),
        };
        if let Ok(bytes) = serde_json::to_vec_pretty(&file) {
            let _ = path.parent().map(fs::create_dir_all);
            let _ = write_whole(path, &bytes);
        }
    }

    pub fn report(&self) -> serde_json::Value {
        serde_json::to_value(&self.calls).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_outlive_the_process_and_a_damaged_file() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let libraries = Libraries::default();
        let open = || Records::open(Some(folder.path().to_owned()), "A GPU / 1", &libraries);
        let fastest = |records: Records| records.fastest("conv").map(|found| found.name);
        let mut records = open();
        assert_eq!(records.fastest("conv"), None);
        let milliseconds = [("slow".to_owned(), 2.0), ("fast".to_owned(), 1.0)].into();
        records.insert("conv".into(), Record { milliseconds, ..Record::default() });
        records.save(&libraries);
        assert_eq!(fastest(open()).as_deref(), Some("fast"));
        let path = folder.path().join("tuning/A-GPU---1.json");
        fs::write(&path, b"{").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(open().fastest("conv"), None);
    }

    #[test]
    fn two_processes_keep_what_both_have_measured() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let libraries = Libraries::default();
        let open = || Records::open(Some(folder.path().to_owned()), "gpu", &libraries);
        let record = |name: &str| Record {
            milliseconds: [(name.to_owned(), 1.0)].into(),
            workspace: [(name.to_owned(), 512)].into(),
            ..Record::default()
        };
        let (mut one, mut two) = (open(), open());
        one.insert("first".into(), record("cudnn"));
        one.save(&libraries);
        two.insert("second".into(), record("mma"));
        two.save(&libraries);
        let found = |name: &str| Some(Fastest { name: name.into(), workspace: Some(512) });
        assert_eq!(open().fastest("first"), found("cudnn"));
        assert_eq!(open().fastest("second"), found("mma"));
        assert_eq!(two.fastest("first"), found("cudnn"));
    }

    #[test]
    fn other_libraries_make_records_worthless() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let libraries = Libraries::default();
        let open = || Records::open(Some(folder.path().to_owned()), "gpu", &libraries);
        let mut records = open();
        records.insert("call".into(), Record::default());
        records.save(&libraries);
        assert!(open().contains("call"));
        let path = folder.path().join("tuning/gpu.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
        let other = text.replace(&libraries.versions(), "cuBLASLt 1, cuDNN 2");
        assert_ne!(text, other);
        fs::write(&path, other).unwrap_or_else(|error| panic!("{error}"));
        assert!(open().is_empty());
    }

    #[test]
    fn a_call_that_nothing_runs_right_has_no_fastest() {
        let mut records = Records::open(None, "x", &Libraries::default());
        let refused = [("one".to_owned(), "differs".to_owned())].into();
        records.insert("conv".into(), Record { refused, ..Record::default() });
        assert_eq!(records.fastest("conv"), None);
    }
}
