//! The time of networks, launch by launch.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use kinora_cpu::CpuOps;
use kinora_cuda::{
    CountedCall, CudaError, CudaOptions, Planned,
    compiler::CompilerOptions,
    simulation::{CallPrediction, SimulatedBench},
};
use kinora_graph::{Graph, Phase, ValueId};
use kinora_ptx::{Calibration, ChipSpec, Prediction, Resource};
use kinora_runtime::RunError;
use rayon::prelude::*;
use serde::Serialize;

use super::{ObservePrediction, PredictionProgress, PredictionStage};
use crate::{
    device::{OpenDeviceError, start_threads},
    image_to_video::{Built, GenerateError, Stage},
};

/// What a network is predicted to take.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct NetworkPrediction {
    /// The network.
    pub name: &'static str,
    /// Where it runs.
    pub stage: Stage,
    /// How often it runs.
    pub runs: usize,
    /// Seconds of all runs, with what is computed once before them.
    pub seconds: f64,
    /// Seconds of what is computed once.
    pub once_seconds: f64,
    /// Seconds of a run.
    pub run_seconds: f64,
    /// Launches of a run.
    pub launches: usize,
    /// Floating-point operations of all runs, with those of what is computed once.
    pub flops: u64,
    /// By kind of layer, the longest first.
    pub kinds: Vec<KindPrediction>,
    /// The layers that differ by more than their names, in the order of the first of each.
    pub calls: Vec<LayerPrediction>,
}

/// What layers that are alike are predicted to take.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LayerPrediction {
    /// The first of them.
    pub layer: String,
    /// The kind.
    pub kind: &'static str,
    /// How it runs: the name of the kernel that was chosen.
    pub kernel: String,
    /// How many there are before the first run.
    pub once: usize,
    /// How many there are in a run.
    pub each: usize,
    /// Its launches.
    pub launches: usize,
    /// Seconds of one.
    pub seconds: f64,
    /// What limits the longest of its launches.
    pub limit: Resource,
}

/// What the layers of a kind take in a network, over all of its runs.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KindPrediction {
    /// The kind: `conv`, `linear`, `group_norm` …
    pub kind: &'static str,
    /// Layers of this kind that run.
    pub calls: usize,
    /// Seconds.
    pub seconds: f64,
    /// Their share of the network's time.
    pub share: f64,
    /// What limits them, by shares of their time, the largest first.
    pub limits: Vec<LimitShare>,
}

/// What limits some launches.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct LimitShare {
    /// The resource.
    pub resource: Resource,
    /// The share of their time that launches limited by it take.
    pub share: f64,
}

/// A network whose calls are known.
struct Counted {
    name: &'static str,
    stage: Stage,
    runs: usize,
    graph: Graph,
    /// Each with the place of its prediction.
    calls: Vec<(CountedCall, usize)>,
}

fn failed(error: CudaError) -> GenerateError {
    OpenDeviceError::from(RunError::from(error)).into()
}

/// Predicts some networks on a chip. Launches that are alike are predicted once.
pub(super) fn predict(
    built: Vec<Built>,
    chip: &ChipSpec,
    calibration: &Calibration,
    observe: &ObservePrediction<'_>,
) -> Result<Vec<NetworkPrediction>, GenerateError> {
    start_threads()?;
    let compiler = CompilerOptions::from_environment();
    let bench = SimulatedBench::of_profile(chip.clone(), compiler).map_err(failed)?;
    let (counted, distinct) = count(built, &bench)?;
    compile(&distinct, &bench, observe)?;
    let predictions = simulate(&distinct, &bench, calibration, observe)?;
    let following = calibration.following_seconds.unwrap_or(chip.launch_seconds / 4.0);
    let first = calibration.launch_seconds.unwrap_or(chip.launch_seconds);
    Ok(counted.into_iter().map(|network| sum(network, &predictions, (first, following))).collect())
}

/// Plans the networks for the chip; gives their calls, and those that differ by more than their names.
fn count(
    built: Vec<Built>,
    bench: &SimulatedBench,
) -> Result<(Vec<Counted>, Vec<CountedCall>), GenerateError> {
    let mut distinct: Vec<CountedCall> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut counted = Vec::new();
    for Built { name, stage, runs, graph } in built {
        let options = CudaOptions::new(bench.chip().clone(), CpuOps::shared());
        let planned = Planned::new(&graph, &options).map_err(failed)?;
        let mut calls = Vec::new();
        for call in planned.counted_calls().map_err(failed)? {
            let place = *places.entry(call.with(|call| call.signature())).or_insert_with(|| {
                distinct.push(call.clone());
                distinct.len() - 1
            });
            calls.push((call, place));
        }
        counted.push(Counted { name, stage, runs, graph: planned.graph().clone(), calls });
    }
    Ok((counted, distinct))
}

