//! `cargo xtask fuzz`: builds all fuzz targets into one program, and runs them in turn.

mod options;
mod package;
mod runs;

use std::{fs, path::PathBuf};

use crate::{
    files::{copy, entries, io_error, make_folder},
    instrumented::{cargo_with_flags, host},
    shell::{TaskError, command, output, root, step},
};
use options::Options;

/// The flags of cargo-fuzz: coverage that libFuzzer reads, and AddressSanitizer.
const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
const BUILT: &str = "target/fuzz";
const DRIVER: &str = "kinora-fuzz-driver";
/// The environment variable that tells the driver which target to run.
const TARGET: &str = "KINORA_FUZZ_TARGET";

/// A target as the driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    name: String,
    max_bytes: String,
}

/// Builds the targets, and runs, minimises or packs them as the arguments say.
pub fn fuzz(arguments: &[String]) -> Result<(), TaskError> {
    let options = Options::parse(arguments)?;
    let driver = build()?;
    let mut targets = listed(&output(&mut command(&driver, &[]))?);
    if let Some(only) = &options.target {
        targets.retain(|target| target.name == *only);
        if targets.is_empty() {
            return Err(TaskError::Usage("cargo xtask fuzz --target NAME; `ls fuzz/corpus` has the names"));
        }
    }
    if let Some(folder) = &options.package {
        return package::package(&driver, folder);
    }
    if options.minimise {
        return targets.iter().try_for_each(|target| minimise(&driver, target));
    }
    runs::run(&driver, &targets, &options)
}

/// Builds the driver. It has the workspace's versions of all crates, and libFuzzer.
fn build() -> Result<PathBuf, TaskError> {
    copy(&root().join("Cargo.lock"), &root().join("fuzz/driver/Cargo.lock"))?;
    let host = host()?;
    let arguments = ["build", "--release", "--manifest-path", "fuzz/driver/Cargo.toml"];
    step("build", &mut cargo_with_flags(&arguments, FLAGS, BUILT, &host))?;
    Ok(root().join(BUILT).join(host).join("release").join(DRIVER))
}

/// What the driver prints if it is told no target: a name and the longest input of each.
fn listed(text: &str) -> Vec<Target> {
    let target = |line: &str| {
        let (name, max_bytes) = line.split_once(' ')?;
        Some(Target { name: name.to_owned(), max_bytes: max_bytes.to_owned() })
    };
    text.lines().filter_map(target).collect()
}

/// The corpus of a target in the repository, and that of the runs on this machine.
fn corpora(target: &Target) -> [PathBuf; 2] {
    [root().join("fuzz/corpus").join(&target.name), root().join(BUILT).join("corpus").join(&target.name)]
}

/// Replaces what fuzzing added to the repository's corpus by the fewest inputs that cover as much as all that is known. Files
/// with an ending were put there by people, and stay.
fn minimise(driver: &PathBuf, target: &Target) -> Result<(), TaskError> {
    let [kept, new] = corpora(target);
    make_folder(&new)?;
    let least = root().join(BUILT).join("least").join(&target.name);
    if least.exists() {
        fs::remove_dir_all(&least).map_err(io_error(&least))?;
    }
    make_folder(&least)?;
    // How often an edge is passed does not count: such inputs would be three times as many.
    let mut merge =
        command(driver, &["-set_cover_merge=1", "-use_counters=0", "-rss_limit_mb=4096", "-timeout=20"]);
    merge.arg(format!("-max_len={}", target.max_bytes)).args([&least, &kept, &new]);
    step(&target.name, merge.env(TARGET, &target.name))?;
    let before = entries(&kept)?;
    let (by_people, found): (Vec<PathBuf>, Vec<PathBuf>) =
        before.iter().cloned().partition(|path| path.extension().is_some());
    found.iter().try_for_each(|path| fs::remove_file(path).map_err(io_error(path)))?;
    let read = |path: &PathBuf| fs::read(path).map_err(io_error(path));
    let by_people = by_people.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    for path in entries(&least)? {
        if !by_people.contains(&read(&path)?) {
            copy(&path, &kept.join(path.file_name().unwrap_or_default()))?;
        }
    }
    println!("{}: {} inputs, {} before", target.name, entries(&kept)?.len(), before.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_list_is_understood() {
        let target = |name: &str, max: &str| Target { name: name.to_owned(), max_bytes: max.to_owned() };
        assert_eq!(listed("photo 4096\nptx 16384\n"), [target("photo", "4096"), target("ptx", "16384")]);
        assert_eq!(listed(""), []);
    }
}
