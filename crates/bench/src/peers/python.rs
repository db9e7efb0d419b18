//! The Python that runs the peers.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// An interpreter that has PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    program: PathBuf,
    version: String,
}

/// The environment variables: an interpreter, and where its own libraries are looked for instead of ours.
const INTERPRETER: &str = "KINORA_PEER_PYTHON";
const LIBRARIES: &str = "KINORA_PEER_LIBRARIES";

impl Python {
    /// The one that is named, or else that of `KINORA_PEER_PYTHON`, or `python3`.
    ///
    /// # Errors
    /// Where it cannot be started or has no PyTorch: why, in words.
    pub fn find(named: Option<&Path>) -> Result<Python, String> {
        match (named, env::var_os(INTERPRETER)) {
            (Some(program), _) => Python::at(program),
            (None, Some(program)) => Python::at(Path::new(&program)),
            (None, None) => Python::at(Path::new("python3")),
        }
    }

    /// An interpreter by its path, or by its name among the programs of the system.
    ///
    /// # Errors
    /// As [`Python::find`].
    pub fn at(program: &Path) -> Result<Python, String> {
        let mut command = command(program);
        command.args(["-c", "import numpy, torch; print(torch.__version__)"]).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && !version.is_empty() {
            return Ok(Python { program: program.to_owned(), version });
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().last().unwrap_or("it says nothing").trim();
        Err(format!("{} has no PyTorch: {why}", program.display()))
    }

    /// PyTorch's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// A command that starts it.
    pub(super) fn command(&self) -> Command {
        command(&self.program)
    }
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    // A peer loads the libraries that its PyTorch was built with, as it would without us.
    if let Some(libraries) = env::var_os(LIBRARIES) {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

/// The repository's own environment, for the benchmarks that cargo runs in it.
///
/// # Errors
/// Where it is missing or has no PyTorch.
pub fn checkout() -> Result<Python, String> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.python/bin/python");
    if !program.exists() {
        return Err(
            "the peer is not installed; `cargo xtask bench` installs it and runs the benchmark".into()
        );
    }
    Python::at(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_python_is_said() {
        let none = Python::find(Some(Path::new("/nothing/here"))).unwrap_err();
        assert!(none.starts_with("/nothing/here: "), "{none}");
        // A program that does not know the words.
        let other = Python::at(Path::new("false")).unwrap_err();
        assert_eq!(other, "false has no PyTorch: it says nothing");
    }
}
