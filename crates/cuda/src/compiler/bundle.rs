//! Kernels compiled ahead of time, for machines without a compiler.
//!
//! A folder with a file a kernel and an index of them by key. The key leaves the compiler's version out: a bundle is good
//! for whoever has the same sources.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Code, CompileTarget, Compiler, CompilerOptions, Progress,
    cache::{Entry, MAX_CODE, write_whole},
    resources::Resources,
    source::Key,
};
use crate::{CodeForm, CudaError, launch::Kernel};

/// The index's file.
const INDEX: &str = "index.json";
/// The most bytes of an index.
const MAX_INDEX: u64 = 64 << 20;
/// Changed when the index is written in another way.
const FORMAT: u32 = 1;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    format: u32,
    kernels: BTreeMap<String, Described>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Described {
    kernel: String,
    target: String,
    file: String,
    sha256: String,
    resources: Option<Resources>,
}

/// A folder of compiled kernels with its index.
#[derive(Debug)]
pub struct Bundle {
    folder: PathBuf,
    index: Index,
}

/// Kernels that are compiled and wait to be added to a bundle: see [`Bundle::add`].
#[derive(Debug)]
pub struct BundledKernels(Vec<BundledKernel>);

#[derive(Debug)]
struct BundledKernel {
    key: String,
    described: Described,
    code: Vec<u8>,
}

impl BundledKernels {
    /// Compiles kernels for a target. Writes nothing but the compiler's own cache.
    ///
    /// # Errors
    /// If there is no compiler, or a kernel does not compile.
    pub fn compile(
        target: CompileTarget,
        kernels: &[Kernel],
        options: &CompilerOptions,
        progress: &(dyn Fn(&Progress) + Sync),
    ) -> Result<BundledKernels, CudaError> {
        let compiler = Compiler::new(target, CompilerOptions { bundle: None, ..options.clone() })?;
        let extension = match target.form {
            CodeForm::Cubin => "cubin",
            CodeForm::Ptx => "ptx",
        };
        let bundled = |(kernel, code): (Kernel, Code)| {
            let key = compiler.key(&kernel).to_string();
            let described = Described {
                kernel: kernel.label(),
                target: target.to_string(),
                file: format!("{key}.{extension}"),
                sha256: hex(&Sha256::digest(&code.bytes)),
                resources: code.resources,
            };
            BundledKernel { key, described, code: code.bytes }
        };
        Ok(BundledKernels(compiler.compile_all(kernels, progress)?.codes.into_iter().map(bundled).collect()))
    }
}

impl Bundle {
    /// Reads the index of a bundle.
    ///
    /// # Errors
    /// If there is none, or it is of another format.
    pub fn open(folder: &Path) -> Result<Bundle, CudaError> {
        let path = folder.join(INDEX);
        let failed = |reason: String| CudaError::File { path: path.clone(), reason };
        let text = kinora_outside::read(&path, MAX_INDEX)
            .map_err(|error| failed(format!("no kernel bundle: {error}")))?;
        let index: Index = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if index.format != FORMAT {
            return Err(failed(format!(
                "the bundle has format {}, and this version of Kinora reads {FORMAT}; build it again",
                index.format
            )));
        }
        Ok(Bundle { folder: folder.to_owned(), index })
    }

    /// Adds kernels to the bundle in a folder, which is created if it does not exist. What the folder holds for other targets
    /// stays.
    ///
    /// # Errors
    /// If the folder cannot be written. Then nothing is left that was not there before.
    pub fn add(folder: &Path, kernels: &[BundledKernels]) -> Result<Bundle, CudaError> {
        let is_new = !folder.exists();
        let mut added = Vec::new();
        let bundle = Bundle::add_files(folder, kernels, &mut added);
        if bundle.is_err() {
            // The error is worth more than what else may go wrong.
            added.iter().for_each(|file| drop(fs::remove_file(file)));
            if is_new {
                let _ = fs::remove_dir(folder);
            }
        }
        bundle
    }

