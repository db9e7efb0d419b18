//! A backend that does products in 8 bits where they were measured.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use kinora_graph::{DType, Graph, Op, calibration::Largest};
use kinora_models::{folder::ModelFolder, weights::Weights};
use kinora_profile::Ceilings;
use kinora_runtime::{Backend, PlannedNetwork, RunError};

use super::{Networks, QuantisationError, file};

/// Another backend, whose graphs say what was measured of their activations. Until that is known, it is the other one.
#[derive(Debug)]
pub(crate) struct Quantising {
    inner: Arc<dyn Backend>,
    /// Where measurements are kept; nowhere for a model that is a part of the program.
    path: Option<PathBuf>,
    /// The model's fingerprint.
    model: String,
    networks: Mutex<Option<BTreeMap<String, Arc<Largest>>>>,
}

impl Quantising {
    /// For a model, whose denoising network has these weights.
    ///
    /// # Errors
    /// If the device cannot multiply in 8 bits, or the file beside the model is damaged.
    pub fn new(
        inner: Arc<dyn Backend>,
        model: &ModelFolder,
        weights: &Weights,
    ) -> Result<Quantising, QuantisationError> {
        if !inner.multiplies_e4m3() {
            return Err(QuantisationError::Device { device: inner.describe() });
        }
        let path = (!model.is_embedded()).then(|| model.path().join("fp8.json"));
        let fingerprint = file::fingerprint(weights);
        let networks = match &path {
            Some(path) => file::read(path, &fingerprint)?.map(shared),
            None => None,
        };
        Ok(Quantising { inner, path, model: fingerprint, networks: Mutex::new(networks) })
    }

    /// The backend without this.
    pub fn inner(&self) -> Arc<dyn Backend> {
        self.inner.clone()
    }

    /// Whether it is known how large activations are.
    pub fn is_calibrated(&self) -> bool {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes what was measured, and keeps it beside the model. Where nothing can be written, it holds as long as this does.
    pub fn calibrate(&self, networks: Networks) {
        // A model in a place that nobody may write to can be used like any other.
        if let Some(path) = &self.path {
            let _ = file::write(path, &self.model, &networks);
        }
        *self.networks.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared(networks));
    }
}

/// How many products a graph does in 8 bits, after all passes.
pub(crate) fn quantised_products(graph: &Graph) -> usize {
    let quantised = |op: &Op| match op {
        Op::Linear(op) => op.quantised.is_some(),
        Op::Conv(op) => op.quantised.is_some(),
        _ => false,
    };
    graph.nodes().iter().filter(|node| quantised(&node.op)).count()
}

fn shared(networks: Networks) -> BTreeMap<String, Arc<Largest>> {
    networks.into_iter().map(|(name, largest)| (name, Arc::new(largest))).collect()
}

impl Backend for Quantising {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn default_dtype(&self) -> DType {
        self.inner.default_dtype()
    }

    fn multiplies_e4m3(&self) -> bool {
        self.inner.multiplies_e4m3()
    }

    fn ceilings(&self, dtype: DType) -> Result<Option<Ceilings>, RunError> {
        self.inner.ceilings(dtype)
    }

    fn free_memory(&self) -> Result<Option<usize>, RunError> {
        self.inner.free_memory()
    }

    fn tunes(&self) -> bool {
        self.inner.tunes()
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        let networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        match networks.as_ref().and_then(|networks| networks.get(graph.name())).cloned() {
            Some(largest) => self.inner.plan(&graph.clone().calibrated(largest), budget),
            None => self.inner.plan(graph, budget),
        }
    }
}
