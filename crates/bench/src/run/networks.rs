//! A whole network with synthetic weights, on a CPU or a GPU.

use kinora_graph::Graph;
use kinora_models::synthetic::Synthetic;
use kinora_profile::Profiler;
use kinora_runtime::{Backend, LoadContext, Network as Loaded, Tensors};

use super::turns::{Layer, samples};
use crate::{BenchError, cases::in_windows};

/// A network that is loaded. Its weights and activations are far larger than the caches, so that one copy is enough, and
/// nothing is flushed.
pub struct NetworkLayer {
    network: Box<dyn Loaded>,
    step: Tensors,
    /// The name of the result that is compared.
    result: String,
}

impl NetworkLayer {
    /// Plans and loads a network, and runs the part that a clip needs only once.
    ///
    /// # Errors
    /// If it does not fit into memory, or does not run.
    pub fn new(
        graph: &Graph,
        clip: &Tensors,
        step: Tensors,
        backend: &dyn Backend,
    ) -> Result<NetworkLayer, BenchError> {
        let result = graph.outputs().first().ok_or(BenchError::Nothing("result"))?.name.clone();
        Ok(NetworkLayer { network: load(graph, clip, backend)?, step, result })
    }
}

/// Plans and loads a network with synthetic weights, and runs its clip phase.
pub(super) fn load(
    graph: &Graph,
    clip: &Tensors,
    backend: &dyn Backend,
) -> Result<Box<dyn Loaded>, BenchError> {
    let silent = LoadContext { profiler: &Profiler::off(), compiled: &|_, _| {}, shared: None, kept: &[] };
    let mut network = backend.plan(graph, None)?.load(&Synthetic, &silent)?;
    network.run_clip(clip)?;
    Ok(network)
}

impl Layer for NetworkLayer {
    fn result(&mut self) -> Result<Vec<f32>, BenchError> {
        let results = self.network.run_step(&self.step)?;
        let result = results.get(&self.result).ok_or(BenchError::Nothing("result"))?;
        Ok(in_windows(&result.to_f32()))
    }

    /// On a GPU by events, without the copies of the inputs, which [`Layer::result`] left there.
    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError> {
        samples(seconds, least, || Ok(self.network.time_step(&self.step)?))
    }
}
