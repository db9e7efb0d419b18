//! Weights that networks have in common, on any backend.

use std::collections::HashMap;

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Tensor, TensorType};
use kinora_profile::Profiler;
use kinora_runtime::{Backend, LoadContext, Network, SharedWeights, Tensors};

const CHANNELS: usize = 64;

/// Two linear layers on so many rows. `second` names the weight of the second one.
fn graph(rows: usize, second: &str) -> Graph {
    let mut g = GraphBuilder::new("layers");
    let x = g.input("x", TensorType::new(DType::F32, [rows, CHANNELS]), Phase::Step).unwrap();
    let weight = TensorType::new(DType::F32, [CHANNELS, CHANNELS]);
    let first = g.parameter("first", weight.clone()).unwrap();
    let x = g.linear("first.product", x, first, None).unwrap();
    let second = g.parameter(second, weight).unwrap();
    let y = g.linear("second.product", x, second, None).unwrap();
    g.output("y", y).unwrap();
    g.finish()
}

fn numbers(shape: [usize; 2], seed: usize) -> Tensor {
    let value = |i: usize| ((i * 37 + seed * 101) % 23) as f32 / 23.0 - 0.5;
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(value).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

/// Loads networks with weights in common and checks what they hold and what they compute.
pub fn check(backend: &dyn Backend) {
    let square = [CHANNELS; 2];
    let named = [("first", 1), ("second", 2), ("other", 3)];
    let parameters: HashMap<String, Tensor> =
        named.iter().map(|&(name, seed)| (name.to_owned(), numbers(square, seed))).collect();
    let load = |rows, second, shared: Option<&SharedWeights>| -> Box<dyn Network> {
        let context = LoadContext { profiler: &Profiler::off(), compiled: &|_, _| {}, shared, kept: &[] };
        backend.plan(&graph(rows, second), None).unwrap().load(&parameters, &context).unwrap()
    };
    // It is known before they are loaded.
    let missing = |holder: (usize, &str), reader: (usize, &str)| {
        let plan = |(rows, second)| backend.plan(&graph(rows, second), None).unwrap();
        SharedWeights::missing_bytes(&*plan(holder), &*plan(reader))
    };
    assert_eq!(missing((2, "second"), (5, "second")), 0);
    assert_eq!(missing((2, "second"), (5, "other")), CHANNELS * CHANNELS * 4);
    let run = |network: &mut dyn Network, rows| {
        let inputs: Tensors = [("x".to_owned(), numbers([rows, CHANNELS], 7))].into();
        network.run_step(&inputs).unwrap()["y"].to_f32()
    };
    let alone = |rows, second| run(&mut *load(rows, second, None), rows);
    let of_one = load(1, "second", None).memory().weights / 2;
    assert!(of_one > 0);

    let shared = SharedWeights::default();
    let mut few = load(2, "second", Some(&shared));
    assert_eq!(few.memory().weights, 2 * of_one);
    let mut many = load(5, "second", Some(&shared));
    assert_eq!(many.memory().weights, 0, "all of its weights were there");
    let mut other = load(5, "other", Some(&shared));
    assert_eq!(other.memory().weights, of_one, "one of its weights was there");
    assert_eq!(run(&mut *few, 2), alone(2, "second"));
    // Weights outlive the network that read them.
    drop(few);
    assert_eq!(run(&mut *many, 5), alone(5, "second"));
    assert_eq!(run(&mut *other, 5), alone(5, "other"));
    drop((many, other));
    assert_eq!(load(1, "second", Some(&shared)).memory().weights, 2 * of_one, "all were freed");
}
