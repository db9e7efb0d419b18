//! Running other programs, and saying so.

use std::{
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// Why a task stopped.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// There is no such task.
    #[error("there is no task `{0}`; see `cargo xtask help`")]
    UnknownTask(String),
    /// A task was given arguments that it does not understand.
    #[error("these arguments are not understood; usage: {0}")]
    Usage(&'static str),
    /// A program could not be started.
    #[error("could not start `{command}`")]
    Start {
        /// The command line.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed: {status}")]
    Failed {
        /// The command line.
        command: String,
        /// Its exit status, in words.
        status: String,
    },
    /// Something the project needs is not there.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// What it is.
        what: &'static str,
        /// How to get it.
        remedy: &'static str,
    },
    /// A file or a folder could not be read or written.
    #[error("{}", path.display())]
    File {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program printed something that is not the JSON it should be.
    #[error("the output of {what} cannot be read")]
    Json {
        /// What printed it.
        what: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// A generated part of a file is not what the generator would write now.
    #[error("{what} is out of date: run `{remedy}`")]
    OutOfDate {
        /// What it is.
        what: &'static str,
        /// The command that updates it.
        remedy: &'static str,
    },
    /// A crate's source includes a file that its package does not hold.
    #[error("{} includes `{included}`, which is outside the package of {package}: move the file into its folder", path.display())]
    OutsidePackage {
        /// The source file.
        path: PathBuf,
        /// The path that it includes.
        included: String,
        /// The crate.
        package: String,
    },
    /// What was made is larger than it may be.
    #[error("{what} has {bytes} bytes; the limit is {limit}: leave out one of the large parts listed above")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        limit: u64,
    },
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// A command to be run in the root of the repository.
pub fn command(program: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(arguments).current_dir(root());
    command
}

/// Cargo, the same one that runs this task.
pub fn cargo(arguments: &[&str]) -> Command {
    command(std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from), arguments)
}

/// Prints what happens, runs it with its output shown, and prints how long it took.
pub fn step(title: &str, command: &mut Command) -> Result<(), TaskError> {
    let line = command_line(command);
    println!("\n── {title}: {line}");
    let start = Instant::now();
    let status = command.status().map_err(|source| TaskError::Start { command: line.clone(), source })?;
    if !status.success() {
        return Err(TaskError::Failed { command: line, status: status.to_string() });
    }
    println!("── {title}: done in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// As [`step`], for a command that runs tests: returns how many passed.
pub fn tests(title: &str, command: &mut Command) -> Result<usize, TaskError> {
    let line = command_line(command);
    println!("\n── {title}: {line}");
    let failed = |source| TaskError::Start { command: line.clone(), source };
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut passed = 0;
    for text in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let text = text.map_err(failed)?;
        println!("{text}");
        passed += passed_in(&text);
    }
    let status = child.wait().map_err(failed)?;
    if status.success() {
        Ok(passed)
    } else {
        Err(TaskError::Failed { command: line, status: status.to_string() })
    }
}

/// How many tests passed, by a line of the test harness.
fn passed_in(line: &str) -> usize {
    let words = line.split_once("test result: ").and_then(|(_, result)| result.split_once(" passed"));
    words.and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Runs a command and returns what it printed. Its messages are shown.
pub fn output(command: &mut Command) -> Result<String, TaskError> {
    let line = command_line(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| TaskError::Start { command: line.clone(), source })?;
    if !output.status.success() {
        return Err(TaskError::Failed { command: line, status: output.status.to_string() });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a command runs and succeeds; its output is not shown.
pub fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// A command as a person would type it.
pub fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    command.get_args().fold(program.into_owned(), |line, a| line + " " + &a.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_counted() {
        assert_eq!(
            passed_in("test result: ok. 41 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out"),
            41
        );
        assert_eq!(passed_in("test result: FAILED. 3 passed; 1 failed; 0 ignored"), 3);
        assert_eq!(passed_in("test weights::passed ... ok") + passed_in("7 passed"), 0);
    }
}
