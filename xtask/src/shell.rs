//! Running other programs, and saying so.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// Why a task stopped.
#[derive(Debug)]
pub enum TaskError {
    /// There is no such task.
    UnknownTask(String),
    /// A program could not be started.
    Start {
        /// The command line.
        command: String,
        /// Why.
        reason: String,
    },
    /// A program ran and said no.
    Failed {
        /// The command line.
        command: String,
        /// Its exit status, in words.
        status: String,
    },
    /// Something the project needs is not on this machine.
    Missing {
        /// What it is.
        what: &'static str,
        /// How to get it.
        remedy: &'static str,
    },
    /// A file or a folder could not be read or written.
    File {
        /// Where it is.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// What was made is larger than it may be.
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        limit: u64,
        /// How to make it smaller.
        remedy: &'static str,
    },
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::UnknownTask(name) => write!(f, "there is no task `{name}`; see `cargo xtask help`"),
            TaskError::Start { command, reason } => write!(f, "could not start `{command}`: {reason}"),
            TaskError::Failed { command, status } => write!(f, "`{command}` failed: {status}"),
            TaskError::Missing { what, remedy } => write!(f, "{what} is missing: {remedy}"),
            TaskError::File { path, reason } => write!(f, "{}: {reason}", path.display()),
            TaskError::TooLarge { what, bytes, limit, remedy } => {
                write!(f, "{what} has {bytes} bytes, and may have {limit}: {remedy}")
            }
        }
    }
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

/// Says what happens, runs it with its output shown, and says how long it took.
pub fn step(title: &str, command: &mut Command) -> Result<(), TaskError> {
    let line = command_line(command);
    println!("\n── {title}: {line}");
    let start = Instant::now();
    let status =
        command.status().map_err(|e| TaskError::Start { command: line.clone(), reason: e.to_string() })?;
    if !status.success() {
        return Err(TaskError::Failed { command: line, status: status.to_string() });
    }
    println!("── {title}: done in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
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
