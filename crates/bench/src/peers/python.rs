//! The Python that runs the peers.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::BenchError;

/// An interpreter that has PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    program: PathBuf,
    version: String,
}

/// Environment variables: an interpreter, and the library path that it runs with instead of ours.
const INTERPRETER: &str = "KINORA_PEER_PYTHON";
const LIBRARIES: &str = "KINORA_PEER_LIBRARIES";

impl Python {
    /// The given interpreter, or else that of `KINORA_PEER_PYTHON`, or else `python3`.
    ///
    /// # Errors
    /// If it cannot be started, or cannot import PyTorch.
    pub fn find(given: Option<&Path>) -> Result<Python, BenchError> {
        match (given, env::var_os(INTERPRETER)) {
            (Some(program), _) => Python::at(program),
            (None, Some(program)) => Python::at(Path::new(&program)),
            (None, None) => Python::at(Path::new("python3")),
        }
    }

    /// An interpreter by its path, or by its name if it is on the `PATH`.
    ///
    /// # Errors
    /// As [`Python::find`].
    pub fn at(program: &Path) -> Result<Python, BenchError> {
        let mut command = command(program);
        command.args(["-c", "import numpy, torch; print(torch.__version__)"]).stdin(Stdio::null());
        let start = |source| BenchError::StartPython { program: program.to_owned(), source };
        let output = command.output().map_err(start)?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && !version.is_empty() {
            return Ok(Python { program: program.to_owned(), version });
        }
        let messages = String::from_utf8_lossy(&output.stderr);
        let reason = messages.lines().last().unwrap_or("it gave no reason").trim().to_owned();
        Err(BenchError::NoTorch { program: program.to_owned(), reason })
    }

    /// PyTorch's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The interpreter.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A command that starts it.
    pub(super) fn command(&self) -> Command {
        command(&self.program)
    }
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    // A peer loads the libraries that its PyTorch was built with, as it does without us.
    if let Some(libraries) = env::var_os(LIBRARIES) {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_that_cannot_be_used_is_named() {
        let missing = Python::find(Some(Path::new("/nothing/here"))).unwrap_err();
        assert!(missing.with_causes().starts_with("cannot start /nothing/here: "), "{missing}");
        // A program that is not a Python.
        let other = Python::at(Path::new("false")).unwrap_err();
        assert_eq!(other.to_string(), "false cannot import PyTorch: it gave no reason");
    }
}
