//! A backend that does products in 8 bits where they were measured.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use kinora_graph::{DType, Graph, calibration::Largest};
use kinora_models::{folder::ModelFolder, weights::Weights};
use kinora_profile::Ceilings;
use kinora_runtime::{Backend, PlannedNetwork, RunError};

use super::{Denoiser, Networks, QuantisationError, check_device, file};

/// Another backend, whose graphs say what was measured of their activations. Until that is known it plans them as they are, for
/// estimates alone.
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
        check_device(&*inner)?;
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
        let Some(denoiser) = Denoiser::of(graph) else { return self.inner.plan(graph, budget) };
        let networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(networks) = networks else { return self.inner.plan(graph, budget) };
        let largest = networks.get(denoiser.name).cloned().unwrap_or_default();
        self.inner.plan(&graph.clone().calibrated(largest), budget)
    }
}
