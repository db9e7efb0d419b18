//! The PyTorch process that takes turns with us.

use kinora_bench::Peer;
use kinora_graph::Tensor;
use serde_json::{Value, json};

use crate::cases::Case;

/// A running peer.
pub struct TorchPeer {
    peer: Peer,
    version: String,
}

impl TorchPeer {
    /// Starts PyTorch with as many threads as we use.
    pub fn start(threads: usize) -> Result<TorchPeer, String> {
        let mut peer = Peer::start("torch_cpu.py")?;
        let hello = peer.ask(&json!({"do": "hello", "threads": threads}))?;
        let version = hello["torch"].as_str().unwrap_or("unknown").to_owned();
        Ok(TorchPeer { peer, version })
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
            let file = self.peer.folder().join(format!("{name}.bin"));
            std::fs::write(&file, tensor.bytes()).map_err(|e| format!("{}: {e}", file.display()))?;
            entries.insert(name.clone(), json!({"file": file, "shape": tensor.shape().to_vec()}));
        }
        request["tensors"] = Value::Object(entries);
        let result = self.peer.folder().join("result.bin");
        request["result"] = json!(result);
        self.peer.ask(&request)?;
        let bytes = std::fs::read(&result).map_err(|e| format!("{}: {e}", result.display()))?;
        if bytes.len() != elements * 4 {
            return Err(format!("{}: PyTorch gave {} bytes, we {}", case.name, bytes.len(), elements * 4));
        }
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// Runs the prepared case for about so many seconds.
    pub fn time(&mut self, seconds: f64) -> Result<Vec<f64>, String> {
        let answer = self.peer.ask(&json!({"do": "time", "seconds": seconds}))?;
        let samples = answer["seconds"].as_array().ok_or("the peer gave no times")?;
        let samples: Vec<f64> = samples.iter().filter_map(Value::as_f64).collect();
        if samples.is_empty() { Err("the peer gave no times".into()) } else { Ok(samples) }
    }
}
