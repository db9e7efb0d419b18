//! PyTorch as a peer, of layers or of whole networks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::{Value, json};

use super::{Peer, Program, Python};
use crate::{
    BenchError,
    cases::{Numbers, Work, window},
};

/// What PyTorch runs on.
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

/// A process that runs PyTorch.
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
    /// Why it cannot run, if it cannot.
    failed: Option<String>,
    /// The file with its result.
    file: PathBuf,
}

impl Variant {
    /// Its result: as much of it as is compared.
    ///
    /// # Errors
    /// If it could not run.
    pub fn result(&self) -> Result<Vec<f32>, BenchError> {
        match &self.failed {
            Some(why) => Err(BenchError::PeerRefused(why.clone())),
            None => floats(&self.file),
        }
    }
}

impl TorchPeer {
    /// Starts PyTorch for [layers](super::TORCH_LAYERS) or networks ([clips](super::SVD_NETWORKS), [frames](super::LIVE_NETWORKS)).
    ///
    /// # Errors
    /// If it does not start, or does not have the device.
    pub fn start(python: &Python, program: &Program, hello: &Hello) -> Result<TorchPeer, BenchError> {
        let mut peer = Peer::start(python, program)?;
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

    /// Prepares a layer with its numbers, in every way that PyTorch has. Runs cycle through `copies` of the operands.
    ///
    /// # Errors
    /// If the peer stops, or files cannot be written.
    pub fn prepare(
        &mut self,
        work: &Work,
        numbers: &[Numbers],
        copies: usize,
    ) -> Result<Vec<Variant>, BenchError> {
        let mut request = work.peer_request();
        let mut tensors = serde_json::Map::new();
        for numbers in numbers {
            let file = self.peer.folder().join(format!("{}.bin", numbers.name));
            let bytes: Vec<u8> = numbers.pattern.iter().flat_map(|number| number.to_le_bytes()).collect();
            fs::write(&file, bytes).map_err(BenchError::file("write", &file))?;
            tensors.insert(numbers.name.clone(), json!({"file": file, "shape": numbers.ty.shape.to_vec()}));
        }
        request["tensors"] = Value::Object(tensors);
        request["copies"] = json!(copies);
        self.ask_to_prepare(request)
    }

    /// Prepares a stage of a model with synthetic weights, in every way that PyTorch has.
    ///
    /// # Errors
    /// If the peer stops.
    pub fn prepare_stage(
        &mut self,
        stage: &str,
        preset: &impl Serialize,
    ) -> Result<Vec<Variant>, BenchError> {
        self.ask_to_prepare(json!({"stage": stage, "preset": preset}))
    }

    fn ask_to_prepare(&mut self, mut request: Value) -> Result<Vec<Variant>, BenchError> {
        let result = self.peer.folder().join("result");
        request["do"] = json!("prepare");
        request["window"] = json!(window());
        request["result"] = json!(result);
        let answer = self.peer.ask(&request)?;
        let variants = answer["variants"].as_array().ok_or(BenchError::PeerAnswer("variants"))?;
        let variants = variants.iter().enumerate().map(|(number, variant)| Variant {
            number,
            name: variant["name"].as_str().unwrap_or("unknown").to_owned(),
            failed: variant["failed"].as_str().map(str::to_owned),
            file: result.with_extension(number.to_string()),
        });
        Ok(variants.collect())
    }

    /// Runs a variant for about `seconds` and at least `least` times; gives the seconds of each run.
    ///
    /// # Errors
    /// If the peer stops.
    pub fn time(&mut self, variant: usize, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError> {
        let request = json!({"do": "time", "variant": variant, "seconds": seconds, "least": least});
        let answer = self.peer.ask(&request)?;
        let times: Vec<f64> =
            answer["seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        if times.is_empty() { Err(BenchError::PeerAnswer("times")) } else { Ok(times) }
    }
}

fn floats(path: &Path) -> Result<Vec<f32>, BenchError> {
    let bytes = fs::read(path).map_err(BenchError::file("read", path))?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}
