//! The device that runs a stage's network.

use std::{ops::ControlFlow, sync::Arc};

use kinora::{
    device::Device,
    runtime::{Backend, KernelSet, LoadContext, Tensors, Tuning},
};
use kinora_graph::{Graph, Parameters, Phase, Source};
use kinora_profile::Profiler;

use crate::Failure;

/// Opens a device. `auto` is refused: a comparison must say which device it is for.
pub fn open(device: Device, tuning: Tuning) -> Result<Arc<dyn Backend>, Failure> {
    match device {
        Device::Auto => Err("--device must be cpu, cuda or cuda:N".into()),
        device => Ok(device.open(KernelSet::Fused, tuning)?),
    }
}

/// Runs a network once, and frees its weights and memory.
pub fn run(
    backend: &dyn Backend,
    graph: &Graph,
    weights: &dyn Parameters,
    inputs: &Tensors,
) -> Result<Tensors, Failure> {
    let mut planned = backend.plan(graph, None)?;
    if planned.tune(&mut |_| ControlFlow::Continue(()))? {
        planned = backend.plan(graph, None)?;
    }
    let context = LoadContext { profiler: &Profiler::off(), compiled: &|_, _| {}, shared: None, kept: &[] };
    let mut network = planned.load(weights, &context)?;
    let of = |phase: Phase| -> Tensors {
        let values = graph.inputs().iter().map(|&id| graph.value(id));
        let names = values.filter(|value| value.source == Source::Input(phase)).map(|value| &value.name);
        names.filter_map(|name| Some((name.clone(), inputs.get(name)?.clone()))).collect()
    };
    network.run_clip(&of(Phase::Clip))?;
    Ok(network.run_step(&of(Phase::Step))?)
}
