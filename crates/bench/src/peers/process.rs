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

use super::{Python, Script};

/// A running peer: it reads a request a line and answers each with a line.
#[derive(Debug)]
pub struct Peer {
    process: Arc<Mutex<Child>>,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Removed after the process has ended.
    folder: TempDir,
}

/// Those that run.
static RUNNING: Mutex<Vec<Weak<Mutex<Child>>>> = Mutex::new(Vec::new());

/// Ends every peer, for a program that is about to end where it stands: no peer is dropped then.
pub fn end_all() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.iter().filter_map(Weak::upgrade).for_each(|process| end(&process));
}

fn end(process: &Mutex<Child>) {
    let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
    // Nothing is left to do about a process that cannot be ended.
    let _ = process.kill();
    let _ = process.wait();
}

/// What the peer says on standard error goes here: warnings of its libraries are no one's business until it stops.
const MESSAGES: &str = "messages.txt";

impl Peer {
    /// Starts the first of some scripts; the others lie beside it.
    ///
    /// # Errors
    /// Where there is no room for the scripts, or Python cannot be started.
    pub fn start(python: &Python, scripts: &[Script]) -> Result<Peer, String> {
        let folder = tempfile::Builder::new().prefix("kinora-bench-").tempdir();
        let folder = folder.map_err(|error| format!("no folder for temporary files: {error}"))?;
        let first = scripts.first().ok_or("there is no script to start")?;
        for script in scripts {
            let path = folder.path().join(script.name);
            fs::write(&path, script.text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let messages = folder.path().join(MESSAGES);
        let messages = File::create(&messages).map_err(|error| format!("{}: {error}", messages.display()))?;
        let mut command = python.command();
        // Ctrl-C is the benchmark's: a peer that heard it would stop in the midst of the case that is being finished.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command
            .arg(folder.path().join(first.name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages)
            .spawn()
            .map_err(|error| format!("could not start Python: {error}"))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the peer has no pipes".into());
        };
        let process = Arc::new(Mutex::new(process));
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|process| process.strong_count() > 0);
        running.push(Arc::downgrade(&process));
        Ok(Peer { process, requests, answers: BufReader::new(answers), folder })
    }

    /// A folder for files that the two hand over; it is removed with the peer.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Where the peer has stopped: what it said last.
    pub fn ask(&mut self, request: &Value) -> Result<Value, String> {
        let mut line = String::new();
        let asked = writeln!(self.requests, "{request}").and_then(|()| self.answers.read_line(&mut line));
        match asked.map(|_| serde_json::from_str(&line)) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(format!("the peer stopped: {}", self.last_words())),
        }
    }

    fn last_words(&self) -> String {
        let said = fs::read(self.folder.path().join(MESSAGES)).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        end(&self.process);
    }
}
