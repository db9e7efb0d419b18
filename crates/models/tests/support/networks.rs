//! Running networks with synthetic weights and inputs, and comparing their results.

use std::collections::BTreeMap;

use kinora_cpu::{
    CpuTarget, Options, Program,
    reference::{self, ReferenceEvaluator},
};
use kinora_graph::{Graph, Node, Op, Parameters, Phase, Tensor, TensorType, Value, passes};
use kinora_models::synthetic::{Synthetic, uniform};
use kinora_runtime::Tensors;

/// An input whose numbers are made from its name, as the scripts make it, times a factor.
pub fn given(case: &str, name: &str, ty: &TensorType, factor: f32) -> Tensor {
    let numbers = uniform(&format!("{case}/{name}")).map(|u| u as f32 * factor);
    let numbers: Vec<f32> = numbers.take(ty.elements()).collect();
    Tensor::from_f32(ty.dtype, ty.shape.clone(), &numbers).unwrap()
}

/// Every input of a graph: the known ones, and the others made from their names.
pub fn inputs(graph: &Graph, case: &str, mut known: Tensors) -> Tensors {
    for value in graph.inputs().iter().map(|&id| graph.value(id)) {
        known.entry(value.name.clone()).or_insert_with(|| given(case, &value.name, &value.ty, 1.0));
    }
    known
}

/// A way to run a graph with synthetic weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The fast code after all passes.
    Optimised,
    /// The fast code on the graph as it was built.
    AsBuilt,
    /// Plain loops in f64 on the graph as it was built.
    Reference,
}

impl Way {
    /// The ways that run fast code.
    pub const FAST: [Way; 2] = [Way::Optimised, Way::AsBuilt];
    /// Every way.
    pub const ALL: [Way; 3] = [Way::Optimised, Way::AsBuilt, Way::Reference];
}

/// The fast code, with an arena that is no zeros to begin with. `optimise` asks for the passes.
pub fn program(graph: &Graph, optimise: bool) -> Program {
    let options = Options { optimise, poison: Some(0xFF), ..Options::default() };
    Program::new(graph, &Synthetic, options).unwrap()
}

/// The results of a graph whose inputs are all given at once.
pub fn run(graph: &Graph, inputs: &Tensors, way: Way) -> Tensors {
    match way {
        Way::Optimised => program(graph, true).run(inputs).unwrap(),
        Way::AsBuilt => program(graph, false).run(inputs).unwrap(),
        Way::Reference => {
            let weight = |value: &Value| Synthetic.parameter(&value.name, &value.ty).unwrap().unwrap();
            let weights = graph.parameters().map(|(_, value)| (value.name.clone(), weight(value))).collect();
            reference::evaluate(graph, &weights, inputs).unwrap()
        }
    }
}

/// The graph after all passes for the CPU.
pub fn optimised(graph: &Graph) -> Graph {
    passes::optimise_traced(graph, &CpuTarget::default(), Some(&ReferenceEvaluator)).unwrap().0
}

/// The nodes that run at every step.
pub fn step_nodes(graph: &Graph) -> Vec<&Node> {
    let phases = graph.phases();
    graph.nodes().iter().filter(|node| phases[node.outputs[0].index()] == Phase::Step).collect()
}

/// What every norm of a graph adds to its variances, by the norm's name.
pub fn norm_epsilons(graph: &Graph) -> BTreeMap<String, f32> {
    let epsilon = |node: &Node| match &node.op {
        Op::Norm(norm) => Some((node.name.clone(), norm.epsilon)),
        _ => None,
    };
    graph.nodes().iter().filter_map(epsilon).collect()
}

/// The graph with another result: that of a node, under the node's name.
pub fn with_output(graph: &Graph, node: &str) -> Graph {
    let mut json: serde_json::Value = serde_json::from_str(&graph.to_json()).unwrap();
    let output = serde_json::json!({ "name": node, "value": node });
    json["outputs"].as_array_mut().unwrap().push(output);
    Graph::from_json(&json.to_string()).unwrap()
}

/// The largest difference between two tensors of one shape; infinite where one is not a number.
pub fn largest_difference(expected: &Tensor, got: &Tensor) -> f32 {
    assert_eq!(expected.shape(), got.shape());
    let difference = |(a, b): (&f32, &f32)| if (a - b).is_finite() { (a - b).abs() } else { f32::INFINITY };
    expected.to_f32().iter().zip(&got.to_f32()).map(difference).fold(0.0, f32::max)
}

/// Panics where an element is further than `bar` from the one expected, and says how far the worst one was.
pub fn assert_close(label: &str, expected: &Tensor, got: &Tensor, bar: f32) {
    let worst = largest_difference(expected, got);
    println!("{label}: at most {worst:.1e} off");
    assert!(worst <= bar, "{label}: {worst:e} off, and {bar:e} is allowed");
}
