//! A whole network, on a CPU or a GPU, with synthetic weights.

use std::time::{Duration, Instant};

use kinora_cpu::{CpuBackend, CpuOps};
use kinora_cuda::{CudaBackend, driver::Device};
use kinora_graph::Phase;
use kinora_models::synthetic::Synthetic;
use kinora_profile::Profiler;
use kinora_runtime::{Backend, KernelSet, LoadContext, Network as Loaded, RunError, Tensors, Tuning};

use super::turns::Layer;
use crate::cases::{Network, windows};

/// A network that is loaded. Its weights and activations are far larger than caches, so that there is one of it, and nothing is
/// flushed.
pub struct NetworkLayer {
    network: Box<dyn Loaded>,
    step: Tensors,
}

impl NetworkLayer {
    /// Plans and loads a network, and runs what depends on the clip alone.
    ///
    /// # Errors
    /// Where it does not fit, or does not run.
    pub fn new(network: &Network, device: Option<&Device>) -> Result<NetworkLayer, String> {
        let (clip, step) = (network.inputs(Phase::Clip)?, network.inputs(Phase::Step)?);
        let backend: Box<dyn Backend> = match device {
            None => Box::new(CpuBackend::default()),
            Some(device) => {
                let backend =
                    CudaBackend::new(device.clone(), KernelSet::Fused, Tuning::Auto, CpuOps::shared());
                Box::new(backend.map_err(said)?)
            }
        };
        let load = || -> Result<Box<dyn Loaded>, RunError> {
            let silent = LoadContext { profiler: &Profiler::off(), compiled: &|_, _| {} };
            let mut network = backend.plan(&network.graph, None)?.load(&Synthetic, &silent)?;
            network.run_clip(&clip)?;
            // Leaves the inputs where a timed step finds them.
            network.run_step(&step)?;
            Ok(network)
        };
        let network = load().map_err(said)?;
        Ok(NetworkLayer { network, step })
    }

    /// Runs a step and gives its seconds: on a GPU by events, without the copies of its inputs.
    fn once(&mut self) -> Result<f64, String> {
        self.network.time_step(&self.step).map_err(said)
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Layer for NetworkLayer {
    fn result(&mut self) -> Result<Vec<f32>, String> {
        let results = self.network.run_step(&self.step).map_err(said)?;
        let result = results.values().next().ok_or("there is no result")?.to_f32();
        let windows = windows(result.len()).into_iter();
        Ok(windows.flat_map(|(from, count)| &result[from..from + count]).copied().collect())
    }

    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, String> {
        // Warms up, as every peer does at the beginning of its turn.
        self.once()?;
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut samples = Vec::new();
        while samples.len() < least || Instant::now() < end {
            samples.push(self.once()?);
        }
        Ok(samples)
    }
}
