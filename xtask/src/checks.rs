//! `cargo xtask test`: everything that checks the project.

use std::time::Instant;

use crate::{
    crates, features, packages, python,
    shell::{TaskError, cargo, command, step, succeeds},
    workspace,
};

/// Sets up what is needed and runs every check; stops at the first that fails.
pub fn test() -> Result<(), TaskError> {
    let start = Instant::now();
    formats()?;
    step("lint", &mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    step("docs", cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    crates::check()?;
    features::check()?;
    packages::check(&workspace::packages()?)?;
    let mut tests = cargo(&["test", "--workspace", "--quiet"]);
    python::require_packages(&mut tests)?;
    step("tests", &mut tests)?;
    println!("\nAll checks passed in {:.0} s.", start.elapsed().as_secs_f64());
    Ok(())
}

/// The format of all Rust, and lints and the format of all Python: they need no build.
pub fn formats() -> Result<(), TaskError> {
    components()?;
    step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    python::lint()
}

/// The toolchain's own formatter and linter; a minimal toolchain lacks them, and rustup adds them.
fn components() -> Result<(), TaskError> {
    for (what, subcommand, remedy) in [
        ("rustfmt", "fmt", "install it with `rustup component add rustfmt`"),
        ("clippy", "clippy", "install it with `rustup component add clippy`"),
    ] {
        if !succeeds(&mut cargo(&[subcommand, "--version"])) {
            step("toolchain", &mut command("rustup", &["component", "add", what]))
                .map_err(|_| TaskError::Missing { what, remedy })?;
        }
    }
    Ok(())
}