    /// Writes the files, and then the index; `added` are files that were not there before.
    fn add_files(
        folder: &Path,
        kernels: &[BundledKernels],
        added: &mut Vec<PathBuf>,
    ) -> Result<Bundle, CudaError> {
        let failed = |error: std::io::Error| CudaError::File {
            path: folder.to_owned(),
            reason: format!("cannot be written: {error}"),
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut bundle = match Bundle::open(folder) {
            Ok(bundle) => bundle,
            Err(_) => Bundle {
                folder: folder.to_owned(),
                index: Index { format: FORMAT, kernels: BTreeMap::new() },
            },
        };
        for kernel in kernels.iter().flat_map(|kernels| &kernels.0) {
            let path = folder.join(&kernel.described.file);
            let is_new = !path.exists();
            write_whole(&path, &kernel.code).map_err(failed)?;
            if is_new {
                added.push(path);
            }
            bundle.index.kernels.insert(kernel.key.clone(), kernel.described.clone());
        }
        // The index comes last: whoever finds it finds what it names.
        let text = serde_json::to_vec_pretty(&bundle.index)
            .map_err(|error| CudaError::Internal(format!("a bundle's index cannot be written: {error}")))?;
        write_whole(&folder.join(INDEX), &text).map_err(failed)?;
        Ok(bundle)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many kernels it holds, each for one target.
    pub fn len(&self) -> usize {
        self.index.kernels.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.index.kernels.is_empty()
    }

    /// The size of its files without the index, in bytes.
    pub fn bytes(&self) -> u64 {
        let size =
            |described: &Described| fs::metadata(self.folder.join(&described.file)).map(|file| file.len());
        self.index.kernels.values().map(|described| size(described).unwrap_or(0)).sum()
    }

    /// The code of a kernel; `None` if the bundle has none.
    ///
    /// # Errors
    /// If it should be there and is damaged: a bundle is not ours to mend.
    pub(crate) fn get(&self, key: &Key) -> Result<Option<Entry>, CudaError> {
        let Some(described) = self.index.kernels.get(&key.to_string()) else { return Ok(None) };
        let path = self.folder.join(&described.file);
        let failed = |reason: String| CudaError::File { path: path.clone(), reason };
        let plain =
            matches!(Path::new(&described.file).components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
        if !plain {
            return Err(failed("the bundle names a file outside its folder; build it again".to_owned()));
        }
        let bytes = kinora_outside::read(&path, MAX_CODE).map_err(|error| failed(error.to_string()))?;
        if hex(&Sha256::digest(&bytes)) != described.sha256 {
            return Err(failed("the file is damaged; build or copy the bundle again".to_owned()));
        }
        Ok(Some(Entry { bytes, resources: described.resources }))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_bundle_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let message = Bundle::open(folder.path()).err().unwrap().to_string();
        assert!(message.contains(INDEX) && message.contains("no kernel bundle"), "{message}");
        fs::write(folder.path().join(INDEX), r#"{"format": 99, "kernels": {}}"#).unwrap();
        let message = Bundle::open(folder.path()).err().unwrap().to_string();
        assert!(message.contains("build it again"), "{message}");
    }

    #[test]
    fn what_cannot_be_added_leaves_nothing() {
        let around = tempfile::tempdir().unwrap();
        let kernel = |key: &str, file: &str| BundledKernel {
            key: key.into(),
            described: Described {
                kernel: key.into(),
                target: "sm_80".into(),
                file: file.into(),
                sha256: String::new(),
                resources: None,
            },
            code: b"code".to_vec(),
        };
        let good = BundledKernels(vec![kernel("a", "a.cubin")]);
        // No file can have a name in a folder that is not there.
        let bad = BundledKernels(vec![kernel("b", "b.cubin"), kernel("c", "absent/c.cubin")]);
        let folder = around.path().join("bundle");
        assert!(Bundle::add(&folder, std::slice::from_ref(&bad)).is_err());
        assert!(!folder.exists());
        assert_eq!(Bundle::add(&folder, std::slice::from_ref(&good)).unwrap().len(), 1);
        assert!(Bundle::add(&folder, &[good, bad]).is_err());
        let mut names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.cubin", INDEX]);
        assert_eq!(Bundle::open(&folder).unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_file_or_one_elsewhere_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let key = Key([7; 32]);
        let described = |file: &str| Described {
            kernel: "a".into(),
            target: "sm_80".into(),
            file: file.into(),
            sha256: hex(&Sha256::digest(b"code")),
            resources: None,
        };
        let with = |file: &str| {
            let kernels = BTreeMap::from([(key.to_string(), described(file))]);
            Bundle { folder: folder.path().to_owned(), index: Index { format: FORMAT, kernels } }
        };
        fs::write(folder.path().join("good"), "code").unwrap();
        fs::write(folder.path().join("bad"), "c0de").unwrap();
        assert_eq!(with("good").get(&key).unwrap().unwrap().bytes, b"code");
        assert!(with("good").get(&Key([8; 32])).unwrap().is_none());
        for file in ["bad", "gone", "../good", "/etc/hostname", ""] {
            assert!(with(file).get(&key).is_err(), "{file}");
        }
    }
}
