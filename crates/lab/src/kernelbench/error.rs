//! What can go wrong with the benchmark itself. What a solution does wrong is in its result.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why something could not be run.
#[derive(Debug, thiserror::Error)]
pub enum KernelBenchError {
    /// A file that cannot be read or written.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A folder without tasks of the level.
    #[error(
        "{} has no tasks of level {level}: give a checkout of KernelBench, with files such as {example}",
        folder.display()
    )]
    NoTasks {
        /// The folder.
        folder: PathBuf,
        /// The level.
        level: u32,
        /// Where a task would lie.
        example: String,
    },
    /// Tasks that the level does not have.
    #[error("level {level} has no task {number}: choose from those that it has, {first} to {last}")]
    NoTask {
        /// The number that was asked for.
        number: u32,
        /// The level.
        level: u32,
        /// The first task.
        first: u32,
        /// The last.
        last: u32,
    },
    /// The source of a solution does not compile, or there is no compiler.
    #[error(transparent)]
    Compile(#[from] kinora_cuda::CudaError),
    /// A launch that the simulated chip refuses.
    #[error(transparent)]
    Simulator(#[from] kinora_ptx::PtxError),
    /// An argument that names a buffer which is not there.
    #[error("kernel {entry} is given buffer {number}, which its plan does not have")]
    NoBuffer {
        /// The kernel.
        entry: String,
        /// The buffer's number.
        number: usize,
    },
    /// An interpreter that cannot be started.
    #[error("cannot start {}: name an interpreter that has PyTorch with --python", program.display())]
    StartPython {
        /// The interpreter.
        program: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A worker that stopped before it answered.
    #[error("the {role} stopped: {reason}")]
    Stopped {
        /// What it was for.
        role: &'static str,
        /// The end of what it said.
        reason: String,
    },
    /// A worker that took too long.
    #[error("the {role} did not answer within {seconds} s, and was stopped")]
    TimedOut {
        /// What it was for.
        role: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// A worker that says what went wrong.
    #[error("{0}")]
    Refused(String),
    /// A report that cannot be read.
    #[error("{} is not a report of KernelBench: {reason}", path.display())]
    NotAReport {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl KernelBenchError {
    /// An error about a file.
    pub fn file(verb: &'static str, path: &Path, source: io::Error) -> KernelBenchError {
        KernelBenchError::File { verb, path: path.to_owned(), source }
    }
}
