//! The scripts of `crates/bench/peers` that compare us with Nsight Compute, with a fake profiler that prints its tables.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod counters;
mod times;

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Writes an executable script.
fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Runs a script of the peers; gives its output and exit code.
fn peer(name: &str, words: &[&OsStr]) -> (String, Option<i32>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name);
    let run = Command::new("python3").arg(path).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    (text, run.status.code())
}
