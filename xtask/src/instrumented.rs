//! Builds with the compiler's sanitizers. Their flags are unstable; `RUSTC_BOOTSTRAP` lets the installed compiler take them.

use std::process::Command;

use crate::shell::{TaskError, cargo, command, output};

/// The machine that the compiler builds for by default: `x86_64-unknown-linux-gnu` …
pub fn host() -> Result<String, TaskError> {
    let about = output(&mut command("rustc", &["-vV"]))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or(TaskError::Missing {
        what: "the host in `rustc -vV`",
        remedy: "install a Rust toolchain with rustup",
    })
}

/// Cargo with flags for the compiler, and a folder of its own for what it builds. With `--target`, even for this machine, the
/// flags do not reach build scripts and macros.
pub fn cargo_with_flags(arguments: &[&str], flags: &str, folder: &str, host: &str) -> Command {
    let mut cargo = cargo(arguments);
    cargo.args(["--target", host, "--target-dir", folder]);
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
    cargo
}
