//! The GPU, its driver, its compiler and its libraries.

use std::{fs, path::Path};

use kinora_cuda::{
    Architecture, CudaError,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    cupti::Cupti,
    driver,
    vendor::Libraries,
};

use super::{CPU_INSTEAD, Outcome};
use crate::{device::Device, quantity::bytes};

/// Why nothing was looked for.
const NO_GPU: &str = "no GPU is in use";

/// The GPU to use; `None` for the CPU.
pub fn open(device: Device) -> Option<driver::Device> {
    match device {
        Device::Cpu => None,
        Device::Cuda(ordinal) => driver::Device::shared(ordinal).ok(),
        Device::Auto => driver::Device::shared(0).ok(),
    }
}

/// A missing GPU is not a failure, unless one was asked for.
fn missing(device: Device, error: &CudaError) -> Outcome {
    match device {
        Device::Cuda(_) => Outcome::bad(error.to_string(), CPU_INSTEAD),
        _ => Outcome::not_run(format!("{error}; the CPU does the work")),
    }
}

pub fn driver(device: Device) -> Outcome {
    match driver::driver_version() {
        Ok(version) => Outcome::good(format!("CUDA {version}")),
        Err(error) => missing(device, &error),
    }
}

pub fn gpu(device: Device) -> Outcome {
    let found = match driver::Device::list() {
        Ok(found) => found,
        // What is wrong with the driver was said already.
        Err(_) if driver::driver_version().is_err() => return Outcome::not_run(NO_GPU),
        Err(error) => return missing(device, &error),
    };
    let described: Vec<String> = found
        .iter()
        .map(|info| {
            let memory = bytes(info.memory_bytes as u64);
            format!("{}: {} ({}), {memory}", info.ordinal, info.name, info.architecture())
        })
        .collect();
    let described = described.join("; ");
    if found.is_empty() {
        return Outcome::not_run("the driver is installed, but there is no GPU");
    }
    if let Device::Cuda(ordinal) = device
        && let Err(error) = driver::Device::shared(ordinal)
    {
        return Outcome::bad(format!("{described}; {error}"), CPU_INSTEAD);
    }
    match open(device).map(|device| device.memory()) {
        Some(Ok(memory)) => Outcome::good(format!("{described}; {} free", bytes(memory.free as u64))),
        Some(Err(error)) => {
            Outcome::bad(error.to_string(), "check `nvidia-smi`: another program may be using the GPU")
        }
        None if device == Device::Cpu => Outcome::good(described),
        None => Outcome::bad(format!("{described}; the GPU cannot be opened"), "`nvidia-smi` may say why"),
    }
}

pub fn compiler(target: Option<&driver::Device>) -> Outcome {
    let chip = target.map(|device| device.info().chip());
    let architecture = chip.as_ref().map_or(Architecture::AMPERE, |chip| chip.architecture);
    let driver = target.map(|device| device.info().driver.major);
    let options = CompilerOptions { driver, ..CompilerOptions::from_environment() };
    let form = kinora_cuda::CodeForm::Cubin;
    let version =
        Compiler::new(CompileTarget { architecture, form }, options).and_then(|compiler| compiler.version());
    match (version, target) {
        (Ok((major, minor)), _) => Outcome::good(format!("NVRTC {major}.{minor}")),
        // The commands that need it without a GPU say where they looked for it.
        (Err(CudaError::NoCompiler { .. }), None) => Outcome::not_run(
            "NVRTC was not found; without a GPU only `kinora sim` and `kinora kernels build` need it",
        ),
        (Err(error), None) => Outcome::not_run(error.to_string()),
        (Err(error), Some(_)) => Outcome::bad(
            error.to_string(),
            "the CUDA toolkit has it as well; a bundle made by `kinora kernels build` does without it",
        ),
    }
}

pub fn libraries(target: Option<&driver::Device>) -> Outcome {
    let Some(device) = target else { return Outcome::not_run(NO_GPU) };
    let libraries = Libraries::of(device.context());
    let versions = libraries.versions();
    match (libraries.cublaslt(), libraries.cudnn()) {
        (Some(_), Some(_)) => Outcome::good(versions),
        _ => Outcome::note(
            versions,
            "optional: with cuBLASLt and cuDNN, `--tuning all` has more kernels to choose from",
        ),
    }
}

pub fn tracing(target: Option<&driver::Device>) -> Outcome {
    match (Cupti::find(), target) {
        (Ok(cupti), _) => Outcome::good(format!("CUPTI {}", cupti.version())),
        (Err(_), None) => Outcome::not_run(NO_GPU),
        (Err(error), Some(_)) => {
            Outcome::note(error.to_string(), "optional: with CUPTI, profiles also show when each kernel ran")
        }
    }
}

pub fn cache() -> Outcome {
    let Some(folder) = CompilerOptions::from_environment().cache else {
        return Outcome::note(
            "no folder",
            "set KINORA_CACHE_DIR; without it, kernels are compiled at every start",
        );
    };
    let written = fs::create_dir_all(&folder).and_then(|()| tempfile::tempfile_in(&folder).map(drop));
    match written {
        Ok(()) => {
            let size = bytes(size(&folder));
            Outcome::good(format!("{}, {size}", folder.display()))
        }
        Err(error) => Outcome::note(
            format!("{}: {error}", folder.display()),
            "set KINORA_CACHE_DIR to a writable folder; without one, kernels are compiled at every start",
        ),
    }
}

/// The total size of the files in a folder and its subfolders.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
