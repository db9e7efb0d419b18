//! The GPU kernels of a clip, for a machine that is not there.

use kinora_cuda::{Architecture, Planned, kernels::Kernel};

use super::{Configs, GenerateError, Precision, Settings, backend::Backend, plans::Request};

/// The kernels that a clip runs on any GPU of a generation: what a bundle for it has to hold. Each comes once.
///
/// # Errors
/// Where the settings are refused, or no kernel runs something of the model.
pub fn clip_kernels(
    configs: &Configs,
    settings: &Settings,
    precision: Precision,
    architecture: Architecture,
) -> Result<Vec<Kernel>, GenerateError> {
    let request = Request { configs, settings, precision, backend: &Backend::Cpu };
    let mut kernels = Vec::new();
    for graph in request.graphs()? {
        kernels.extend(Planned::kernels_of_generation(&graph, architecture)?);
    }
    kernels.sort_unstable();
    kernels.dedup();
    Ok(kernels)
}
