//! The GPU kernels of a clip, for another machine.

use kinora_cpu::{CpuBackend, CpuOps};
use kinora_cuda::{Architecture, Chip, ChipBackend, Planned, kernels::Kernel};
use kinora_graph::{Graph, GraphError};
use kinora_runtime::RunError;

use super::{
    Configs, GenerateError, Precision, Settings,
    estimate::estimate_on,
    plans::{Built, Request},
};
use crate::{device::OpenDeviceError, quantisation::Denoiser};

/// The kernels that a clip runs on any GPU of a generation, each once: what a bundle for it has to contain. In
/// [`Precision::Fp8`] also those that measure the model.
///
/// # Errors
/// If the settings are refused, there is no kernel for one of the model's ops, or the generation cannot multiply in fp8.
pub fn clip_kernels(
    configs: &Configs,
    settings: &Settings,
    precision: Precision,
    architecture: Architecture,
) -> Result<Vec<Kernel>, GenerateError> {
    let graphs = |settings: &Settings, precision| -> Result<Vec<Graph>, GenerateError> {
        let built = clip_networks(configs, settings, precision)?;
        Ok(built.into_iter().map(|network| network.graph).collect())
    };
    let mut built = graphs(settings, precision)?;
    if precision == Precision::Fp8 {
        estimate_on(configs, settings, precision, &chip(architecture))?;
        // It is measured in whole steps.
        let measured = graphs(&settings.clone().cache(1), Precision::F16)?;
        let measured = measured.iter().filter_map(measured_graph).collect::<Result<Vec<_>, _>>();
        built.extend(measured.map_err(device_error)?);
    }
    kernels_of(built, architecture)
}

/// A GPU of a generation, for plans.
pub(crate) fn chip(architecture: Architecture) -> ChipBackend {
    ChipBackend::new(Chip::typical(architecture), CpuOps::shared())
}

/// What measures the activations of a denoising network.
pub(crate) fn measured_graph(graph: &Graph) -> Option<Result<Graph, GraphError>> {
    Some(Denoiser::of(graph)?.measured(graph).map(|(measuring, _)| measuring))
}

/// A graph that cannot be planned: a bug in this crate, which no input should cause.
pub(crate) fn device_error(error: impl Into<RunError>) -> OpenDeviceError {
    OpenDeviceError::from(error.into())
}

/// The networks of a clip, before any pass.
pub(crate) fn clip_networks(
    configs: &Configs,
    settings: &Settings,
    precision: Precision,
) -> Result<Vec<Built>, GenerateError> {
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
        kernels.extend(found.map_err(device_error)?);
    }
    kernels.sort_unstable();
    kernels.dedup();
    Ok(kernels)
}

#[cfg(test)]
mod tests {
    use kinora_runtime::Backend;

    use super::*;
    use crate::image_to_video::Stage;

    /// By shape: what is measured keeps its name through all passes, and a GPU does it in 8 bits if it can.
    #[test]
    fn most_products_of_a_step_are_done_in_8_bits() {
        let configs = Configs::svd();
        let networks = clip_networks(&configs, &Settings::for_configs(&configs), Precision::Fp8).unwrap();
        let step = networks.into_iter().find(|network| network.stage == Stage::Denoise).unwrap();
        let products = [Architecture::AMPERE, Architecture::ADA, Architecture::HOPPER].map(|architecture| {
            chip(architecture).plan(&step.graph, None).unwrap().graph().quantised_products()
        });
        // Hopper leaves the three convolutions of stride 2.
        assert_eq!(products, [0, 300, 297]);
    }
}
