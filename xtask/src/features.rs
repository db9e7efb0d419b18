//! The features of `kinora` and its program: every combination that makes sense compiles.

use crate::shell::{TaskError, cargo, step};

/// The combinations. The default one, all features, is what the other checks build.
const COMBINATIONS: [&str; 5] = ["", "model-in-the-box", "cuda", "simulator", "cuda,simulator"];

/// Lints the library and the program, with their tests, in each combination.
pub fn check() -> Result<(), TaskError> {
    for features in COMBINATIONS {
        let title = if features.is_empty() { "no features" } else { features };
        let mut lint =
            cargo(&["clippy", "--quiet", "--package", "kinora", "--package", "kinora-cli", "--all-targets"]);
        lint.args(["--no-default-features", "--features", features, "--", "-D", "warnings"]);
        step(title, &mut lint)?;
    }
    Ok(())
}
