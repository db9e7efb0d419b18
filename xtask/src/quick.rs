//! `cargo xtask test --quick`: the checks that matter to a change.

use std::{collections::BTreeSet, path::Path, process::Command, time::Instant};

use crate::{
    checks, python,
    shell::{TaskError, cargo, command, output, step, succeeds},
    workspace::{self, Package, with_dependants},
};

/// Tests that take too long to run for every change.
struct Slow {
    /// The crate that they belong to.
    package: &'static str,
    /// Which they are.
    tests: Tests,
    /// How long they take, on two cores.
    seconds: u32,
    /// What takes so long.
    why: &'static str,
}

/// Some tests of a crate.
enum Tests {
    /// All in a file of its `tests` folder.
    File(&'static str),
    /// A single one, by its path.
    One(&'static str),
}

/// What the quick run leaves out: 380 of the 480 seconds that all tests take.
const SLOW: &[Slow] = &[
    Slow {
        package: "kinora-cuda",
        tests: Tests::File("simulated_ops"),
        seconds: 208,
        why: "simulates the kernels of every op on every architecture",
    },
    Slow {
        package: "kinora",
        tests: Tests::File("compiled_kernels"),
        seconds: 96,
        why: "compiles the kernels of a whole clip for every architecture",
    },
    Slow {
        package: "kinora-cli",
        tests: Tests::File("doctor"),
        seconds: 38,
        why: "runs every check of `kinora doctor`, which compiles and simulates kernels",
    },
    Slow {
        package: "kinora-cli",
        tests: Tests::File("kernels"),
        seconds: 14,
        why: "compiles a model's kernels ahead of time",
    },
    Slow {
        package: "kinora-cpu",
        tests: Tests::One("fast::tests::every_op_equals_the_reference"),
        seconds: 12,
        why: "runs every op in every instruction set",
    },
    Slow {
        package: "kinora-cpu",
        tests: Tests::One("fast::tests::operands_of_other_element_types_equal_the_reference"),
        seconds: 12,
        why: "runs every op in every mixture of types",
    },
];

/// Files outside a crate's folder that its tests read.
const READ_BY: &[(&str, &[&str])] = &[
    ("golden/photos/", &["kinora", "kinora-cli"]),
    ("crates/cuda/src/kernels/", &["kinora-ptx"]),
    ("README.md", &["kinora", "kinora-cli"]),
];
/// Files that every crate depends on.
const SHARED: &[&str] = &["Cargo.toml", "Cargo.lock", ".cargo/", "clippy.toml"];

/// Checks formats and all Python, and lints and tests the crates that changed since `main` and those that depend on them;
/// leaves out the docs and the slow tests, and says so.
pub fn test_quickly() -> Result<(), TaskError> {
    let start = Instant::now();
    let packages = workspace::packages()?;
    let base = base()?;
    let files = changed_files(&base)?;
    let affected = affected(&packages, &files);
    let affected: Vec<&Package> =
        packages.iter().filter(|package| affected.contains(&package.name)).collect();
    let names: Vec<&str> = affected.iter().map(|package| package.name.as_str()).collect();
    println!("{} files changed since {base}; crates to check: {}", files.len(), or_none(&names));
    checks::formats()?;
    if affected.is_empty() {
        println!("\nNo crate is affected. `cargo xtask test` checks everything.");
        return Ok(());
    }
    let mut lint = cargo(&["clippy", "--all-targets", "--quiet"]);
    step("lint", select(&mut lint, &affected).args(["--", "-D", "warnings"]))?;
    let mut tests = tests(&affected);
    python::require_packages(&mut tests)?;
    step("tests", &mut tests)?;
    println!("\nThe quick checks passed in {:.0} s. Left out:", start.elapsed().as_secs_f64());
    println!("  docs, doc tests, feature combinations, packages");
    for slow in left_out(&affected) {
        let tests = match slow.tests {
            Tests::File(file) => format!("tests/{file}.rs"),
            Tests::One(test) => test.to_owned(),
        };
        println!("  {} {tests} ({} s): {}", slow.package, slow.seconds, slow.why);
    }
    println!("`cargo xtask test` runs these too.");
    Ok(())
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The commit that the changes are counted from: where this branch left `main`, or the last commit if there is no `main`.
fn base() -> Result<String, TaskError> {
    let branch = output(&mut command("git", &["rev-parse", "--abbrev-ref", "HEAD"]))?;
    // Commits on `main` itself are compared with the branch that they would be pushed to.
    let candidates = if branch.trim() == "main" { ["origin/main", "main"] } else { ["main", "origin/main"] };
    for main in candidates {
        if succeeds(&mut command("git", &["rev-parse", "--verify", main])) {
            let base = output(&mut command("git", &["merge-base", "HEAD", main]))?;
            return Ok(base.trim().chars().take(12).collect());
        }
    }
    Ok("HEAD".to_owned())
}

/// The files that differ from a commit, new ones included.
fn changed_files(base: &str) -> Result<Vec<String>, TaskError> {
    let tracked = output(&mut command("git", &["diff", "--name-only", "--no-renames", base]))?;
    let untracked = output(&mut command("git", &["ls-files", "--others", "--exclude-standard"]))?;
    Ok(tracked.lines().chain(untracked.lines()).map(str::to_owned).collect())
}

/// The crates that changed files belong to or are read by, and all that depend on them.
fn affected(packages: &[Package], files: &[String]) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    for file in files {
        if SHARED.iter().any(|shared| file.starts_with(shared)) {
            return packages.iter().map(|package| package.name.clone()).collect();
        }
        let owners = packages.iter().filter(|package| Path::new(file).starts_with(&package.folder));
        changed.extend(owners.map(|package| package.name.clone()));
        let readers =
            READ_BY.iter().filter(|(folder, _)| file.starts_with(folder)).flat_map(|(_, readers)| *readers);
        changed.extend(readers.map(|name| (*name).to_owned()));
    }
    with_dependants(packages, &changed)
}

/// Names the crates that a cargo command is for.
fn select<'a>(command: &'a mut Command, packages: &[&Package]) -> &'a mut Command {
    for package in packages {
        command.args(["--package", &package.name]);
    }
    command
}

