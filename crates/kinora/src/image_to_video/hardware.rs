//! Which clip fits which machine, and about how long it takes there: planned for GPUs that are not here.

use kinora_cpu::{CpuBackend, CpuOps};
use kinora_cuda::{Architecture, Chip, ChipBackend};
use kinora_runtime::Backend;
use serde::Serialize;

use super::{Configs, Estimate, GenerateError, Precision, Settings, Suggestion, plans::Request};

/// What an H200 reaches of its published rate over a denoising step of Stable Video Diffusion: 86.2 TFLOP in 0.20 s
/// (`bench/results/h200`). Other GPUs have not been measured, and are taken to reach the same share.
const GPU_SHARE: f64 = 0.44;

/// What two Zen 3 cores reach of what they can multiply and add, over the layers of `bench/results/cpu`.
const CPU_SHARE: f64 = 0.8;

/// Memory that a GPU's driver and display need beside a clip.
const GPU_RESERVED_BYTES: u64 = 600_000_000;

/// Memory that the system and other programs need beside a clip on a CPU.
const CPU_RESERVED_BYTES: u64 = 4_000_000_000;

/// A machine by its published figures.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// The memory that networks can use, in bytes: the GPU's, or the machine's if it has none.
    pub memory_bytes: u64,
    /// The GPU's generation (compute capability); `None` for a CPU.
    pub architecture: Option<u32>,
    /// Floating-point operations per second at best: dense f16 with f32 sums on a GPU's tensor cores, f32 on a CPU.
    pub flops_per_second: f64,
}

/// Machines that people have, small ones first.
pub const MACHINES: [Machine; 8] = [
    cpu("CPU, 8 cores at 4 GHz with AVX2, 16 GB", 16, 8.0 * 4e9 * 32.0),
    gpu("RTX 4060, 8 GB", 8, 89, 30e12),
    gpu("T4, 16 GB", 16, 75, 65e12),
    gpu("RTX 4080, 16 GB", 16, 89, 97e12),
    gpu("RTX 3090, 24 GB", 24, 86, 71e12),
    gpu("RTX 4090, 24 GB", 24, 89, 165e12),
    gpu("A100, 80 GB", 80, 80, 312e12),
    gpu("H100, 80 GB", 80, 90, 989e12),
];

impl Machine {
    /// What plans for it, and how it stores weights and activations if nothing else is asked for.
    pub(crate) fn backend(&self) -> (Box<dyn Backend>, Precision) {
        match self.architecture {
            Some(number) => {
                let chip = Chip::typical(Architecture(number));
                (Box::new(ChipBackend::new(chip, CpuOps::shared())), Precision::F16)
            }
            None => (Box::new(CpuBackend::default()), Precision::F32),
        }
    }

    /// The memory that networks may take: what the driver, the display, the system and other programs need is left to them.
    pub(crate) fn budget(&self) -> usize {
        let reserved = if self.architecture.is_some() { GPU_RESERVED_BYTES } else { CPU_RESERVED_BYTES };
        usize::try_from(self.memory_bytes - reserved).unwrap_or(usize::MAX)
    }

    /// About how many seconds arithmetic takes there, if a GPU reaches this share of its published rate.
    pub(crate) fn seconds(&self, flops: u64, gpu_share: f64) -> f64 {
        let share = if self.architecture.is_some() { gpu_share } else { CPU_SHARE };
        flops as f64 / (self.flops_per_second * share)
    }
}

const fn cpu(name: &'static str, gigabytes: u64, flops_per_second: f64) -> Machine {
    Machine { name, memory_bytes: gigabytes * 1_000_000_000, architecture: None, flops_per_second }
}

const fn gpu(name: &'static str, gigabytes: u64, architecture: u32, flops_per_second: f64) -> Machine {
    // Cards are sold by binary gigabytes.
    Machine { name, memory_bytes: gigabytes << 30, architecture: Some(architecture), flops_per_second }
}

/// A clip on a machine.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Fit {
    /// The machine.
    pub machine: Machine,
    /// The clip that fits; `None` if not even the smallest that was tried does.
    pub clip: Option<FittingClip>,
}

