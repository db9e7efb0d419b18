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
    let request =
        Request { configs, settings, precision, backend: &CpuBackend::default(), unet: None, input: None };
    kernels_of(request.graphs()?.into_iter().map(|(_, _, graph)| graph), architecture)
}

#[cfg(test)]
mod tests {
    use kinora_cpu::CpuOps;
    use kinora_cuda::{Chip, CudaOptions, Planned, kernels::KernelSet};

    use kinora_models::image::Fit;

    use super::*;

    /// The layers that a GPU runs of a stream's frame, one launch or more each.
    fn layers(blend: f64, kernels: KernelSet) -> Vec<String> {
        layers_for(None, blend, kernels)
    }

    fn layers_for(input: Option<([usize; 2], Fit)>, blend: f64, kernels: KernelSet) -> Vec<String> {
        let configs = LiveConfigs::preset("sd-turbo").unwrap().tiny_autoencoder().unwrap();
        let settings = LiveSettings::for_configs(&configs).blend(blend);
        let settings = input.map_or(settings.clone(), |(_, fit)| settings.fit(fit));
        let backend = &CpuBackend::default();
        let request = Request {
            configs: &configs,
            settings: &settings,
            precision: Precision::F16,
            backend,
            unet: None,
            input: input.map(|(size, _)| size),
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

    /// All on the device: a launch for each pass of the resize, and one for bars.
    #[test]
    fn a_frame_of_another_size_is_fitted_by_a_few_launches() {
        let plain = layers(0.0, KernelSet::Fused);
        for (size, fit, expected) in [
            ([1280, 720], Fit::Crop, &["fit.across", "fit.down"][..]),
            ([1280, 720], Fit::Pad, &["fit.across", "fit.down", "fit.down.bars"]),
            ([512, 700], Fit::Crop, &["fit.down"]),
            ([300, 900], Fit::Stretch, &["fit.down", "fit.across"]),
        ] {
            let mut layers = layers_for(Some((size, fit)), 0.0, KernelSet::Fused);
            let fitted: Vec<String> = layers.extract_if(.., |layer| layer.starts_with("fit.")).collect();
            assert_eq!(fitted, expected, "{size:?} {fit}");
            assert_eq!(layers, plain, "{size:?} {fit}");
        }
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
