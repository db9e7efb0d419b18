//! The Python process that takes turns with us.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::Value;

/// A running peer: it reads a request a line and answers each with a line.
pub struct Peer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Peer {
    /// Starts a script of `bench/peers` in the project's own Python environment.
    ///
    /// # Errors
    /// Where the environment is missing or cannot be started.
    pub fn start(script: &str) -> Result<Peer, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let python = root.join(".python/bin/python");
        if !python.exists() {
            return Err(
                "the peer is not installed; `cargo xtask bench` installs it and runs the benchmark".into()
            );
        }
        let folder = std::env::temp_dir().join(format!("kinora-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut process = Command::new(python)
            .arg(root.join("bench/peers").join(script))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("could not start Python: {e}"))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the peer has no pipes".into());
        };
        Ok(Peer { process, requests, answers: BufReader::new(answers), folder })
    }

    /// A folder for files that the two hand over; it is removed with the peer.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Where the peer has stopped; it has said why on standard error.
    pub fn ask(&mut self, request: &Value) -> Result<Value, String> {
        writeln!(self.requests, "{request}").map_err(|e| format!("the peer stopped: {e}"))?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|e| format!("the peer stopped: {e}"))?;
        serde_json::from_str(&line).map_err(|_| "the peer stopped; its message is above".to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Nothing is left to do about a process or a folder that cannot be removed.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
