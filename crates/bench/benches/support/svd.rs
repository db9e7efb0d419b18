//! The options that the benchmarks of Stable Video Diffusion share, and its denoising network.

use std::path::PathBuf;

use kinora::runtime::{KernelSet, Tuning};
use kinora_bench::{BenchError, CommandLine};
use kinora_cuda::driver::DeviceInfo;
use kinora_graph::{DType, Graph};
use kinora_models::{
    networks::{
        NetworkError,
        denoise::{DenoiseConfig, SamplerNeeds},
        step_cache::Extent,
        unet::UnetConfig,
    },
    presets::Preset,
};
use serde_json::{Value, json};

/// Pixels per latent along each axis.
pub const PIXELS_PER_LATENT: usize = 8;

/// `--frames`, `--height`, `--width`, `--kernels`, `--tuning` and `--json`.
pub struct SvdOptions {
    pub frames: usize,
    pub height: usize,
    pub width: usize,
    pub kernels: KernelSet,
    pub tuning: Tuning,
    pub json: Option<PathBuf>,
}

impl SvdOptions {
    /// Takes them from a command line. The clip is that of the published model unless they say otherwise.
    pub fn take(line: &mut CommandLine) -> Result<SvdOptions, BenchError> {
        let clip = Preset::svd().clip;
        Ok(SvdOptions {
            frames: line.option_or("--frames", clip.frames)?,
            height: line.option_or("--height", clip.height)?,
            width: line.option_or("--width", clip.width)?,
            kernels: line.option_or("--kernels", KernelSet::Fused)?,
            tuning: line.option_or("--tuning", Tuning::Off)?,
            json: line.option("--json")?,
        })
    }

    /// The denoising network in f16, with guidance.
    pub fn denoiser(&self, steps: usize, extent: Extent) -> Result<Graph, NetworkError> {
        let config = DenoiseConfig {
            unet: UnetConfig::svd(),
            frames: self.frames,
            height: self.height / PIXELS_PER_LATENT,
            width: self.width / PIXELS_PER_LATENT,
            steps,
            guided: true,
            sampler: SamplerNeeds::default(),
            dtype: DType::F16,
            extent,
        };
        config.build()
    }

    /// Prints what is measured, and on which device.
    pub fn print_head(&self, device: &DeviceInfo) {
        println!("{}, {} frames of {}×{}, f16", device.name, self.frames, self.width, self.height);
    }

    /// The same for the JSON.
    pub fn head(&self, device: &DeviceInfo) -> Value {
        json!({
            "device": device.name, "driver": device.driver.to_string(), "frames": self.frames, "height": self.height,
            "width": self.width, "kernels": self.kernels.to_string(), "tuning": self.tuning.to_string(),
        })
    }
}