/// What the quick run leaves out of these crates.
fn left_out(packages: &[&Package]) -> impl Iterator<Item = &'static Slow> {
    SLOW.iter().filter(|slow| packages.iter().any(|package| package.name == slow.package))
}

/// The command that runs the unit tests and the quick integration tests.
fn tests(packages: &[&Package]) -> Command {
    let mut command = cargo(&["test", "--quiet"]);
    select(&mut command, packages);
    if packages.iter().any(|package| package.library) {
        command.arg("--lib");
    }
    if packages.iter().any(|package| package.program) {
        command.arg("--bins");
    }
    for package in packages {
        for name in &package.tests {
            if !left_out(&[package]).any(|slow| matches!(slow.tests, Tests::File(file) if file == name)) {
                command.args(["--test", name]);
            }
        }
    }
    command.arg("--");
    for slow in left_out(packages) {
        if let Tests::One(test) = slow.tests {
            command.args(["--skip", test]);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        files::entries,
        shell::{command_line, root},
        workspace::tests::package,
    };

    fn names(packages: &[Package], files: &[&str]) -> String {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        affected(packages, &files).into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn changed_files_lead_to_crates() {
        let packages = [
            package("kinora", &["graph"]),
            package("kinora-cli", &["kinora"]),
            package("graph", &[]),
            package("gra", &[]),
        ];
        assert_eq!(names(&packages, &["docs/glossary.md", "golden/make_ops.py"]), "");
        assert_eq!(names(&packages, &["README.md"]), "kinora kinora-cli");
        assert_eq!(names(&packages, &["crates/gra/src/lib.rs"]), "gra");
        assert_eq!(names(&packages, &["crates/graph/src/lib.rs"]), "graph kinora kinora-cli");
        assert_eq!(names(&packages, &["golden/photos/420.jpg"]), "kinora kinora-cli");
        assert_eq!(names(&packages, &["Cargo.lock"]), "gra graph kinora kinora-cli");
    }

    #[test]
    fn slow_files_are_not_run_and_slow_tests_are_skipped() {
        for slow in SLOW {
            let mut package = package(slow.package, &[]);
            package.tests = vec!["quick".to_owned()];
            if let Tests::File(file) = slow.tests {
                package.tests.push(file.to_owned());
            }
            let line = command_line(&tests(&[&package]));
            assert!(line.contains(" --lib --test quick --"), "{line}");
            match slow.tests {
                Tests::File(file) => assert!(!line.contains(file), "{line}"),
                Tests::One(test) => assert!(line.contains(&format!("--skip {test}")), "{line}"),
            }
        }
        let line = command_line(&tests(&[&package("other", &[])]));
        assert!(line.ends_with("test --quiet --package other --lib --"), "{line}");
    }

    #[test]
    fn everything_that_is_left_out_exists() {
        let packages = workspace::packages().unwrap();
        for slow in SLOW {
            let package = packages.iter().find(|package| package.name == slow.package).expect(slow.package);
            match slow.tests {
                Tests::File(file) => assert!(package.tests.iter().any(|name| name == file), "{file}"),
                Tests::One(test) => {
                    let name = format!("fn {}(", test.rsplit("::").next().unwrap());
                    assert!(contains(&root().join(&package.folder), &name), "{} has no {name}", slow.package);
                }
            }
        }
    }

    /// Whether a source file below a folder has a text.
    fn contains(folder: &Path, text: &str) -> bool {
        entries(folder).unwrap().iter().any(|path| match path.extension() {
            Some(extension) if extension == "rs" => std::fs::read_to_string(path).unwrap().contains(text),
            _ => path.is_dir() && contains(path, text),
        })
    }
}
