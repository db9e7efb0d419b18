//! A worker: a Python process, which ends with all that it has started if it takes too long.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::KernelBenchError;
use crate::process::Program;

macro_rules! script {
    ($name:literal) => {
        ($name, include_str!(concat!("worker/", $name)))
    };
}

/// The worker's files.
const SCRIPTS: &[(&str, &str)] = &[
    script!("checks.py"),
    script!("declaration.py"),
    script!("errors.py"),
    script!("kernels.py"),
    script!("sharing.py"),
    script!("tasks.py"),
    script!("timing.py"),
    script!("torch_memory.py"),
    script!("worker.py"),
];

/// Writes the worker's files into a folder.
///
/// # Errors
/// If it cannot be written.
pub fn unpack(folder: &Path) -> Result<(), KernelBenchError> {
    for (name, text) in SCRIPTS {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|source| KernelBenchError::file("write", &file, source))?;
    }
    Ok(())
}

/// The longest line that is read. The PTX of a plan, or its launches, has a few megabytes.
const MAX_LINE: u64 = 64 << 20;

/// How long a worker that has closed the line may take to end: a crash is written down first.
const GOING: Duration = Duration::from_secs(10);

/// How many lines may wait to be read. A worker speaks only when it is asked.
const MOST_LINES: usize = 4;

/// The next line of a worker; none at its end, or if the line is too long or is not text.
fn line(output: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    output.take(MAX_LINE).read_line(&mut line).ok()?;
    line.ends_with('\n').then_some(line)
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    role: &'static str,
    program: Program,
    requests: ChildStdin,
    answers: Receiver<String>,
    messages: std::path::PathBuf,
}

impl Worker {
    /// Starts a worker whose files are in `scripts`. What it says beside its answers goes to a file in `folder`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        python: &Path,
        scripts: &Path,
        role: &'static str,
        folder: &Path,
    ) -> Result<Worker, KernelBenchError> {
        let messages = folder.join(format!("{role}.txt"));
        let file =
            File::create(&messages).map_err(|source| KernelBenchError::file("write", &messages, source))?;
        let mut command = Command::new(python);
        // It must not change how PyTorch computes, nor leave files beside ours.
        command
            .arg(scripts.join("worker.py"))
            .arg(role)
            .current_dir(folder)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let start = |source| KernelBenchError::StartPython { program: python.to_owned(), source };
        // The scripts lie in the folder that has all others.
        let mut program = Program::start(&mut command, scripts).map_err(start)?;
        let Some((requests, output)) = program.pipes() else {
            return Err(KernelBenchError::Stopped {
                role,
                reason: "it has no standard input and output".to_owned(),
            });
        };
        let (send, answers) = sync_channel(MOST_LINES);
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(line) = line(&mut output) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Worker { role, program, requests, answers, messages })
    }

    /// Asks, serves what the worker asks meanwhile, and waits for the answer.
    ///
    /// # Errors
    /// If the worker stops, takes longer than `limit`, or answers with an error.
    pub fn ask(
        &mut self,
        request: &Value,
        limit: Duration,
        mut serve: impl FnMut(&Value) -> Result<Value, KernelBenchError>,
    ) -> Result<Value, KernelBenchError> {
        let end = Instant::now() + limit;
        self.send(request)?;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = match self.answers.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    self.program.end();
                    return Err(KernelBenchError::TimedOut { role: self.role, seconds: limit.as_secs() });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.stopped()),
            };
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else { return Err(self.garbled()) };
            if message.get("ask").is_some() {
                let answer = serve(&message).unwrap_or_else(|error| json!({"error": described(&error)}));
                self.send(&answer)?;
            } else if let Some(error) = message.get("error").and_then(Value::as_str) {
                return Err(KernelBenchError::Refused(error.to_owned()));
            } else {
                return Ok(message["answer"].take());
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<(), KernelBenchError> {
        writeln!(self.requests, "{message}").and_then(|()| self.requests.flush()).map_err(|_| self.stopped())
    }

    /// It says what is no message. A solution has the line within its reach.
    fn garbled(&mut self) -> KernelBenchError {
        self.program.end();
        KernelBenchError::Stopped { role: self.role, reason: "its answer is not JSON".to_owned() }
    }

    /// Why it is gone: the end of what it said. One that has only closed the line is ended.
    fn stopped(&mut self) -> KernelBenchError {
        // Whether it has ended by itself or not, it ends here.
        let _ = self.program.wait(GOING);
        let status = self.program.end().map(|status| status.to_string()).unwrap_or_default();
        let said = fs::read(&self.messages).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
        KernelBenchError::Stopped { role: self.role, reason: format!("{} ({status})", last.trim()) }
    }
}

/// An error with its causes.
pub fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]
mod tests {
    use super::*;

    /// A worker that is a script of the shell.
    fn asked(script: &str, limit: Duration) -> Result<Value, KernelBenchError> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("worker.py"), script).unwrap();
        let mut worker = Worker::start(Path::new("sh"), folder.path(), "solution", folder.path()).unwrap();
        worker.ask(&json!({"do": "load"}), limit, |_| Ok(Value::Null))
    }

    #[test]
    fn a_worker_that_talks_nonsense_is_ended() {
        let long = Duration::from_secs(60);
        assert_eq!(asked("read request; echo '{\"answer\": 7}'; sleep 60", long).unwrap(), 7);
        for (script, said) in [
            // What Python writes of an infinity is not JSON.
            (
                "read request; echo '{\"answer\": Infinity}'; sleep 60",
                "the solution stopped: its answer is not JSON",
            ),
            (
                "read request; echo out of memory >&2; exit 3",
                "the solution stopped: out of memory (exit status: 3)",
            ),
            (
                "read request; printf '\\377\\n'; echo not text >&2; exit 0",
                "the solution stopped: not text (exit status: 0)",
            ),
        ] {
            let started = Instant::now();
            assert_eq!(asked(script, long).unwrap_err().to_string(), said);
            assert!(started.elapsed() < long);
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        assert_eq!(line(&mut &b"first\nsecond\nthi"[..]).as_deref(), Some("first\n"));
        assert_eq!(line(&mut &b"thi"[..]), None);
        let mut endless = BufReader::new(std::io::repeat(b'x'));
        assert_eq!(line(&mut endless), None);
    }
}
