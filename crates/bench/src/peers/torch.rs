//! PyTorch as a peer, of layers or of whole networks.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{Peer, Python, Script};
use crate::{
    cases::{Numbers, Work, window},
    run::Size,
};

/// What PyTorch is to run on.
#[derive(Clone, Debug)]
pub struct Hello {
    /// Threads, on a CPU.
    pub threads: usize,
    /// `cpu`, or a GPU as PyTorch calls it.
    pub device: String,
    /// The element type.
    pub precision: String,
    /// Whether layers are compiled as well.
    pub compile: bool,
}

/// PyTorch, running.
#[derive(Debug)]
pub struct TorchPeer {
    peer: Peer,
    versions: Value,
}

/// One of the ways in which PyTorch runs a layer or a network.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its number, to time it by.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its result, where it was able to run: as much of it as is compared.
    pub result: Result<Vec<f32>, String>,
}

impl TorchPeer {
    /// Starts PyTorch with the scripts [of layers](super::TORCH_LAYERS) or [of networks](super::SVD_NETWORKS).
    ///
    /// # Errors
    /// Where it does not start, or there is no such device for it.
    pub fn start(python: &Python, scripts: &[Script], hello: &Hello) -> Result<TorchPeer, String> {
        let mut peer = Peer::start(python, scripts)?;
        let versions = peer.ask(&json!({
            "do": "hello", "threads": hello.threads, "device": hello.device, "precision": hello.precision,
            "compile": hello.compile,
        }))?;
        Ok(TorchPeer { peer, versions })
    }

    /// Its versions, and what it runs on.
    pub fn versions(&self) -> &Value {
        &self.versions
    }

    /// Hands over a layer with its numbers, and gives every way there is with its result. `copies` of the operands are
    /// gone round when it is timed.
    ///
    /// # Errors
    /// Where the peer stops, or files cannot be written.
    pub fn prepare(
        &mut self,
        work: &Work,
        numbers: &[Numbers],
        copies: usize,
    ) -> Result<Vec<Variant>, String> {
        let mut request = work.peer_request();
        let mut tensors = serde_json::Map::new();
        for numbers in numbers {
            let file = self.peer.folder().join(format!("{}.bin", numbers.name));
            let bytes: Vec<u8> = numbers.pattern.iter().flat_map(|number| number.to_le_bytes()).collect();
            fs::write(&file, bytes).map_err(|error| format!("{}: {error}", file.display()))?;
            tensors.insert(numbers.name.clone(), json!({"file": file, "shape": numbers.ty.shape.to_vec()}));
        }
        request["tensors"] = Value::Object(tensors);
        request["copies"] = json!(copies);
        self.ask_to_prepare(request)
    }

    /// Lets it make a network with synthetic weights, and gives every way there is with its result.
    ///
    /// # Errors
    /// Where the peer stops.
    pub fn prepare_network(&mut self, stage: &str, size: Size) -> Result<Vec<Variant>, String> {
        self.ask_to_prepare(json!({"stage": stage, "size": size.name()}))
    }

    fn ask_to_prepare(&mut self, mut request: Value) -> Result<Vec<Variant>, String> {
        let result = self.peer.folder().join("result");
        request["do"] = json!("prepare");
        request["window"] = json!(window());
        request["result"] = json!(result);
        let answer = self.peer.ask(&request)?;
        let variants = answer["variants"].as_array().ok_or("the peer gave no variants")?;
        let variants = variants.iter().enumerate().map(|(number, variant)| {
            let name = variant["name"].as_str().unwrap_or("unknown").to_owned();
            let result = match variant["failed"].as_str() {
                Some(why) => Err(why.to_owned()),
                None => floats(&result.with_extension(number.to_string())),
            };
            Variant { number, name, result }
        });
        Ok(variants.collect())
    }

    /// Runs one way of the layer for about so many seconds and at least so many times, and gives the seconds of each.
    ///
    /// # Errors
    /// Where the peer stops.
    pub fn time(&mut self, variant: usize, seconds: f64, least: usize) -> Result<Vec<f64>, String> {
        let request = json!({"do": "time", "variant": variant, "seconds": seconds, "least": least});
        let answer = self.peer.ask(&request)?;
        let samples = answer["seconds"].as_array().ok_or("the peer gave no times")?;
        let samples: Vec<f64> = samples.iter().filter_map(Value::as_f64).collect();
        if samples.is_empty() { Err("the peer gave no times".into()) } else { Ok(samples) }
    }
}

fn floats(path: &Path) -> Result<Vec<f32>, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}