/// A clip that fits a machine: the one that was asked for, or the nearest to it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FittingClip {
    /// Frames.
    pub frames: usize,
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Frames that are decoded together.
    pub decode_chunk: usize,
    /// How weights and activations are stored.
    pub precision: Precision,
    /// The most memory that is in use at a time, in bytes.
    pub peak_bytes: usize,
    /// About how many seconds it takes, without reading the weights: its arithmetic at the share of the published rate that
    /// was measured on one GPU and one CPU. An estimate, not a measurement.
    pub estimated_seconds: f64,
}

/// Plans a clip for each of [`MACHINES`]: f16 on GPUs, f32 on a CPU, and what fits if that does not.
///
/// # Errors
/// If the settings or the configurations are refused.
pub fn fits(configs: &Configs, settings: &Settings) -> Result<Vec<Fit>, GenerateError> {
    MACHINES.into_iter().map(|machine| fit(configs, settings, machine)).collect()
}

fn fit(configs: &Configs, settings: &Settings, machine: Machine) -> Result<Fit, GenerateError> {
    let (backend, precision) = machine.backend();
    let budget = machine.budget();
    let request = Request { configs, settings, precision, backend: &*backend, photo: [0; 2] };
    let clip = match request.plan_within(Some(budget)) {
        Ok(plans) => Some(fitting(&machine, settings, precision, &plans.estimate())),
        Err(GenerateError::OverBudget { suggestion: Some(suggestion), .. }) => {
            let (settings, precision) = Suggestion::apply(&suggestion, settings, precision);
            let request = Request { settings: &settings, precision, ..request };
            Some(fitting(&machine, &settings, precision, &request.plan(None)?.estimate()))
        }
        Err(GenerateError::OverBudget { suggestion: None, .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(Fit { machine, clip })
}

fn fitting(machine: &Machine, settings: &Settings, precision: Precision, estimate: &Estimate) -> FittingClip {
    FittingClip {
        frames: settings.frames,
        width: settings.width,
        height: settings.height,
        decode_chunk: settings.decode_chunk.min(settings.frames),
        precision,
        peak_bytes: estimate.peak_bytes(),
        estimated_seconds: machine.seconds(estimate.flops(), GPU_SHARE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_grows_with_the_memory_and_stays_within_it() {
        let configs = Configs::svd();
        let settings = Settings::for_configs(&configs);
        let fits = fits(&configs, &settings).unwrap();
        assert_eq!(fits.len(), MACHINES.len());
        for Fit { machine, clip } in &fits {
            let clip = clip.as_ref().unwrap_or_else(|| panic!("nothing fits {}", machine.name));
            assert!((clip.peak_bytes as u64) < machine.memory_bytes, "{}", machine.name);
            assert!(clip.estimated_seconds > 1.0, "{}", machine.name);
        }
        let clip_of = |name: &str| {
            let fit = fits.iter().find(|fit| fit.machine.name.starts_with(name)).unwrap();
            fit.clip.clone().unwrap()
        };
        // The promise for a 16 GB card: the whole clip, at its full size.
        for card in ["T4", "RTX 4090", "H100"] {
            let clip = clip_of(card);
            assert_eq!((clip.frames, clip.width, clip.height), (14, 1024, 576), "{card}");
        }
        assert!(clip_of("RTX 4060").peak_bytes <= clip_of("T4").peak_bytes);
        assert!(clip_of("H100").estimated_seconds < clip_of("A100").estimated_seconds);
    }

    #[test]
    fn shallow_steps_read_the_weights_of_whole_ones() {
        let configs = Configs::svd();
        let settings = Settings::for_configs(&configs).cache(3);
        for machine in MACHINES {
            let (backend, precision) = machine.backend();
            let request = Request {
                configs: &configs,
                settings: &settings,
                precision,
                backend: &*backend,
                photo: [0; 2],
            };
            let estimate = request.plan(None).unwrap().estimate();
            let of_steps: Vec<usize> = estimate
                .parts
                .iter()
                .filter(|part| part.stage == crate::image_to_video::Stage::Denoise)
                .map(|part| part.weight_bytes)
                .collect();
            // What is left are embeddings of the frames' numbers.
            assert!(
                of_steps.len() == 2 && of_steps[0] > 10_000 * of_steps[1],
                "{}: {of_steps:?}",
                machine.name
            );
        }
    }
}
