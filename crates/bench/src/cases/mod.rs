//! What is measured: layers, as tables of shapes that the peers read as well, whole networks, frames and clips.

mod graph;
mod live;
mod networks;
mod numbers;
mod shape;

pub use live::{LiveNetworks, STREAM, TWO_STEPS, inputs_by_name};
pub(crate) use networks::network_bytes;
pub use networks::{Batch, Network, prediction, stages};
pub use numbers::{Numbers, windows};
pub(crate) use numbers::{bar, in_windows, window};
pub(crate) use shape::bytes;
pub use shape::{ConvShape, Latents, Rows, Work};

use serde::Deserialize;

use crate::BenchError;

/// The tables are part of the program, so that it needs no checkout.
const CPU: &str = include_str!("../../peers/cpu_shapes.json");
const KERNELS: &str = include_str!("../../peers/op_shapes.json");

/// A layer by its name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Case {
    /// Its name, unique in its table.
    pub name: String,
    /// What is computed.
    #[serde(flatten)]
    pub work: Work,
}

/// The layers for a CPU: those of a small SVD-like UNet (widths 128 to 512, 8 frames, 32×32 latents), and some of the full one.
///
/// # Errors
/// If the table cannot be read.
pub fn cpu() -> Result<Vec<Case>, BenchError> {
    read(CPU)
}

/// The layers of Stable Video Diffusion and of Stable Diffusion, as a GPU runs them.
///
/// # Errors
/// If the table cannot be read.
pub fn kernels() -> Result<Vec<Case>, BenchError> {
    read(KERNELS)
}

/// The same, cut down to what a CPU computes in milliseconds.
///
/// # Errors
/// If the table cannot be read.
pub fn reduced_kernels() -> Result<Vec<Case>, BenchError> {
    Ok(kernels()?.into_iter().map(|case| Case { work: case.work.reduced(), ..case }).collect())
}

/// The same for the promised figures: what a CPU computes in milliseconds as it is, and the rest cut down, which its name says.
///
/// # Errors
/// If the table cannot be read.
pub fn kernels_for_cpu() -> Result<Vec<Case>, BenchError> {
    let cut = |case: Case| match case.work {
        Work::Attention { .. } | Work::SamplerStep(_) => case,
        work => Case { name: format!("{}, reduced", case.name), work: work.reduced() },
    };
    Ok(kernels()?.into_iter().map(cut).collect())
}

/// Whether a case's name is this one, or this one with what was cut down after a comma.
pub(crate) fn is_case(name: &str, base: &str) -> bool {
    name.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with(", "))
}

fn read(table: &str) -> Result<Vec<Case>, BenchError> {
    serde_json::from_str(table).map_err(BenchError::Table)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kinora_cpu::CpuOps;
    use kinora_cuda::{Architecture, Chip, CudaOptions, Planned};
    use kinora_graph::DType;

    use super::*;

    /// The protocol adds fields of its own to a layer's request, and would overwrite those of the same names.
    #[test]
    fn a_layers_request_leaves_the_protocols_fields_alone() {
        for case in kernels().unwrap().into_iter().chain(cpu().unwrap()) {
            let request = case.work.peer_request();
            for field in ["do", "window", "result", "tensors", "copies"] {
                assert!(request.get(field).is_none(), "{field} of {}", case.name);
            }
        }
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_is_a_graph() {
        for table in [cpu().unwrap(), kernels().unwrap(), reduced_kernels().unwrap()] {
            let names: BTreeSet<&str> = table.iter().map(|case| case.name.as_str()).collect();
            assert_eq!(names.len(), table.len());
            for case in &table {
                for dtype in [DType::F32, DType::F16] {
                    let graph = case.work.graph(&case.name, dtype).unwrap();
                    assert!(graph.outputs().iter().any(|output| output.name == "y"), "{}", case.name);
                }
            }
        }
    }

    #[test]
    fn a_gpu_runs_every_case_as_one_call_unless_something_precedes_it() {
        for architecture in [Architecture::TURING, Architecture::AMPERE, Architecture::HOPPER] {
            let options = CudaOptions::new(Chip::typical(architecture), CpuOps::shared());
            for case in kernels().unwrap() {
                let graph = case.work.graph(&case.name, DType::F16).unwrap();
                let planned = Planned::new(&graph, &options).unwrap();
                let mut calls = 0;
                planned
                    .for_each_call(|_| {
                        calls += 1;
                        Ok(())
                    })
                    .unwrap();
                // A norm in front of a product is a kernel of its own, and gradients are those of an attention that runs first.
                let two = ["normed", "backward"].iter().any(|part| case.name.contains(part));
                let expected = if two { 2 } else { 1 };
                assert_eq!(calls, expected, "{} on {architecture}", case.name);
            }
        }
    }

    #[test]
    fn reduced_cases_are_small() {
        for case in reduced_kernels().unwrap() {
            let graph = case.work.graph(&case.name, DType::F32).unwrap();
            assert!(graph.step_flops() < 3_000_000_000, "{}: {}", case.name, graph.step_flops());
        }
    }

    #[test]
    fn work_is_counted_as_on_paper() {
        let case = |name: &str| kernels().unwrap().into_iter().find(|case| case.name == name).unwrap();
        let flops = |name: &str| case(name).work.graph(name, DType::F16).unwrap().step_flops() as f64;
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 0.02;
        assert!(close(flops("conv.svd_spatial0"), 2.0 * 28.0 * 72.0 * 128.0 * 320.0 * 320.0 * 9.0));
        assert!(close(flops("attention.svd_spatial0"), 4.0 * 28.0 * 5.0 * 9216.0 * 9216.0 * 64.0));
        assert!(close(flops("attention.svd_temporal0"), 4.0 * 18432.0 * 5.0 * 14.0 * 14.0 * 64.0));
        assert!(close(flops("linear.svd_qkv0"), 2.0 * 258_048.0 * 320.0 * 960.0));
        // Queries, keys, values and the result once each, in f16.
        let graph = case("attention.sd0").work.graph("attention", DType::F16).unwrap();
        assert_eq!(bytes(&graph), 4 * 2 * 2 * 4096 * 8 * 40);
    }
}
