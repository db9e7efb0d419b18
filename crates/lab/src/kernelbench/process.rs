//! A worker: a Python process in a process group of its own, which is ended whole if it takes too long.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::KernelBenchError;

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

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    role: &'static str,
    process: Child,
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
        // A group of its own: what it starts (compilers of `torch.compile`) is ended with it, and Ctrl-C reaches us alone.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let start = |source| KernelBenchError::StartPython { program: python.to_owned(), source };
        let mut process = command.spawn().map_err(start)?;
        let (Some(requests), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(KernelBenchError::Stopped {
                role,
                reason: "it has no standard input and output".to_owned(),
            });
        };
        let (send, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Worker { role, process, requests, answers, messages })
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
                    self.end();
                    return Err(KernelBenchError::TimedOut { role: self.role, seconds: limit.as_secs() });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.stopped()),
            };
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else { return Err(self.stopped()) };
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

    /// Why it is gone: the end of what it said.
    fn stopped(&mut self) -> KernelBenchError {
        let status = self.process.wait().map(|status| status.to_string()).unwrap_or_default();
        let said = fs::read(&self.messages).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
        KernelBenchError::Stopped { role: self.role, reason: format!("{} ({status})", last.trim()) }
    }

    /// Ends the process, and all that it has started.
    fn end(&mut self) {
        #[cfg(unix)]
        if let Ok(group) = i32::try_from(self.process.id()) {
            // SAFETY: a plain system call without pointers. The process has not been waited for, or it has ended and its
            // group is empty, so the number is not another's.
            let _ = unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        // Nothing can be done about a process that cannot be ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
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
