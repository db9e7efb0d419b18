//! What was measured, kept in a file.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::compiler::write_whole;

/// Changed when what is measured, or how, changes: older results are dropped then.
const FORMAT: u32 = 1;

/// What was measured of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The median of each candidate.
    pub milliseconds: BTreeMap<String, f32>,
    /// Why a candidate is out.
    pub refused: BTreeMap<String, String>,
}

/// The records of a GPU.
#[derive(Debug)]
pub(super) struct Records {
    path: Option<PathBuf>,
    file: File,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    format: u32,
    /// The kernels that were measured: those of another version of Kinora may be others by the same name.
    kernels: String,
    calls: BTreeMap<String, Record>,
}

impl Records {
    /// The records of a GPU by its name. Where there are none that can be read, there are none.
    pub fn open(folder: Option<PathBuf>, gpu: &str) -> Records {
        let plain: String = gpu.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = folder.map(|folder| folder.join("tuning").join(format!("{plain}.json")));
        let read = path.as_ref().and_then(|path| fs::read(path).ok());
        let file = read.and_then(|bytes| serde_json::from_slice::<File>(&bytes).ok());
        let kernels = env!("CARGO_PKG_VERSION").to_owned();
        let file = file.filter(|file| file.format == FORMAT && file.kernels == kernels);
        Records {
            path,
            file: file.unwrap_or_else(|| File { format: FORMAT, kernels, calls: BTreeMap::new() }),
        }
    }

    /// The fastest candidate of a call, where it was measured.
    pub fn fastest(&self, signature: &str) -> Option<String> {
        let record = self.file.calls.get(signature)?;
        let fastest = record.milliseconds.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
        Some(fastest.0.clone())
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.file.calls.is_empty()
    }

    /// Whether a call was measured.
    pub fn contains(&self, signature: &str) -> bool {
        self.file.calls.contains_key(signature)
    }

    pub fn insert(&mut self, signature: String, record: Record) {
        self.file.calls.insert(signature, record);
    }

    /// Writes the file. A folder that cannot be written costs the next process the measurements, and nothing else.
    pub fn save(&self) {
        let Some(path) = &self.path else { return };
        if let Ok(bytes) = serde_json::to_vec_pretty(&self.file) {
            let _ = path.parent().map(fs::create_dir_all);
            let _ = write_whole(path, &bytes);
        }
    }

    pub fn report(&self) -> serde_json::Value {
        serde_json::to_value(&self.file.calls).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_outlive_the_process_and_a_damaged_file() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let open = || Records::open(Some(folder.path().to_owned()), "A GPU / 1");
        let mut records = open();
        assert_eq!(records.fastest("conv"), None);
        let milliseconds = [("slow".to_owned(), 2.0), ("fast".to_owned(), 1.0)].into();
        records.insert("conv".into(), Record { milliseconds, ..Record::default() });
        records.save();
        assert_eq!(open().fastest("conv").as_deref(), Some("fast"));
        let path = folder.path().join("tuning/A-GPU---1.json");
        fs::write(&path, b"{").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(open().fastest("conv"), None);
    }

    #[test]
    fn a_call_that_nothing_runs_right_has_no_fastest() {
        let mut records = Records::open(None, "x");
        let refused = [("one".to_owned(), "differs".to_owned())].into();
        records.insert("conv".into(), Record { refused, ..Record::default() });
        assert_eq!(records.fastest("conv"), None);
    }
}
