//! Someone who downloads the tiny model from a hub on this machine.
// Every test file uses a part of it.
#![allow(dead_code)]

use std::{fs, path::PathBuf, time::Duration};

use kinora_graph::DType;
use kinora_models::{
    hub::{Hub, HubError, HubId, Patience},
    weights::Variant,
};

use crate::{
    hub_server::{COMMIT, Reply, Request, Server, blob_name},
    tiny_model::files,
};

pub const UNET: &str = "unet/diffusion_pytorch_model.fp16.safetensors";
pub const F16: Variant = Variant::For(DType::F16);

/// A server, and a cache of its own.
pub struct Test {
    pub server: Server,
    pub cache: tempfile::TempDir,
}

impl Test {
    pub fn new() -> Self {
        Self::with(files())
    }

    pub fn with(files: Vec<(&'static str, Vec<u8>)>) -> Self {
        Test { server: Server::new(files), cache: tempfile::tempdir().unwrap() }
    }

    pub fn twisted(twist: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> Self {
        let test = Self::new();
        test.server.twist(twist);
        test
    }

    pub fn hub(&self) -> Hub {
        let (endpoint, cache) = (self.server.endpoint(), self.cache.path().to_owned());
        let pause = Duration::from_millis(1);
        let patience = Patience { pause, longest_pause: pause, ..Patience::default() };
        Hub { endpoint, cache, token: None, offline: false, certificates: None, patience }
    }

    pub fn fetch(&self, variant: &Variant) -> Result<PathBuf, HubError> {
        self.hub().fetch(&id(), variant, &mut ())
    }

    pub fn error(&self) -> String {
        self.fetch(&F16).unwrap_err().to_string()
    }

    /// Where the cache has the files of the model.
    pub fn snapshot(&self) -> PathBuf {
        self.cache.path().join("models--owner--name/snapshots").join(COMMIT)
    }

    /// Where the cache has the contents of the UNet's weights while they are downloaded.
    pub fn unet_part(&self) -> PathBuf {
        let blobs = self.cache.path().join("models--owner--name/blobs");
        blobs.join(format!("{}.incomplete", blob_name(UNET, &unet())))
    }

    /// Whether the cache has something that a client would take for the model.
    pub fn looks_whole(&self) -> bool {
        let hub = Hub { offline: true, ..self.hub() };
        hub.fetch(&id(), &F16, &mut ()).is_ok()
    }

    /// The model arrives, and is the right one.
    pub fn must_arrive(&self) {
        let folder = self.fetch(&F16).unwrap();
        assert_eq!(fs::read(folder.join(UNET)).unwrap(), unet());
        assert!(self.looks_whole() && !self.unet_part().exists());
    }
}

pub fn id() -> HubId {
    HubId::parse("owner/name").unwrap()
}

/// The contents of the UNet's weights.
pub fn unet() -> Vec<u8> {
    files().into_iter().find(|(name, _)| *name == UNET).unwrap().1
}
