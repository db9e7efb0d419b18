//! Whether a device computes what the reference computes, and how fast.

#[cfg(feature = "cuda")]
use kinora_cpu::CpuOps;
use kinora_cpu::{CpuBackend, reference};
#[cfg(feature = "cuda")]
use kinora_cuda::CudaBackend;
use kinora_graph::{DType, Graph, Source, Tensor, TensorType, tensor::TensorError};
use kinora_models::synthetic;
use kinora_profile::{Ceilings, Profiler};
use kinora_runtime::{Backend, LoadContext, RunError, Tensors};
#[cfg(feature = "cuda")]
use kinora_runtime::{KernelSet, Tuning};

use super::{Outcome, families::Family};
use crate::{device::Device, quantity::prefixed};

/// The largest accepted relative error of a family's results: a few units in the last place of the storage type.
fn bar(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 3e-3,
        _ => 2.5e-2,
    }
}

/// Fills memory before a run, so that reading something that was never written shows up.
const POISON: u8 = 0xFF;

/// Why a check did not run.
pub const UNUSABLE: &str = "the GPU that was asked for cannot be used";

const WRONG: &str = "please report this with the output of `kinora doctor --json`; meanwhile, try --device cpu or `--kernels baseline`";

/// The device to check, with memory poisoned before each run; `None` if the requested device cannot be used.
pub fn backend(device: Device) -> Option<Box<dyn Backend>> {
    match (device, gpu(device)) {
        (_, Some(gpu)) => Some(gpu),
        (Device::Cuda(_), None) => None,
        (Device::Auto | Device::Cpu, None) => {
            let options = kinora_cpu::Options { poison: Some(POISON), ..kinora_cpu::Options::default() };
            Some(Box::new(CpuBackend { options }))
        }
    }
}

#[cfg(feature = "cuda")]
fn gpu(device: Device) -> Option<Box<dyn Backend>> {
    let device = super::gpu::open(device)?;
    let backend = CudaBackend::new(device, KernelSet::default(), Tuning::Off, CpuOps::shared()).ok()?;
    Some(Box::new(backend.poisoned(POISON)))
}

#[cfg(not(feature = "cuda"))]
fn gpu(_: Device) -> Option<Box<dyn Backend>> {
    None
}

/// Runs a family's graph on the device, in every precision.
pub fn check(family: Family, backend: Option<&dyn Backend>) -> Outcome {
    let Some(backend) = backend else { return Outcome::not_run(UNUSABLE) };
    let mut worst = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        match distance(family, dtype, backend) {
            Ok(0.0) => worst.push(format!("{dtype} 0")),
            Ok(distance) if distance <= bar(dtype) => worst.push(format!("{dtype} {distance:.0e}")),
            Ok(distance) => {
                return Outcome::bad(
                    format!(
                        "{dtype} differs from the reference by {distance:.1e}; at most {:.0e} is expected",
                        bar(dtype)
                    ),
                    WRONG,
                );
            }
            Err(problem) => return Outcome::bad(format!("in {dtype}: {problem}"), WRONG),
        }
    }
    Outcome::good(format!("matches the reference: relative error {}", worst.join(", ")))
}

/// The largest relative error among the results of a family's graph.
fn distance(family: Family, dtype: DType, backend: &dyn Backend) -> Result<f64, RunError> {
    let graph = family.graph(dtype)?;
    let (parameters, inputs) = numbers(&graph)?;
    let expected = reference::evaluate(&graph, &parameters, &inputs)?;
    let silent = LoadContext { profiler: &Profiler::off(), compiled: &|_, _| {}, shared: None, kept: &[] };
    let mut network = backend.plan(&graph, None)?.load(&parameters, &silent)?;
    // Poisons the memory: a family has no inputs of the clip phase.
    network.run_clip(&Tensors::new())?;
    let got = network.run_step(&inputs)?;
    let mut furthest = 0.0f64;
    for (name, expected) in &expected {
        let got = got.get(name).ok_or_else(|| RunError::UnknownOutput(name.clone()))?;
        furthest = furthest.max(relative_error(&expected.to_f32(), &got.to_f32()));
    }
    Ok(furthest)
}

/// The relative error: the norm of the difference over the norm of what was expected; infinite if it is not finite.
fn relative_error(expected: &[f32], got: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let difference: f64 = expected.iter().zip(got).map(|(&e, &g)| square(g - e)).sum();
    let length: f64 = expected.iter().map(|&e| square(e)).sum();
    let distance = (difference / length).sqrt();
    if distance.is_finite() { distance } else { f64::INFINITY }
}

/// Parameters and inputs for a graph: numbers between −1 and 1 derived from their names, and small integers.
fn numbers(graph: &Graph) -> Result<(Tensors, Tensors), RunError> {
    let (mut parameters, mut inputs) = (Tensors::new(), Tensors::new());
    for value in graph.values() {
        let tensors = match value.source {
            Source::Parameter => &mut parameters,
            Source::Input(_) => &mut inputs,
            Source::Constant(_) | Source::Node { .. } => continue,
        };
        tensors.insert(value.name.clone(), tensor(&value.name, &value.ty)?);
    }
    Ok((parameters, inputs))
}

fn tensor(name: &str, ty: &TensorType) -> Result<Tensor, RunError> {
    let wrong = |error: TensorError| RunError::Internal(format!("{name}: {error}"));
    if ty.dtype == DType::I32 {
        return Tensor::from_slice(ty.shape.clone(), &vec![1i32; ty.elements()]).map_err(wrong);
    }
    // Weights as small as those of real networks, so that sums stay about as large as their terms.
    let depth = ty.shape.iter().skip(1).product::<usize>().max(1) as f32;
    let factor = if name.contains("weight") { (3.0 / depth).sqrt() } else { 1.0 };
    let values: Vec<f32> = synthetic::uniform(name)
        .map(|uniform| (2.0 * uniform - 1.0) as f32 * factor)
        .take(ty.elements())
        .collect();
    Tensor::from_f32(ty.dtype, ty.shape.clone(), &values).map_err(wrong)
}

/// Measures what the device can do at best.
pub fn speed(backend: Option<&dyn Backend>) -> Outcome {
    let Some(backend) = backend else { return Outcome::not_run(UNUSABLE) };
    let measured = backend.ceilings(backend.default_dtype()).map_err(|error| error.to_string());
    let measured =
        measured.and_then(|measured| measured.ok_or_else(|| "not enough free memory to measure".to_owned()));
    match measured {
        Ok(Ceilings { flops_per_second, bytes_per_second, launch_nanoseconds }) => Outcome::good(format!(
            "{} of arithmetic, {} of memory bandwidth, {launch_nanoseconds:.0} ns to launch a layer",
            prefixed(flops_per_second, "FLOP/s"),
            prefixed(bytes_per_second, "B/s"),
        )),
        Err(problem) => Outcome::note(problem, "close other programs and try again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Status, families::FAMILIES};

    #[test]
    fn every_family_is_well_here_and_a_wrong_one_would_show() {
        for family in FAMILIES {
            let outcome = check(family, backend(Device::Cpu).as_deref());
            assert_eq!(outcome.status, Status::Good, "{}: {}", family.name, outcome.found);
        }
        assert!(relative_error(&[1.0, 2.0], &[1.0, 2.001]) > bar(DType::F32));
        assert_eq!(relative_error(&[1.0], &[f32::NAN]), f64::INFINITY);
        assert_eq!(relative_error(&[0.0], &[0.0]), f64::INFINITY, "nothing was computed");
    }
}
