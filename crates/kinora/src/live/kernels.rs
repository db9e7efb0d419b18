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
