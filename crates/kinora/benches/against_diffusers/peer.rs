//! The diffusers process that takes turns with us.

use std::{collections::HashMap, path::Path};

use kinora::image_to_video::Settings;
use kinora_bench::{
    Peer,
    peers::{DIFFUSERS_CPU, checkout},
};
use serde_json::{Value, json};

use crate::verify::Made;

/// A running peer.
pub struct DiffusersPeer {
    peer: Peer,
    versions: String,
}

/// The seconds of a clip.
pub struct ClipTime {
    /// Of the whole call.
    pub seconds: f64,
    /// Of each stage that the peer knows, under the names of ours.
    pub stages: HashMap<String, f64>,
}

impl DiffusersPeer {
    /// Starts diffusers with as many threads as we use.
    pub fn start(threads: usize) -> Result<Self, String> {
        let mut peer = Peer::start(&checkout()?, &[DIFFUSERS_CPU])?;
        let hello = peer.ask(&json!({"do": "hello", "threads": threads}))?;
        let version = |name: &str| hello[name].as_str().unwrap_or("unknown").to_owned();
        let versions = format!("diffusers {} on PyTorch {}", version("diffusers"), version("torch"));
        Ok(DiffusersPeer { peer, versions })
    }

    /// diffusers' version and PyTorch's.
    pub fn versions(&self) -> &str {
        &self.versions
    }

    /// A folder for files that the two hand over.
    pub fn folder(&self) -> &Path {
        self.peer.folder()
    }

    /// Loads a model; returns the seconds.
    pub fn load(&mut self, model: &Path, photo: &Path, settings: &Settings) -> Result<f64, String> {
        let request = json!({"do": "load", "model": model, "photo": photo, "settings": settings});
        seconds(&self.peer.ask(&request)?["seconds"])
    }

    /// Lets it choose the layout of its weights that is the faster one, by trying both.
    pub fn choose_layout(&mut self) -> Result<String, String> {
        let answer = self.peer.ask(&json!({"do": "choose"}))?;
        Ok(answer["layout"].as_str().unwrap_or("unknown").to_owned())
    }

    /// Makes a clip.
    pub fn clip(&mut self) -> Result<ClipTime, String> {
        let answer = self.peer.ask(&json!({"do": "clip"}))?;
        let stages = answer["stages"].as_object().ok_or("the peer gave no stages")?;
        let stages = stages.iter().map(|(name, value)| Ok((name.clone(), seconds(value)?)));
        Ok(ClipTime { seconds: seconds(&answer["seconds"])?, stages: stages.collect::<Result<_, String>>()? })
    }

    /// The last clip.
    pub fn results(&mut self) -> Result<Made, String> {
        let [latents, frames] = ["latents.bin", "frames.bin"].map(|name| self.peer.folder().join(name));
        self.peer.ask(&json!({"do": "results", "latents": latents, "frames": frames}))?;
        let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let latents = read(&latents)?;
        let latents = latents.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Ok(Made { latents, frames: read(&frames)? })
    }
}

fn seconds(value: &Value) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| "the peer gave no time".to_owned())
}
