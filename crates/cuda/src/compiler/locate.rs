//! Which of the compilers that are installed is taken.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::nvrtc::Nvrtc;
use crate::{
    CudaError,
    installed::{LoadError, Sought, Surroundings, version_in},
};

/// NVIDIA's run-time compiler.
pub(super) const NVRTC: Sought = Sought {
    variable: "KINORA_NVRTC",
    #[cfg(windows)]
    names: &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
    #[cfg(not(windows))]
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    install_folders: &[],
    wheel_folders: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cu13/bin", "nvidia/cuda_nvrtc/bin"],
};

/// Loads the first compiler that works. `newest` is the newest CUDA that code may be made by: a driver does not load what a
/// later major version made.
///
/// # Errors
/// If none does, with all that were tried.
pub(super) fn find(surroundings: &Surroundings, newest: Option<u32>) -> Result<&'static Nvrtc, CudaError> {
    let loaded = surroundings.first(&NVRTC, |candidate| {
        let folder = candidate.path.parent().filter(|_| !candidate.by_loader);
        let nvrtc = Nvrtc::shared(&candidate.path, folder.and_then(builtins_in).as_deref())?;
        match nvrtc.version() {
            (major, minor) if newest.is_some_and(|newest| major > newest) => {
                Err(LoadError::TooNew { major, minor })
            }
            _ => Ok(nvrtc),
        }
    });
    loaded.map_err(|source| CudaError::NoCompiler { source })
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
    fn the_message_is_a_sentence_and_its_cause_says_where_was_looked() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("libnvrtc.so.13");
        let named = Surroundings { named: Some(broken.clone()), ..Surroundings::default() };
        let error = || find(&named, None).err().unwrap();
        let message = error().to_string();
        assert!(message.contains(&format!("cannot be used: {}: not found", broken.display())), "{message}");
        assert!(message.contains("pip install nvidia-cuda-nvrtc") && message.contains(NVRTC.variable));
        // For a file that is not a library, the message says so.
        fs::write(&broken, "not a library").unwrap();
        let message = error().to_string();
        assert!(message.contains("libnvrtc.so.13") && !message.contains(": not found"), "{message}");
        // Many places without a library are the cause's business.
        let installs = vec![folder.path().to_owned()];
        let error = find(&Surroundings { installs, ..Surroundings::default() }, Some(0)).err().unwrap();
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("targets/sbsa-linux/lib/libnvrtc.so.12: not found"), "{cause}");
    }

    #[test]
    fn the_newest_built_in_functions_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["libnvrtc-builtins.so.12.8", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.9"]
        {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(builtins_in(folder.path()), Some(folder.path().join("libnvrtc-builtins.so.13.0")));
    }
}
