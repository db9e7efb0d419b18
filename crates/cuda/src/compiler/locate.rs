//! Where NVIDIA's run-time compiler is looked for: beside a CUDA install, and in Python's packages.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::nvrtc::Nvrtc;
use crate::CudaError;

/// The library's names, the newest first.
#[cfg(windows)]
const NAMES: [&str; 2] = ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"];
/// The library's names, the newest first.
#[cfg(not(windows))]
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Folders of a CUDA install that hold libraries.
const INSTALL_FOLDERS: [&str; 5] =
    ["lib64", "lib", "bin", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// Folders of Python's packages that hold the library, the newest first.
const WHEEL_FOLDERS: [&str; 4] =
    ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cu13/bin", "nvidia/cuda_nvrtc/bin"];

/// What of the process's surroundings says where to look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// `KINORA_NVRTC`: the library or its folder. Nothing else is tried then.
    pub named: Option<PathBuf>,
    /// CUDA installs, by environment variables and by custom.
    pub installs: Vec<PathBuf>,
    /// Python environments: active ones, and the one that a project keeps.
    pub environments: Vec<PathBuf>,
    /// The newest CUDA that code may be made by: a driver does not load what a later major version made.
    pub newest: Option<u32>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Surroundings {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let mut installs: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).collect();
        installs.extend(customary_installs());
        let mut environments: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
        // The folder that `cargo xtask test` installs into, seen from wherever in the project the process runs.
        if let Ok(folder) = std::env::current_dir() {
            environments.extend(folder.ancestors().map(|f| f.join(".python")).filter(|f| f.is_dir()).take(1));
        }
        Surroundings { named: variable("KINORA_NVRTC"), installs, environments, newest: None }
    }

    /// The libraries that might do, in the order in which they are tried.
    fn candidates(&self) -> Vec<PathBuf> {
        if let Some(named) = &self.named {
            if named.is_dir() {
                return NAMES.iter().map(|name| named.join(name)).collect();
            }
            return vec![named.clone()];
        }
        let in_installs =
            self.installs.iter().flat_map(|install| INSTALL_FOLDERS.map(|folder| install.join(folder)));
        let in_wheels = self
            .environments
            .iter()
            .flat_map(|environment| site_packages(environment))
            .flat_map(|packages| WHEEL_FOLDERS.map(|folder| packages.join(folder)));
        // A bare name is the loader's to find.
        let by_loader = NAMES.iter().map(PathBuf::from);
        let in_folders = in_installs.chain(in_wheels).flat_map(|folder| NAMES.map(|name| folder.join(name)));
        by_loader.chain(in_folders).collect()
    }

    /// Loads the first library that works.
    ///
    /// # Errors
    /// Where none does, with all that were tried.
    pub fn find(&self) -> Result<&'static Nvrtc, CudaError> {
        let mut tried = Vec::new();
        for candidate in self.candidates() {
            let by_loader = candidate.components().count() == 1 && self.named.is_none();
            if !by_loader && !candidate.is_file() {
                tried.push(format!("  {}: not there", candidate.display()));
                continue;
            }
            let builtins = candidate.parent().filter(|_| !by_loader).and_then(builtins_in);
            match Nvrtc::shared(&candidate, builtins.as_deref()) {
                Ok(nvrtc) if self.newest.is_some_and(|newest| nvrtc.version().0 > newest) => {
                    let (major, minor) = nvrtc.version();
                    tried.push(format!(
                        "  {}: version {major}.{minor} is too new for this machine's driver",
                        candidate.display()
                    ));
                }
                Ok(nvrtc) => return Ok(nvrtc),
                Err(reason) => tried.push(format!("  {}: {reason}", candidate.display())),
            }
        }
        if self.named.is_none() && self.environments.is_empty() {
            tried.push("  no Python environment is active (VIRTUAL_ENV, CONDA_PREFIX)".to_owned());
        }
        Err(CudaError::NoCompiler { tried })
    }
}

