//! `cargo xtask test`: everything that checks the project.

use std::time::Instant;

use crate::{
    python,
    shell::{TaskError, cargo, command, step, succeeds},
};

/// Sets up what is needed and runs every check; stops at the first that fails.
pub fn test() -> Result<(), TaskError> {
    let start = Instant::now();
    components()?;
    step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    step("python syntax", &mut python::syntax_check()?)?;
    step("lint", &mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    step("docs", cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    let mut tests = cargo(&["test", "--workspace", "--quiet"]);
    if python::kernel_compiler()? {
        // Without it, the tests that compile kernels say that they did not run; here that is a failure.
        tests.env("KINORA_REQUIRE_NVRTC", "1");
    }
    step("tests", &mut tests)?;
    println!("\nAll checks passed in {:.0} s.", start.elapsed().as_secs_f64());
    Ok(())
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
