//! `cargo xtask bundle`: one folder that tests and times the project on a GPU host without a Rust toolchain, and the same as an
//! archive to carry there.
//!
//! Inside it files lie as they do in the repository, so that scripts and tests find each other by the same paths.

use std::{fs, path::Path};

use crate::{
    archive,
    executables::{self, Executable},
    files::{copy, entries, io_error, make_folder, mebibytes, size, write_script},
    python,
    shell::{TaskError, command, root, step},
};

/// Where it goes: git ignores all of `target`.
const FOLDER: &str = "target/bundle";
const ARCHIVE: &str = "target/bundle.tar.xz";
/// How large the archive may be, to be carried to a GPU host.
const LIMIT: u64 = 64 << 20;
/// What is built, all by one command: cargo then compiles each dependency with one set of features. The model in the box would be a third of
/// the archive, and nothing here needs it.
const BUILD: [&str; 15] = [
    "build",
    "--release",
    "--package=kinora-cli",
    "--package=kinora-cuda",
    "--package=kinora",
    "--package=kinora-bench",
    "--package=kinora-lab",
    "--no-default-features",
    "--features=kinora-cli/cuda,kinora-cli/simulator,kinora-cuda/simulator,kinora-lab/cuda",
    "--bin=kinora",
    // Tests and benchmarks for a GPU have such names. All others run where the bundle is made.
    "--test=gpu_*",
    "--bench=live_*",
    "--bench=svd_*",
    "--bench=simulator_on_gpu",
    "--bench=planted_on_gpu",
];

/// Builds and gathers everything, and packs it.
pub fn bundle() -> Result<(), TaskError> {
    archive::check_programs()?;
    let (bundle, archive) = (root().join(FOLDER), root().join(ARCHIVE));
    if bundle.exists() {
        fs::remove_dir_all(&bundle).map_err(io_error(&bundle))?;
    }
    // Should a build fail, an archive of an earlier one would pass for its own.
    if archive.exists() {
        fs::remove_file(&archive).map_err(io_error(&archive))?;
    }
    make_folder(&bundle)?;
    programs(&bundle)?;
    data(&bundle)?;
    python::pack_packages(&bundle.join("crates/bench/peers"))?;
    write_script(&bundle.join("run"), include_str!("run.sh"))?;
    write_script(&bundle.join(".python/bin/python"), include_str!("python.sh"))?;
    let built_at = bundle.join("built-at");
    fs::write(&built_at, format!("{}\n", root().display())).map_err(io_error(&built_at))?;
    report(&bundle)?;
    archive::pack(&bundle, &archive)?;
    archive::check_size(&archive, ARCHIVE, LIMIT)
}

/// The command line, and the executables of tests and benchmarks, each in the folder of its crate.
fn programs(bundle: &Path) -> Result<(), TaskError> {
    for program in executables::build("programs", &BUILD)? {
        let of_crate = program.package.file_name().unwrap_or_default();
        let to = match program.kind.as_str() {
            "test" => bundle.join("tests").join(of_crate),
            "bench" => bundle.join("bench").join(of_crate),
            _ => bundle.to_owned(),
        };
        strip(&program, &to.join(&program.name))?;
    }
    Ok(())
}

/// Copies an executable without its debug information, which is most of it.
fn strip(program: &Executable, to: &Path) -> Result<(), TaskError> {
    if let Some(folder) = to.parent() {
        make_folder(folder)?;
    }
    let mut strip = command("strip", &["-o"]);
    step("strip", strip.arg(to).arg(&program.path))
}

/// What tests, benchmarks and peers read.
fn data(bundle: &Path) -> Result<(), TaskError> {
    for package in entries(&root().join("crates"))? {
        let Ok(inside) = package.strip_prefix(root()) else { continue };
        // A test starts in its crate's folder, and paths lead through it to others.
        make_folder(&bundle.join(inside))?;
        let fixtures = package.join("tests/fixtures");
        if fixtures.is_dir() {
            copy(&fixtures, &bundle.join(inside).join("tests/fixtures"))?;
        }
    }
    for path in ["golden/photos", "crates/bench/peers", "crates/models/presets", "testing/fixtures"] {
        copy(&root().join(path), &bundle.join(path))?;
    }
    Ok(())
}

/// Says how large each part is.
fn report(bundle: &Path) -> Result<(), TaskError> {
    println!("\n{FOLDER}");
    for path in entries(bundle)? {
        let parts = match path.file_name().and_then(|name| name.to_str()) {
            // Of these, each one counts.
            Some("tests" | "bench") => {
                entries(&path)?.iter().map(|of| entries(of)).collect::<Result<Vec<_>, _>>()?.concat()
            }
            _ => vec![path],
        };
        for part in parts {
            let name = part.strip_prefix(bundle).unwrap_or(&part);
            println!("  {:40} {:7.2} MiB", name.display(), mebibytes(size(&part)?));
        }
    }
    println!("  {:40} {:7.2} MiB", "all", mebibytes(size(bundle)?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_the_bundle_keep_their_places_in_the_repository() {
        let bundle = std::env::temp_dir().join(format!("kinora-bundle-test-{}", std::process::id()));
        data(&bundle).unwrap();
        for path in [
            "testing/fixtures/ops/conv.safetensors",
            "crates/kinora/tests/fixtures/pipeline/clips.json",
            "golden/photos",
            "crates/bench/peers/svd_gpu.py",
            "crates/bench/peers/ncu.py",
            "crates/bench/peers/ncu_counters.py",
            "crates/bench/peers/ncu_times.py",
            "crates/bench/peers/op_shapes.json",
            "crates/models/presets/svd.json",
        ] {
            assert_eq!(
                size(&bundle.join(path)).map_err(|error| error.to_string()),
                size(&root().join(path)).map_err(|error| error.to_string())
            );
        }
        // Fixtures of another crate are found from a crate that has none.
        assert!(bundle.join("crates/cuda/../models/tests/fixtures").is_dir());
        assert!(report(&bundle).is_ok());
        fs::remove_dir_all(&bundle).unwrap();
    }
}
