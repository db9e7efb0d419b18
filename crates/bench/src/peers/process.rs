//! The Python process that takes turns with us.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{Program, Python};
use crate::BenchError;

/// A running peer: it reads one request per line, and answers each with one line.
#[derive(Debug)]
pub struct Peer {
    process: Arc<Mutex<Child>>,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Removed after the process has ended.
    folder: TempDir,
}

/// The peers that are running.
static RUNNING: Mutex<Vec<Weak<Mutex<Child>>>> = Mutex::new(Vec::new());

/// Ends every peer. For a program that is about to exit without dropping them.
pub fn end_all() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.iter().filter_map(Weak::upgrade).for_each(|process| end(&process));
}

fn end(process: &Mutex<Child>) {
    let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
    // Nothing can be done about a process that cannot be ended.
    let _ = process.kill();
    let _ = process.wait();
}

/// The peer's standard error goes to this file: warnings of its libraries do not matter unless it stops.
const MESSAGES: &str = "messages.txt";

impl Peer {
    /// Writes a program's scripts into a folder, and starts it.
    ///
    /// # Errors
    /// If the scripts cannot be written, or Python cannot be started.
    pub fn start(python: &Python, program: &Program) -> Result<Peer, BenchError> {
        let folder = tempfile::Builder::new().prefix("kinora-bench-").tempdir();
        let folder = folder.map_err(BenchError::file("create a folder in", std::env::temp_dir()))?;
        for script in program.imported.iter().chain([&program.main]) {
            let path = folder.path().join(script.name);
            fs::write(&path, script.text).map_err(BenchError::file("write", path))?;
        }
        let messages = folder.path().join(MESSAGES);
        let messages = File::create(&messages).map_err(BenchError::file("write", messages))?;
        let mut command = python.command();
        // Ctrl-C is for the benchmark, which finishes its case. A peer that received it would stop in the middle of it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command
            .arg(folder.path().join(program.main.name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages)
            .spawn()
            .map_err(|source| BenchError::StartPython { program: python.program().to_owned(), source })?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(BenchError::PeerStopped("it has no standard input and output".to_owned()));
        };
        let process = Arc::new(Mutex::new(process));
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|process| process.strong_count() > 0);
        running.push(Arc::downgrade(&process));
        Ok(Peer { process, requests, answers: BufReader::new(answers), folder })
    }

    /// A folder for the files that the two exchange. It is removed with the peer.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// If the peer has stopped; the error has the last line of its messages.
    pub fn ask(&mut self, request: &Value) -> Result<Value, BenchError> {
        let mut line = String::new();
        let asked = writeln!(self.requests, "{request}").and_then(|()| self.answers.read_line(&mut line));
        match asked.map(|_| serde_json::from_str(&line)) {
            Ok(Ok(answer)) => Ok(answer),
            // The reason is in what it wrote to standard error, not in how the pipe broke.
            Ok(Err(_)) | Err(_) => Err(BenchError::PeerStopped(self.last_message())),
        }
    }

    fn last_message(&self) -> String {
        let messages = fs::read(self.folder.path().join(MESSAGES)).unwrap_or_default();
        let messages = String::from_utf8_lossy(&messages);
        messages.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason").to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        end(&self.process);
    }
}