fn compile(
    calls: &[CountedCall],
    bench: &SimulatedBench,
    observe: &ObservePrediction<'_>,
) -> Result<(), GenerateError> {
    let mut kernels = Vec::new();
    for call in calls {
        kernels.extend(call.kernels().map_err(failed)?);
    }
    kernels.sort_unstable();
    kernels.dedup();
    let stopped = AtomicUsize::new(0);
    let compiled = bench.compile(&kernels, &|one| {
        let progress =
            PredictionProgress { stage: PredictionStage::Compile, done: one.done, total: one.total };
        if observe(&progress).is_break() {
            stopped.fetch_add(1, Ordering::Relaxed);
        }
    });
    compiled.map_err(failed)?;
    if stopped.into_inner() > 0 { Err(GenerateError::Cancelled) } else { Ok(()) }
}

fn simulate(
    calls: &[CountedCall],
    bench: &SimulatedBench,
    calibration: &Calibration,
    observe: &ObservePrediction<'_>,
) -> Result<Vec<CallPrediction>, GenerateError> {
    let done = AtomicUsize::new(0);
    let tell = |done| {
        let progress = PredictionProgress { stage: PredictionStage::Simulate, done, total: calls.len() };
        if observe(&progress).is_break() { Err(GenerateError::Cancelled) } else { Ok(()) }
    };
    tell(0)?;
    calls
        .par_iter()
        .map(|counted| {
            let prediction = counted.with(|call| bench.predict(call, &*counted.implementation, calibration));
            let prediction = prediction.map_err(failed)?;
            tell(done.fetch_add(1, Ordering::Relaxed) + 1)?;
            Ok(prediction)
        })
        .collect()
}

/// What the layers of a kind take so far.
#[derive(Default)]
struct Kind {
    calls: usize,
    seconds: f64,
    limits: BTreeMap<&'static str, (Resource, f64)>,
}

/// The times of a network from those of its launches. In a network, every launch but the first follows another.
fn sum(
    network: Counted,
    predictions: &[CallPrediction],
    (first, following): (f64, f64),
) -> NetworkPrediction {
    let Counted { name, stage, runs, graph, calls } = network;
    let mut kinds: BTreeMap<&'static str, Kind> = BTreeMap::new();
    let (mut once, mut each, mut launches) = (0.0, 0.0, 0);
    let mut layers = Vec::new();
    for (call, place) in &calls {
        let prediction = &predictions[*place];
        let kind = kinds.entry(call.op.kind()).or_default();
        let times = (call.clip + call.step * runs) as f64;
        kind.calls += call.clip + call.step * runs;
        launches += call.step * prediction.launches.len();
        let of_launch = |launch: &Prediction| launch.seconds - launch.launch_seconds + following;
        for (_, launch) in &prediction.launches {
            let seconds = of_launch(launch);
            once += seconds * call.clip as f64;
            each += seconds * call.step as f64;
            kind.seconds += seconds * times;
            let limit = kind.limits.entry(launch.limiter.describe()).or_insert((launch.limiter, 0.0));
            limit.1 += seconds * times;
        }
        let longest = prediction.launches.iter().map(|(_, launch)| launch);
        let longest = longest.max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        layers.push(LayerPrediction {
            layer: call.layer.clone(),
            kind: call.op.kind(),
            kernel: call.implementation.name(),
            once: call.clip,
            each: call.step,
            launches: prediction.launches.len(),
            seconds: prediction.launches.iter().map(|(_, launch)| of_launch(launch)).sum(),
            limit: longest.map_or(Resource::Launch, |launch| launch.limiter),
        });
    }
    let begin = |seconds: f64| if seconds > 0.0 { seconds + first - following } else { 0.0 };
    let (once_seconds, run_seconds) = (begin(once), begin(each));
    let seconds = once_seconds + run_seconds * runs as f64;
    let mut kinds: Vec<KindPrediction> = kinds
        .into_iter()
        .map(|(kind, Kind { calls, seconds: own, limits })| {
            let mut limits: Vec<LimitShare> = limits
                .into_values()
                .map(|(resource, limited)| LimitShare { resource, share: limited / own })
                .collect();
            limits.sort_by(|a, b| b.share.total_cmp(&a.share));
            KindPrediction { kind, calls, seconds: own, share: own / seconds, limits }
        })
        .collect();
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let flops = graph.step_flops().saturating_mul(runs as u64).saturating_add(once_flops(&graph));
    NetworkPrediction {
        name,
        stage,
        runs,
        seconds,
        once_seconds,
        run_seconds,
        launches,
        flops,
        kinds,
        calls: layers,
    }
}

/// Floating-point operations before the first run.
fn once_flops(graph: &Graph) -> u64 {
    let phases = graph.phases();
    let once =
        |outputs: &[ValueId]| outputs.iter().map(|value| phases[value.index()]).max() == Some(Phase::Clip);
    let nodes = graph.nodes().iter().filter(|node| once(&node.outputs));
    nodes.fold(0, |sum: u64, node| sum.saturating_add(graph.node_flops(node)))
}
