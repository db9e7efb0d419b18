//! `cargo xtask sanitize`: the tests under the compiler's sanitizers, and under Miri if the toolchain has it.

use std::{path::Path, time::Instant};

use crate::{
    instrumented::{cargo_with_flags, host},
    shell::{TaskError, cargo, command, output, step, succeeds},
};

const USAGE: &str = "cargo xtask sanitize [address | thread | miri]...";

/// The crates whose tests run under AddressSanitizer: those with `unsafe` code, or that read what comes from outside. The video
/// encoder's C++ is instrumented too.
const ADDRESS: &[&str] = &[
    "kinora-outside",
    "kinora-graph",
    "kinora-models",
    "kinora-profile",
    "kinora-runtime",
    "kinora-cpu",
    "kinora-ptx",
    "kinora",
    "kinora-fuzz",
];

/// The tests that run under ThreadSanitizer: those that share memory between threads.
const THREAD: &[(&str, &[&str])] = &[
    ("kinora-cpu", &["--lib"]),
    ("kinora-runtime", &["--lib", "--tests"]),
    ("kinora-profile", &["--lib"]),
    ("kinora-ptx", &["--lib"]),
];

/// The tests with `unsafe` code that Miri can run: no files are mapped, no C++ is called, no vector instructions are used.
const MIRI: &[(&str, &[&str])] =
    &[("kinora-graph", &["tensor"]), ("kinora-runtime", &[]), ("kinora-cpu", &["simd::portable"])];

/// Runs the sanitizers that are named, or all, and says what ran and what did not.
pub fn sanitize(arguments: &[String]) -> Result<(), TaskError> {
    let all = ["address", "thread", "miri"];
    if arguments.iter().any(|word| !all.contains(&word.as_str())) {
        return Err(TaskError::Usage(USAGE));
    }
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|word| word == name);
    let mut report = Vec::new();
    for (name, run) in
        [("address", address as fn() -> Result<String, TaskError>), ("thread", thread), ("miri", miri)]
    {
        if wanted(name) {
            let start = Instant::now();
            let said = run()?;
            report.push(format!("{name}: {said}, {:.0} s", start.elapsed().as_secs_f64()));
        }
    }
    println!("\n{}", report.join("\n"));
    Ok(())
}

fn address() -> Result<String, TaskError> {
    let host = host()?;
    let mut tests = cargo_with_flags(
        &["test", "--quiet", "--lib", "--tests"],
        "-Zsanitizer=address",
        "target/sanitize/address",
        &host,
    );
    for package in ADDRESS {
        tests.args(["--package", package]);
    }
    // The C++ of the video encoder: its calls go to the runtime that the Rust compiler links.
    let target = host.replace('-', "_");
    for variable in ["CFLAGS", "CXXFLAGS"] {
        tests.env(format!("{variable}_{target}"), "-fsanitize=address -fno-omit-frame-pointer");
    }
    // The encoder defines a table twice, with the same content. A leak is no error of memory, and finding one needs rights that a
    // container may lack.
    tests.env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0:detect_stack_use_after_return=1");
    step("AddressSanitizer", &mut tests)?;
    Ok(format!("{} passed, the video encoder's C++ instrumented", ADDRESS.join(", ")))
}

fn thread() -> Result<String, TaskError> {
    // Without its source the standard library is not instrumented, and what its locks order looks like a race.
    let source = Path::new(output(&mut command("rustc", &["--print", "sysroot"]))?.trim())
        .join("lib/rustlib/src/rust/library/Cargo.lock");
    if !source.is_file() {
        return Ok(
            "not run: ThreadSanitizer needs the standard library's source (`rustup component add rust-src`)"
                .to_owned(),
        );
    }
    let host = host()?;
    for (package, tests) in THREAD {
        let mut run = cargo_with_flags(
            &["test", "--quiet", "-Zbuild-std", "--package", package],
            "-Zsanitizer=thread",
            "target/sanitize/thread",
            &host,
        );
        run.args(*tests).env("RAYON_NUM_THREADS", "4").env("TSAN_OPTIONS", "halt_on_error=1");
        step("ThreadSanitizer", &mut run)?;
    }
    let packages: Vec<&str> = THREAD.iter().map(|(package, _)| *package).collect();
    Ok(format!("{} passed", packages.join(", ")))
}

fn miri() -> Result<String, TaskError> {
    if !succeeds(&mut cargo(&["miri", "--version"])) {
        return Ok("not run: this toolchain has no Miri (`rustup +nightly component add miri`)".to_owned());
    }
    for (package, filter) in MIRI {
        let mut run = cargo(&["miri", "test", "--package", package, "--lib"]);
        run.args(["--target-dir", "target/sanitize/miri", "--"]).args(*filter);
        step("Miri", run.env("MIRIFLAGS", "-Zmiri-disable-isolation"))?;
    }
    let packages: Vec<&str> = MIRI.iter().map(|(package, _)| *package).collect();
    Ok(format!("{} passed", packages.join(", ")))
}
