//! A network of your own: built with `GraphBuilder`, optimised, planned and run.
//!
//!     cargo run --release -p kinora --example own_network

use std::{collections::HashMap, error::Error};

use kinora::{
    Device,
    profile::Profiler,
    runtime::{KernelSet, LoadContext, Tensors, Tuning},
};
use kinora_graph::{DType, Graph, GraphBuilder, GraphError, Phase, Tensor, TensorType, op::Activation};

const BATCH: usize = 4;
const FEATURES: usize = 16;
const HIDDEN: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let graph = network()?;
    // The first GPU that works, or the CPU. `Device::Cpu` and `Device::Cuda(0)` ask for one of them.
    let backend = Device::Auto.open(KernelSet::default(), Tuning::default())?;
    println!("on {}", backend.describe());

    // The plan is known before any weight is read: every buffer's place, and so the memory that the network will take.
    let planned = backend.plan(&graph, None)?;
    println!("{} of {} ops are left after the passes", planned.graph().nodes().len(), graph.nodes().len());
    let plan = planned.plan();
    println!("{} bytes of weights, {} bytes of activations", plan.weight_bytes(), plan.arena_bytes());

    // Anything that gives tensors by name can be a source of weights: a map, a safetensors file, your own `Parameters`.
    let context = LoadContext { profiler: &Profiler::off(), compiled: &|_, _| {}, shared: None, kept: &[] };
    let mut network = planned.load(&weights()?, &context)?;
    let x: Vec<f32> = (0..BATCH * FEATURES).map(|i| (i as f32 * 0.37).sin()).collect();
    let inputs = Tensors::from([("x".to_owned(), Tensor::from_slice([BATCH, FEATURES], &x)?)]);
    let results = network.run_step(&inputs)?;
    println!("the first row of y is {:.3?}", &results["y"].to_f32()[..FEATURES]);
    Ok(())
}

/// A residual block: `y = x + down(silu(up(x)))`. The passes fuse its four ops into two.
fn network() -> Result<Graph, GraphError> {
    let f32 = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let mut g = GraphBuilder::new("residual block");
    let x = g.input("x", f32(&[BATCH, FEATURES]), Phase::Step)?;
    let up = g.parameter("up.weight", f32(&[HIDDEN, FEATURES]))?;
    let down = g.parameter("down.weight", f32(&[FEATURES, HIDDEN]))?;
    let hidden = g.linear("up", x, up, None)?;
    let hidden = g.activate("silu", hidden, Activation::Silu)?;
    let change = g.linear("down", hidden, down, None)?;
    let y = g.add("residual", x, change)?;
    g.output("y", y)?;
    Ok(g.finish())
}

/// Weights that are made rather than read.
fn weights() -> Result<HashMap<String, Tensor>, Box<dyn Error>> {
    let tensor = |rows: usize, columns: usize| {
        let values: Vec<f32> = (0..rows * columns).map(|i| (i as f32 * 0.73).cos() * 0.2).collect();
        Tensor::from_slice([rows, columns], &values)
    };
    Ok(HashMap::from([
        ("up.weight".to_owned(), tensor(HIDDEN, FEATURES)?),
        ("down.weight".to_owned(), tensor(FEATURES, HIDDEN)?),
    ]))
}
