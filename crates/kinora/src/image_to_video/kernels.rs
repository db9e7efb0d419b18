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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kinora_cuda::{Chip, ChipBackend};
    use kinora_graph::calibration::measured;
    use kinora_runtime::Backend;

    use super::*;
    use crate::{image_to_video::Stage, quantisation::quantised_products};

    /// By shape: what is measured keeps its name through all passes, and a GPU does it in 8 bits if it can.
    #[test]
    fn most_products_of_a_step_are_done_in_8_bits() {
        let configs = Configs::svd();
        let networks = clip_networks(&configs, &Settings::for_configs(&configs), Precision::F16).unwrap();
        let step = networks.into_iter().find(|network| network.stage == Stage::Denoise).unwrap();
        let (_, measurements) = measured(&step.graph).unwrap();
        let largest = measurements.into_iter().map(|measurement| (measurement.weight, 16.0)).collect();
        let graph = step.graph.calibrated(Arc::new(largest));
        let products = [Architecture::AMPERE, Architecture::ADA, Architecture::HOPPER].map(|architecture| {
            let backend = ChipBackend::new(Chip::typical(architecture), CpuOps::shared());
            quantised_products(backend.plan(&graph, None).unwrap().graph())
        });
        // Hopper leaves the three convolutions of stride 2.
        assert_eq!(products, [0, 300, 297]);
    }
}