/// `/usr/local/cuda`, then `/usr/local/cuda-13.0` and its like, the newest first.
fn customary_installs() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/local")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("cuda-"))
        .map(|entry| entry.path())
        .collect();
    found.sort_by_key(|path| std::cmp::Reverse(version_in(path)));
    let mut installs = vec![PathBuf::from("/usr/local/cuda")];
    installs.extend(found);
    installs
}

/// The numbers in a folder's name: 13 comes after 9.
fn version_in(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The package folders of a Python environment.
fn site_packages(environment: &Path) -> Vec<PathBuf> {
    let mut found = vec![environment.join("Lib").join("site-packages")];
    for lib in ["lib", "lib64"] {
        let pythons = fs::read_dir(environment.join(lib)).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = pythons
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .map(|entry| entry.path().join("site-packages"))
            .collect();
        folders.sort_by_key(|path| path.parent().map(version_in));
        folders.reverse();
        found.extend(folders);
    }
    found.retain(|folder| folder.is_dir());
    found
}

/// The library of built-in functions in a folder. It has a variant with `alt` in its name for another build of the
/// compiler.
fn builtins_in(folder: &Path) -> Option<PathBuf> {
    let is_builtins = |name: &OsString| {
        let name = name.to_string_lossy();
        (name.starts_with("libnvrtc-builtins.so") || name.starts_with("nvrtc-builtins64"))
            && !name.contains("alt")
    };
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|entry| is_builtins(&entry.file_name()))
        .map(|entry| entry.path())
        .collect();
    found.sort_by_key(|path| version_in(path));
    found.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_library_is_the_only_one_tried() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("libnvrtc.so.13");
        let named = |path: &Path| Surroundings {
            named: Some(path.to_owned()),
            installs: vec!["/usr/local/cuda".into()],
            ..Surroundings::default()
        };
        assert_eq!(named(&missing).candidates(), std::slice::from_ref(&missing));
        let message = named(&missing).find().err().unwrap().to_string();
        assert!(message.contains(&*missing.to_string_lossy()) && message.contains("not there"), "{message}");
        // A folder stands for the library in it.
        let candidates = named(folder.path()).candidates();
        assert!(candidates.iter().all(|path| path.parent() == Some(folder.path())) && !candidates.is_empty());
        // A file that is no library says why it does not do.
        fs::write(&missing, "not a library").unwrap();
        let message = named(&missing).find().err().unwrap().to_string();
        assert!(message.contains("libnvrtc.so.13") && !message.contains("not there"), "{message}");
    }

    #[test]
    fn the_message_says_where_was_looked_and_how_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("lib/python3.12/site-packages");
        fs::create_dir_all(&packages).unwrap();
        let surroundings = Surroundings {
            named: None,
            installs: vec![folder.path().join("cuda")],
            environments: vec![folder.path().to_owned()],
            newest: None,
        };
        let candidates = surroundings.candidates();
        assert!(candidates.contains(&PathBuf::from(NAMES[0])));
        assert!(candidates.contains(&folder.path().join("cuda/lib64").join(NAMES[0])));
        assert!(candidates.contains(&packages.join("nvidia/cu13/lib").join(NAMES[0])));
        let message = CudaError::NoCompiler { tried: vec!["  here: not there".into()] }.to_string();
        assert!(message.contains("pip install nvidia-cuda-nvrtc") && message.contains("KINORA_NVRTC"));
        assert!(message.ends_with("here: not there"));
    }

    #[test]
    fn newer_versions_come_first() {
        assert!(version_in(Path::new("/usr/local/cuda-13.0")) > version_in(Path::new("/usr/local/cuda-9.2")));
        assert!(version_in(Path::new("lib/python3.12")) > version_in(Path::new("lib/python3.9")));
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["libnvrtc-builtins.so.12.8", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.9"]
        {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(builtins_in(folder.path()), Some(folder.path().join("libnvrtc-builtins.so.13.0")));
    }
}
