//! `cargo xtask sanitize`: the tests under the compiler's sanitizers, and under Miri if the toolchain has it.

use std::{path::Path, time::Instant};

use crate::{
    instrumented::{cargo_with_flags, host},
    shell::{TaskError, cargo, command, output, succeeds, tests},
};

const USAGE: &str = "cargo xtask sanitize [address | thread | miri]... [--package NAME]";

/// A crate and which of its tests run.
type Subject = (&'static str, &'static [&'static str]);

const ALL: &[&str] = &["--lib", "--tests"];

/// What runs under AddressSanitizer: crates with `unsafe` code, or that read what comes from outside, the quickest first. With `kinora`,
/// the video encoder's C++ is instrumented too.
const ADDRESS: &[Subject] = &[
    ("kinora-outside", &["--lib"]),
    ("kinora-graph", ALL),
    ("kinora-profile", ALL),
    ("kinora-runtime", ALL),
    ("kinora-models", ALL),
    ("kinora", ALL),
    ("kinora-ptx", &["--lib"]),
    ("kinora-cpu", ALL),
    ("kinora-fuzz", ALL),
];

/// What runs under ThreadSanitizer: tests that share memory between threads.
const THREAD: &[Subject] = &[
    ("kinora-cpu", &["--lib"]),
    ("kinora-runtime", ALL),
    ("kinora-profile", &["--lib"]),
    ("kinora-ptx", &["--lib"]),
];

/// What runs under Miri: tests with `unsafe` code that maps no files, calls no C++ and uses no vector instructions.
const MIRI: &[Subject] =
    &[("kinora-graph", &["tensor"]), ("kinora-runtime", &[]), ("kinora-cpu", &["simd::portable"])];

/// Runs the sanitizers that are named, or all, and says what ran and what did not.
pub fn sanitize(arguments: &[String]) -> Result<(), TaskError> {
    let (mut named, mut package) = (Vec::new(), None);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "address" | "thread" | "miri" => named.push(word),
            "--package" => package = Some(words.next().ok_or(TaskError::Usage(USAGE))?),
            _ => return Err(TaskError::Usage(USAGE)),
        }
    }
    let mut report = Report::default();
    for (name, run) in [
        ("address", address as fn(&mut Report, Chosen<'_>) -> Result<(), TaskError>),
        ("thread", thread),
        ("miri", miri),
    ] {
        if named.is_empty() || named.contains(&name) {
            run(&mut report, Chosen(package))?;
        }
    }
    println!("\n{}", report.lines.join("\n"));
    report.failure.map_or(Ok(()), Err)
}

/// The one crate that was asked for, or all.
#[derive(Clone, Copy)]
struct Chosen<'a>(Option<&'a str>);

impl Chosen<'_> {
    fn of(self, subjects: &[Subject]) -> impl Iterator<Item = &Subject> {
        subjects.iter().filter(move |(package, _)| self.0.is_none_or(|chosen| chosen == *package))
    }
}

/// What ran. A crate that fails does not keep the others from running.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    failure: Option<TaskError>,
}

impl Report {
    /// Runs the tests of a crate, and notes how many passed.
    fn run(&mut self, sanitizer: &str, package: &str, command: &mut std::process::Command) {
        let start = Instant::now();
        let said = match tests(sanitizer, command) {
            Ok(passed) => format!("{passed} tests passed"),
            Err(error) => {
                let said = format!("FAILED: {error}");
                self.failure = Some(error);
                said
            }
        };
        self.lines.push(format!("{sanitizer}, {package}: {said}, {:.0} s", start.elapsed().as_secs_f64()));
    }

    fn not_run(&mut self, sanitizer: &str, why: &str) {
        self.lines.push(format!("{sanitizer}: not run: {why}"));
    }
}

fn address(report: &mut Report, chosen: Chosen<'_>) -> Result<(), TaskError> {
    let host = host()?;
    for (package, kinds) in chosen.of(ADDRESS) {
        let mut tests = cargo_with_flags(
            &["test", "--quiet", "--package", package],
            "-Zsanitizer=address",
            "target/sanitize/address",
            &host,
        );
        // The C++ of the video encoder: its calls go to the runtime that the Rust compiler links.
        let target = host.replace('-', "_");
        for variable in ["CFLAGS", "CXXFLAGS"] {
            tests.env(format!("{variable}_{target}"), "-fsanitize=address -fno-omit-frame-pointer");
        }
        // The encoder defines a table twice, with the same content. A leak is no error of memory, and finding one needs rights
        // that a container may lack.
        tests.env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0:detect_stack_use_after_return=1");
        report.run("AddressSanitizer", package, tests.args(*kinds));
    }
    Ok(())
}

fn thread(report: &mut Report, chosen: Chosen<'_>) -> Result<(), TaskError> {
    const NAME: &str = "ThreadSanitizer";
    // Without its source the standard library is not instrumented, and what its locks order looks like a race.
    let source = Path::new(output(&mut command("rustc", &["--print", "sysroot"]))?.trim())
        .join("lib/rustlib/src/rust/library/Cargo.lock");
    if !source.is_file() {
        report.not_run(NAME, "it needs the standard library's source (`rustup component add rust-src`)");
        return Ok(());
    }
    let host = host()?;
    for (package, kinds) in chosen.of(THREAD) {
        let mut run = cargo_with_flags(
            &["test", "--quiet", "-Zbuild-std", "--package", package],
            "-Zsanitizer=thread",
            "target/sanitize/thread",
            &host,
        );
        run.args(*kinds).env("RAYON_NUM_THREADS", "4").env("TSAN_OPTIONS", "halt_on_error=1");
        report.run(NAME, package, &mut run);
    }
    Ok(())
}

fn miri(report: &mut Report, chosen: Chosen<'_>) -> Result<(), TaskError> {
    if !succeeds(&mut cargo(&["miri", "--version"])) {
        report.not_run("Miri", "this toolchain does not have it (`rustup +nightly component add miri`)");
        return Ok(());
    }
    for (package, filter) in chosen.of(MIRI) {
        let mut run = cargo(&["miri", "test", "--package", package, "--lib"]);
        run.args(["--target-dir", "target/sanitize/miri", "--"]).args(*filter);
        report.run("Miri", package, run.env("MIRIFLAGS", "-Zmiri-disable-isolation"));
    }
    Ok(())
}
