//! The GPU kernels of live video, for another machine.

use kinora_cpu::CpuBackend;
use kinora_cuda::{Architecture, kernels::Kernel};
use kinora_graph::Graph;
use kinora_models::{image::Fit, networks::frame::FrameInput};

use super::{
    LiveConfigs, LiveSettings,
    estimate::{Request, estimate_live_on},
    measuring,
};
#[cfg(feature = "simulator")]
use crate::image_to_video::Built;
use crate::image_to_video::{GenerateError, Precision, chip, device_error, kernels_of, measured_graph};

/// The kernels that a stream runs on any GPU of a generation, each once: what a bundle for it has to contain, if no LoRA is turned
/// while it runs. Among them are those that fit frames of usual sizes; for a size that needs another the host does it. In
/// [`Precision::Fp8`] those that measure the model are among them as well.
///
/// # Errors
/// If the settings are refused, there is no kernel for one of the model's ops, or the generation cannot multiply in fp8.
pub fn live_kernels(
    configs: &LiveConfigs,
    settings: &LiveSettings,
    precision: Precision,
    architecture: Architecture,
) -> Result<Vec<Kernel>, GenerateError> {
    let request =
        Request { configs, settings, precision, backend: &CpuBackend::default(), unet: None, input: None };
    // They refuse settings that make no sense.
    let mut graphs: Vec<Graph> = request.graphs()?.into_iter().map(|(_, _, graph)| graph).collect();
    if precision == Precision::Fp8 {
        estimate_live_on(configs, settings, precision, &chip(architecture))?;
        graphs
            .extend(measured_graph(&measuring::graph(configs, settings)?).transpose().map_err(device_error)?);
    }
    let fits = Some(settings).filter(|_| configs.control.is_none()).into_iter().flat_map(fits);
    kernels_of(graphs.into_iter().chain(fits), architecture)
}

/// The networks of a stream, before any pass; each runs once, for a prompt or a frame.
#[cfg(feature = "simulator")]
pub(crate) fn live_networks(
    configs: &LiveConfigs,
    settings: &LiveSettings,
    precision: Precision,
) -> Result<Vec<Built>, GenerateError> {
    let request =
        Request { configs, settings, precision, backend: &CpuBackend::default(), unet: None, input: None };
    let built = |(name, stage, graph)| Built { name, stage, runs: 1, graph };
    Ok(request.graphs()?.into_iter().map(built).collect())
}

/// What fits frames to the settings: kernels depend on what the bytes of rows are multiples of, not on sizes.
fn fits(settings: &LiveSettings) -> impl Iterator<Item = Graph> {
    let &LiveSettings { width, height, background, .. } = settings;
    let wider = [1, 2, 4, 16].map(|by| [width + by, 2 * height + by]);
    let higher = [1, 2, 4, 16].map(|by| [width + by, 5 * height]);
    let usual = [[640, 360], [640, 480], [1280, 720], [1920, 1080], [720, 1280], [1080, 1920]];
    let sizes = wider.into_iter().chain(higher).chain(usual);
    let inputs = sizes
        .flat_map(move |[width, height]| Fit::ALL.map(|fit| FrameInput { width, height, fit, background }));
    // Some of a very large picture's have a size that no frame has.
    inputs.filter_map(move |input| input.graph([width, height]).ok())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kinora_cpu::CpuOps;
    use kinora_cuda::{Chip, CudaOptions, Planned, kernels::KernelSet};
    use kinora_graph::DType;
    use kinora_models::{
        folder::ModelFolder,
        lora::{Adapted, Adjustable, Lora, LoraPart},
        synthetic::SyntheticImageModel,
        weights::Variant,
    };
    use kinora_runtime::Backend;

    use super::*;
    use crate::live::LiveModel;

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

    /// All on the device: a launch for each pass of the resize, one for bars, and one if rows are cut off before they are resized.
    #[test]
    fn a_frame_of_another_size_is_fitted_by_a_few_launches() {
        let plain = layers(0.0, KernelSet::Fused);
        for (size, fit, expected) in [
            ([1280, 720], Fit::Crop, &["fit.across", "fit.down"][..]),
            ([1280, 720], Fit::Pad, &["fit.across", "fit.down", "fit.down.bars"]),
            ([512, 700], Fit::Crop, &["fit.down"]),
            ([720, 1280], Fit::Crop, &["fit.seen", "fit.across", "fit.down"]),
            ([300, 900], Fit::Stretch, &["fit.down", "fit.across"]),
        ] {
            let mut layers = layers_for(Some((size, fit)), 0.0, KernelSet::Fused);
            let fitted: Vec<String> = layers.extract_if(.., |layer| layer.starts_with("fit.")).collect();
            assert_eq!(fitted, expected, "{size:?} {fit}");
            assert_eq!(layers, plain, "{size:?} {fit}");
        }
    }

    #[test]
    fn a_bundle_has_what_fits_frames() {
        let configs = LiveConfigs::preset("sd-turbo").unwrap().tiny_autoencoder().unwrap();
        let settings = LiveSettings::for_configs(&configs);
        let kernels = live_kernels(&configs, &settings, Precision::F16, Architecture::HOPPER).unwrap();
        let vectors = kernels.iter().filter(|kernel| kernel.entry == "resample_axis").flat_map(|kernel| {
            kernel.constants.iter().filter(|(name, _)| *name == "VECTOR").map(|(_, value)| value.as_str())
        });
        let mut vectors: Vec<&str> = vectors.collect();
        vectors.sort_unstable();
        assert_eq!(vectors, ["2", "3", "4"]);
    }

    /// How many products of a frame a GPU does in 8 bits, by shape.
    fn products_in_8_bits(
        configs: &LiveConfigs,
        unet: Option<&Adjustable<'_>>,
        architecture: Architecture,
    ) -> usize {
        let settings = &LiveSettings::for_configs(configs).width(512).height(512);
        let backend = &chip(architecture);
        let request = Request { configs, settings, precision: Precision::Fp8, backend, unet, input: None };
        let graph = request.frame().unwrap().unwrap();
        backend.plan(&graph, None).unwrap().graph().quantised_products()
    }

    /// All of the UNet's but the first and the last convolution; Hopper leaves those of stride 2 as well.
    #[test]
    fn most_products_of_a_frame_are_done_in_8_bits() {
        for (name, expected) in [("sd-turbo", [0, 192, 189]), ("sdxl-turbo", [0, 491, 489])] {
            let configs = LiveConfigs::preset(name).unwrap();
            let products = [Architecture::AMPERE, Architecture::ADA, Architecture::HOPPER]
                .map(|architecture| products_in_8_bits(&configs, None, architecture));
            assert_eq!(products, expected, "{name}");
        }
    }

    #[test]
    fn a_lora_that_is_turned_leaves_no_product_in_f16() {
        let folder = tempfile::tempdir().unwrap();
        SyntheticImageModel::preset("live").unwrap().write(folder.path()).unwrap();
        let model = ModelFolder::open(folder.path()).unwrap();
        let configs = LiveConfigs::read(&LiveModel::new(model.clone())).unwrap();
        let unet = model.weights("unet", &Variant::For(DType::F16)).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/lora");
        let lora = Lora::open(&fixtures.join("peft.safetensors")).unwrap();
        let weights = Adapted::new(&unet, LoraPart::Unet, &[]).unwrap();
        let turned = Adjustable::new(weights, &[&lora]).unwrap();
        let products = |unet| products_in_8_bits(&configs, unet, Architecture::ADA);
        assert!(products(None) > 30);
        assert_eq!(products(Some(&turned)), products(None));
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
