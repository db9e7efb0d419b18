//! The GPU kernels of a clip, for another machine.

use kinora_cpu::{CpuBackend, CpuOps};
use kinora_cuda::{Architecture, Planned, kernels::Kernel};
use kinora_graph::Graph;
use kinora_runtime::RunError;

use super::{
    Configs, GenerateError, Precision, Settings,
    plans::{Built, Request},
};
use crate::device::OpenDeviceError;

/// The kernels that a clip runs on any GPU of a generation, each once: what a bundle for it has to contain.
///
/// # Errors
/// If the settings are refused, or there is no kernel for one of the model's ops.
pub fn clip_kernels(
    configs: &Configs,
    settings: &Settings,
    precision: Precision,
    architecture: Architecture,
) -> Result<Vec<Kernel>, GenerateError> {
    let built = clip_networks(configs, settings, precision)?;
    kernels_of(built.into_iter().map(|network| network.graph), architecture)
}

/// The networks of a clip, before any pass.
pub(crate) fn clip_networks(
    configs: &Configs,
    settings: &Settings,
    precision: Precision,
) -> Result<Vec<Built>, GenerateError> {
    let precision = precision.unmeasured("kernels are compiled and predicted for products")?;
    Request { configs, settings, precision, backend: &CpuBackend::default(), photo: [0; 2] }.built()
}

/// The kernels that some networks run on any GPU of a generation, each once.
pub(crate) fn kernels_of(
    graphs: impl IntoIterator<Item = Graph>,
    architecture: Architecture,
) -> Result<Vec<Kernel>, GenerateError> {
    let mut kernels = Vec::new();
    for graph in graphs {
        let found = Planned::kernels_of_generation(&graph, architecture, CpuOps::shared());
        kernels.extend(found.map_err(|error| OpenDeviceError::from(RunError::from(error)))?);
    }
    kernels.sort_unstable();
    kernels.dedup();
    Ok(kernels)
}
