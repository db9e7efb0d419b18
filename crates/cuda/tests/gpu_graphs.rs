//! Whole graphs on a GPU: random ones, as built and as fused, against the reference.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod gpu;

use kinora_cpu::reference;
use kinora_cuda::{CudaOptions, Planned, driver::Device, kernels::KernelSet};
use kinora_graph::{DType, Graph, Phase, Source, Tensor};
use kinora_testing::{
    compare::{close_beyond, distance},
    movement::{MOVEMENTS, bars_of_the_whole, movement_of_graph},
    random_graph::{random_graph, random_tensors},
};

/// Numbers that a seed determines, from which a graph is made.
fn numbers(seed: u32) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    (0..20 + next() as usize % 80).map(|_| next()).collect()
}

/// How a graph's results on the GPU differ from the reference's, where they do.
fn differs(device: &Device, graph: &Graph, kernels: KernelSet, seed: u64) -> Result<(), String> {
    let (parameters, inputs) = random_tensors(graph, seed);
    let options = CudaOptions {
        kernels,
        poison: Some(0xFF),
        ..CudaOptions::for_device(device, kinora_cpu::CpuOps::shared())
    };
    let planned = Planned::new(graph, &options).map_err(|error| error.to_string())?;
    let graph = planned.graph().clone();
    let mut program = planned.load(device, &parameters).map_err(|error| error.to_string())?;
    let results = program.run(&inputs).map_err(|error| error.to_string())?;
    let expected = reference::evaluate(&graph, &parameters, &inputs).map_err(|error| error.to_string())?;
    let movement = movement_of_graph(&graph, &parameters, &inputs);
    let bars = bars_of_the_whole(&graph, &parameters, &inputs);
    for (name, expected) in &expected {
        let got = &results[name];
        if expected.ty() != got.ty() {
            return Err(format!("{name} is {}, and {} was expected", got.ty(), expected.ty()));
        }
        match &bars {
            Some(bars) => {
                let distance = distance(&expected.to_f32(), &got.to_f32());
                if let Some(&bar) = bars.get(name)
                    && distance > bar
                {
                    return Err(format!("{name} is {distance:.1e} off, over {bar:.1e}"));
                }
            }
            None => close_beyond(MOVEMENTS * movement[name], expected, got)
                .map_err(|why| format!("{name}: {why}"))?,
        }
    }
    // A replay gives the same bytes.
    let of = |phase: Phase| {
        let ids = graph.inputs().iter().filter(|&&id| graph.value(id).source == Source::Input(phase));
        ids.map(|&id| graph.value(id).name.clone())
            .map(|name| (name.clone(), inputs[&name].clone()))
            .collect()
    };
    program.run_clip(&of(Phase::Clip)).map_err(|error| error.to_string())?;
    for _ in 0..2 {
        let again = program.run_step(&of(Phase::Step)).map_err(|error| error.to_string())?;
        let same = |(name, first): (&String, &Tensor)| again[name].bytes() == first.bytes();
        if !results.iter().all(same) {
            return Err("a replay gives other bytes".to_owned());
        }
    }
    Ok(())
}

#[test]
fn random_graphs_give_the_references_results() {
    let Some(device) = gpu::open() else { return };
    let count = std::env::var("KINORA_RANDOM_GRAPHS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let mut failures = Vec::new();
    for seed in 0..count {
        let dtype = [DType::F32, DType::F16, DType::F32, DType::BF16][seed as usize % 4];
        let graph = random_graph(&numbers(seed), dtype, &mut Vec::new()).unwrap();
        for kernels in [KernelSet::Fused, KernelSet::Baseline] {
            if let Err(why) = differs(&device, &graph, kernels, u64::from(seed)) {
                failures.push(format!("graph {seed} {dtype} {kernels:?}: {why}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
