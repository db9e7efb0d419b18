//! The GPU kernels of live video, for another machine.

use kinora_cpu::CpuBackend;
use kinora_cuda::{Architecture, kernels::Kernel};

use super::{LiveConfigs, LiveSettings, estimate::Request};
use crate::image_to_video::{GenerateError, Precision, kernels_of};

/// The kernels that a stream runs on any GPU of a generation, each once: what a bundle for it has to contain, if no LoRA is turned
/// while it runs.
///
/// # Errors
/// If the settings are refused, or there is no kernel for one of the model's ops.
pub fn live_kernels(
    configs: &LiveConfigs,
    settings: &LiveSettings,
    precision: Precision,
    architecture: Architecture,
) -> Result<Vec<Kernel>, GenerateError> {
    let request = Request { configs, settings, precision, backend: &CpuBackend::default(), unet: None };
    kernels_of(request.graphs()?.into_iter().map(|(_, _, graph)| graph), architecture)
}

#[cfg(test)]
mod tests {
    use kinora_cpu::CpuOps;
    use kinora_cuda::{Chip, CudaOptions, Planned, kernels::KernelSet};

    use super::*;

    /// The layers that a GPU runs of a stream's frame, one launch or more each.
    fn layers(blend: f64, kernels: KernelSet) -> Vec<String> {
        let configs = LiveConfigs::preset("sd-turbo").unwrap().tiny_autoencoder().unwrap();
        let settings = LiveSettings::for_configs(&configs).blend(blend);
        let backend = &CpuBackend::default();
        let request = Request {
            configs: &configs,
            settings: &settings,
            precision: Precision::F16,
            backend,
            unet: None,
        };
        let graph = request.frame().unwrap().unwrap();
        let chip = Chip::typical(Architecture::HOPPER);
        let options = CudaOptions { kernels, ..CudaOptions::new(chip, CpuOps::shared()) };
        let mut layers = Vec::new();
        let planned = Planned::new(&graph, &options).unwrap();
        let visited = planned.for_each_call(|call| {
            layers.push(call.layer.to_owned());
            Ok(())
        });
        visited.unwrap();
        layers
    }

    #[test]
    fn a_blend_with_the_frame_before_costs_no_launch() {
        assert_eq!(layers(0.3, KernelSet::Fused), layers(0.0, KernelSet::Fused));
        // The baseline runs the graph as it was built.
        let mut baseline = layers(0.3, KernelSet::Baseline);
        let blend = baseline.iter().position(|layer| layer == "blended").unwrap();
        baseline.remove(blend);
        assert_eq!(baseline, layers(0.0, KernelSet::Baseline));
    }
}
