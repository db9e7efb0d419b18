//! The PyTorch process that takes turns with us.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use kinora_graph::Tensor;
use serde_json::{Value, json};

use crate::cases::Case;

/// A running peer.
pub struct Peer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
    version: String,
}

impl Peer {
    /// Starts PyTorch with as many threads as we use.
    pub fn start(threads: usize) -> Result<Peer, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let python = root.join(".python/bin/python");
        if !python.exists() {
            return Err(
                "PyTorch is not installed; `cargo xtask bench` installs it and runs the benchmark".into()
            );
        }
        let folder = std::env::temp_dir().join(format!("kinora-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut process = Command::new(python)
            .arg(root.join("bench/peers/torch_cpu.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("could not start Python: {e}"))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the peer has no pipes".into());
        };
        let mut peer =
            Peer { process, requests, answers: BufReader::new(answers), folder, version: String::new() };
        let hello = peer.ask(&json!({"do": "hello", "threads": threads}))?;
        peer.version = hello["torch"].as_str().unwrap_or("unknown").to_owned();
        Ok(peer)
    }

    /// PyTorch's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Hands over a case's tensors and returns PyTorch's result.
    pub fn prepare<'a>(
        &mut self,
        case: &Case,
        tensors: impl Iterator<Item = (&'a String, &'a Tensor)>,
        elements: usize,
    ) -> Result<Vec<f32>, String> {
        let mut request = case.peer_request();
        request["do"] = json!("prepare");
        let mut entries = serde_json::Map::new();
        for (name, tensor) in tensors {
            let file = self.folder.join(format!("{name}.bin"));
            std::fs::write(&file, tensor.bytes()).map_err(|e| format!("{}: {e}", file.display()))?;
            entries.insert(name.clone(), json!({"file": file, "shape": tensor.shape().to_vec()}));
        }
        request["tensors"] = Value::Object(entries);
        let result = self.folder.join("result.bin");
        request["result"] = json!(result);
        self.ask(&request)?;
        let bytes = std::fs::read(&result).map_err(|e| format!("{}: {e}", result.display()))?;
        if bytes.len() != elements * 4 {
            return Err(format!("{}: PyTorch gave {} bytes, we {}", case.name, bytes.len(), elements * 4));
        }
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// Runs the prepared case for about so many seconds.
    pub fn time(&mut self, seconds: f64) -> Result<Vec<f64>, String> {
        let answer = self.ask(&json!({"do": "time", "seconds": seconds}))?;
        let samples = answer["seconds"].as_array().ok_or("the peer gave no times")?;
        let samples: Vec<f64> = samples.iter().filter_map(Value::as_f64).collect();
        if samples.is_empty() { Err("the peer gave no times".into()) } else { Ok(samples) }
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
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
