//! Whether a device computes what the reference does, and how fast.

use kinora_cpu::{Tensors, reference, simd::Isa};
use kinora_cuda::{CudaOptions, compiler::CompilerOptions, driver};
use kinora_graph::{DType, Graph, Source, Tensor, TensorType};
use kinora_models::synthetic;
use kinora_profile::Ceilings;

use super::{Outcome, families::Family};
use crate::{image_to_video::Device, quantity::prefixed};

/// How far a family's results may be from the reference's, as a whole: some units in the last place of the storage.
fn bar(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 3e-3,
        _ => 2.5e-2,
    }
}

const WRONG: &str = "please report this with the output of `kinora doctor --json`; --device cpu or `--kernels baseline` may help meanwhile";

/// Runs a family's graph on a GPU, or on the processor where there is none, in every precision.
pub fn check(family: Family, gpu: Option<&driver::Device>, device: Device) -> Outcome {
    if gpu.is_none() && matches!(device, Device::Cuda(_)) {
        return Outcome::not_run("the GPU that was asked for cannot be used");
    }
    let mut worst = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        match distance(family, dtype, gpu) {
            Ok(distance) if distance <= bar(dtype) => worst.push(format!("{dtype} {distance:.0e}")),
            Ok(distance) => {
                return Outcome::bad(
                    format!("in {dtype} {distance:.1e} off, over {:.0e}", bar(dtype)),
                    WRONG,
                );
            }
            Err(problem) => return Outcome::bad(format!("in {dtype}: {problem}"), WRONG),
        }
    }
    let on = if gpu.is_some() { "on the GPU" } else { "on the processor" };
    Outcome::good(format!("{on} as the reference: {} off", worst.join(", ")))
}

/// How far the furthest result of a family's graph is from the reference's.
fn distance(family: Family, dtype: DType, gpu: Option<&driver::Device>) -> Result<f64, String> {
    fn said(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let graph = family.graph(dtype).map_err(said)?;
    let (parameters, inputs) = numbers(&graph)?;
    let expected = reference::evaluate(&graph, &parameters, &inputs).map_err(said)?;
    let got = match gpu {
        Some(device) => {
            let options = CudaOptions { poison: Some(0xFF), ..CudaOptions::for_device(device) };
            let planned = kinora_cuda::Planned::new(&graph, &options).map_err(said)?;
            planned.load(device, &parameters).and_then(|mut program| program.run(&inputs)).map_err(said)?
        }
        None => {
            let options = kinora_cpu::Options { poison: Some(0xFF), ..kinora_cpu::Options::default() };
            let mut program = kinora_cpu::Program::new(&graph, &parameters, options).map_err(said)?;
            program.run(&inputs).map_err(said)?
        }
    };
    let mut furthest = 0.0f64;
    for (name, expected) in &expected {
        let got = got.get(name).ok_or_else(|| format!("there is no result {name}"))?;
        furthest = furthest.max(of_whole(&expected.to_f32(), &got.to_f32()));
    }
    Ok(furthest)
}

/// The length of the difference over that of what was expected; infinite where something is not finite.
fn of_whole(expected: &[f32], got: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let difference: f64 = expected.iter().zip(got).map(|(&e, &g)| square(g - e)).sum();
    let length: f64 = expected.iter().map(|&e| square(e)).sum();
    let distance = (difference / length).sqrt();
    if distance.is_finite() { distance } else { f64::INFINITY }
}

/// Parameters and inputs of a graph: numbers between −1 and 1 by their names, and small whole ones.
fn numbers(graph: &Graph) -> Result<(Tensors, Tensors), String> {
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

fn tensor(name: &str, ty: &TensorType) -> Result<Tensor, String> {
    if ty.dtype == DType::I32 {
        return Tensor::from_slice(ty.shape.clone(), &vec![1i32; ty.elements()]).map_err(|e| e.to_string());
    }
    // Weights as small as those of networks, so that sums stay of the size of what is summed.
    let depth = ty.shape.iter().skip(1).product::<usize>().max(1) as f32;
    let factor = if name.contains("weight") { (3.0 / depth).sqrt() } else { 1.0 };
    let values: Vec<f32> = synthetic::uniform(name)
        .map(|uniform| (2.0 * uniform - 1.0) as f32 * factor)
        .take(ty.elements())
        .collect();
    Tensor::from_f32(ty.dtype, ty.shape.clone(), &values).map_err(|error| error.to_string())
}

/// What the device does at best.
pub fn speed(gpu: Option<&driver::Device>) -> Outcome {
    let measured = match gpu {
        Some(device) => {
            kinora_cuda::ceilings::measure(device, CompilerOptions::from_environment(), DType::F16)
                .map_err(|e| e.to_string())
        }
        None => kinora_cpu::ceilings::measure(Isa::detect())
            .ok_or_else(|| "there is no half a gigabyte of memory to read".to_owned()),
    };
    match measured {
        Ok(Ceilings { flops_per_second, bytes_per_second, launch_nanoseconds }) => Outcome::good(format!(
            "{} of arithmetic, {} of memory, {launch_nanoseconds:.0} ns to start a layer",
            prefixed(flops_per_second, "FLOP/s"),
            prefixed(bytes_per_second, "B/s"),
        )),
        Err(problem) => Outcome::note(problem, "close other programs, and look again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Status, families::FAMILIES};

    #[test]
    fn every_family_is_well_here_and_a_wrong_one_would_show() {
        for family in FAMILIES {
            let outcome = check(family, None, Device::Cpu);
            assert_eq!(outcome.status, Status::Good, "{}: {}", family.name, outcome.found);
        }
        assert!(of_whole(&[1.0, 2.0], &[1.0, 2.001]) > bar(DType::F32));
        assert_eq!(of_whole(&[1.0], &[f32::NAN]), f64::INFINITY);
        assert_eq!(of_whole(&[0.0], &[0.0]), f64::INFINITY, "nothing was computed");
    }
}
