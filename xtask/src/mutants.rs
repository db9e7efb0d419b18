//! `cargo xtask mutants`: whether the tests notice a change in the code that loses files or lets strangers in.
//!
//! cargo-mutants changes one expression or function at a time in a copy of the workspace and runs the tests that ought to
//! notice. What they do not notice is listed as missed.

use std::path::Path;

use crate::{
    shell::{TaskError, cargo, command, root, step, succeeds},
    workspace::{self, Package},
};

const USAGE: &str = "cargo xtask mutants [--list] [--only FILE] [--share K/N]";
const VERSION: &str = "27.1.0";
/// Results, and what is compiled.
const FOLDER: &str = "target/mutants";

/// A part of a crate, and the tests that are there for it. Others would only take time.
struct Subject {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// What the names of its integration tests begin with.
    tests: &'static [&'static str],
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "weights",
        package: "kinora-models",
        files: &["crates/models/src/weights/**"],
        tests: &["folder", "weights"],
    },
    Subject { name: "hub", package: "kinora-models", files: &["crates/models/src/hub/**"], tests: &["hub"] },
    Subject {
        name: "video",
        package: "kinora",
        files: &["crates/kinora/src/files/**", "crates/kinora/src/video/**"],
        tests: &["kept_files", "mp4", "saving", "video_files", "video_inputs", "videos"],
    },
    Subject {
        name: "memory",
        package: "kinora",
        files: &["crates/kinora/src/memory/**"],
        tests: &["memory"],
    },
];

/// Text and debugging output, which no test should have to spell out.
const LEFT_OUT: &[&str] = &["impl (fmt::)?(Debug|Display) for", "-> String with", "-> &'static str with"];

/// Runs the mutants of every subject, or lists them.
pub fn mutants(arguments: &[String]) -> Result<(), TaskError> {
    let (mut list, mut only, mut share) = (false, None, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => list = true,
            "--only" => only = Some(words.next().ok_or(TaskError::Usage(USAGE))?.as_str()),
            "--share" => share = Some(words.next().ok_or(TaskError::Usage(USAGE))?.as_str()),
            _ => return Err(TaskError::Usage(USAGE)),
        }
    }
    install()?;
    let packages = workspace::packages()?;
    let mut missed = None;
    for subject in SUBJECTS {
        let files = match only {
            Some(file) if within(subject, file) => vec![file],
            Some(_) => continue,
            None => subject.files.to_vec(),
        };
        let mut run = cargo(&["mutants", "--package", subject.package, "--no-shuffle", "--colors", "never"]);
        run.args(files.iter().flat_map(|file| ["--file", file]));
        // In one word: some begin with a dash.
        run.args(LEFT_OUT.iter().map(|text| format!("--exclude-re={text}")));
        run.args(share.iter().flat_map(|share| ["--shard", share]));
        if list {
            step("list", run.arg("--list"))?;
            continue;
        }
        let tests = tests(subject, &packages);
        run.args(["--minimum-test-timeout", "60", "--cargo-test-arg=--lib"]);
        run.args(tests.iter().map(|test| format!("--cargo-test-arg=--test={test}")));
        run.arg("--output").arg(root().join(FOLDER).join(subject.name));
        run.env("CARGO_TARGET_DIR", root().join(FOLDER).join("build"));
        // One subject's survivors do not keep the others from running.
        missed = step(subject.name, &mut run).err().or(missed);
    }
    println!("\nMissed mutants are in {FOLDER}/SUBJECT/mutants.out/missed.txt, with their changes in diff/.");
    missed.map_or(Ok(()), Err)
}

fn install() -> Result<(), TaskError> {
    if succeeds(&mut cargo(&["mutants", "--version"])) {
        return Ok(());
    }
    let remedy = "install it with `cargo install cargo-mutants`";
    step("install", &mut command("cargo", &["install", "--locked", "cargo-mutants", "--version", VERSION]))
        .map_err(|_| TaskError::Missing { what: "cargo-mutants", remedy })
}

/// Whether a file is a part of the subject.
fn within(subject: &Subject, file: &str) -> bool {
    let inside = |pattern: &&str| match pattern.strip_suffix("/**") {
        Some(folder) => Path::new(file).starts_with(folder),
        None => file == *pattern,
    };
    subject.files.iter().any(inside)
}

/// The names of the integration tests that belong to the subject.
fn tests<'a>(subject: &Subject, packages: &'a [Package]) -> Vec<&'a str> {
    let of_package = packages.iter().filter(|package| package.name == subject.package);
    let names = of_package.flat_map(|package| &package.tests).map(String::as_str);
    names.filter(|name| subject.tests.iter().any(|start| name.starts_with(start))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::size;

    #[test]
    fn every_subject_has_files_and_tests() {
        let packages = workspace::packages().unwrap();
        for subject in SUBJECTS {
            assert!(!tests(subject, &packages).is_empty(), "{}", subject.name);
            for pattern in subject.files {
                let path = root().join(pattern.trim_end_matches("/**"));
                assert!(size(&path).is_ok_and(|size| size > 0), "{pattern}");
            }
        }
    }

    #[test]
    fn a_file_belongs_to_the_subject_around_it() {
        let of = |file: &str| {
            SUBJECTS.iter().filter(|subject| within(subject, file)).map(|s| s.name).collect::<Vec<_>>()
        };
        assert_eq!(of("crates/models/src/weights/file.rs"), ["weights"]);
        assert_eq!(of("crates/kinora/src/video/mp4/boxes.rs"), ["video"]);
        assert_eq!(of("crates/kinora/src/memory/mod.rs"), ["memory"]);
        assert_eq!(of("crates/kinora/src/lib.rs"), [""; 0]);
    }
}
