//! Golden files of networks: the cases, the results that are expected, and the inputs, which are made from their names.

use std::path::Path;

use kinora_cpu::{Options, Program, Tensors, reference};
use kinora_graph::{DType, Graph, Parameters, Tensor, TensorType};
use kinora_models::synthetic::{Synthetic, uniform};
use safetensors::{Dtype, SafeTensors};

/// The cases of one network.
pub struct Fixture {
    /// What the script that made the file calls its cases.
    pub cases: Vec<serde_json::Value>,
    tensors: Vec<u8>,
}

impl Fixture {
    /// Reads `<name>.json` and `<name>.safetensors`.
    pub fn load(name: &str) -> Fixture {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("fixtures");
        let cases = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let tensors = std::fs::read(folder.join(format!("{name}.safetensors"))).unwrap();
        Fixture { cases: serde_json::from_str(&cases).unwrap(), tensors }
    }

    /// A result that the other implementation gave.
    pub fn expected(&self, name: &str) -> Tensor {
        let file = SafeTensors::deserialize(&self.tensors).unwrap();
        let view = file.tensor(name).unwrap();
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::U8 => DType::U8,
            other => panic!("{name} is stored as {other:?}"),
        };
        Tensor::from_bytes(TensorType::new(dtype, view.shape()), view.data()).unwrap()
    }
}

/// A setting of a case that is a list of extents.
pub fn extents<const N: usize>(case: &serde_json::Value, setting: &str) -> [usize; N] {
    serde_json::from_value::<Vec<usize>>(case[setting].clone()).unwrap().try_into().unwrap()
}

/// A case's name.
pub fn name(case: &serde_json::Value) -> &str {
    case["name"].as_str().unwrap()
}

/// The graph's one input, made from the name that the script gave it.
pub fn input(graph: &Graph, case: &serde_json::Value) -> Tensors {
    let value = graph.value(graph.inputs()[0]);
    let values: Vec<f32> = uniform(&format!("{}/{}", name(case), value.name))
        .map(|x| x as f32)
        .take(value.ty.elements())
        .collect();
    let tensor = Tensor::from_f32(value.ty.dtype, value.ty.shape.clone(), &values).unwrap();
    Tensors::from([(value.name.clone(), tensor)])
}

/// Runs a graph on the fast code.
pub fn run(graph: &Graph, inputs: &Tensors, optimise: bool) -> Tensors {
    let options = Options { optimise, poison: Some(0xFF), ..Options::default() };
    Program::new(graph, &Synthetic, options).unwrap().run(inputs).unwrap()
}

/// Runs a graph on the reference.
pub fn run_reference(graph: &Graph, inputs: &Tensors) -> Tensors {
    let weight = |(_, value): (_, &kinora_graph::Value)| {
        (value.name.clone(), Synthetic.parameter(&value.name, &value.ty).unwrap().unwrap())
    };
    reference::evaluate(graph, &graph.parameters().map(weight).collect(), inputs).unwrap()
}

/// The graph with more results: values by the names of their nodes.
pub fn with_outputs(graph: &Graph, nodes: &[&str]) -> Graph {
    let mut json: serde_json::Value = serde_json::from_str(&graph.to_json()).unwrap();
    let outputs = json["outputs"].as_array_mut().unwrap();
    outputs.extend(nodes.iter().map(|node| serde_json::json!({ "name": node, "value": node })));
    Graph::from_json(&json.to_string()).unwrap()
}

/// The largest difference of two elements; infinite where one is not a number.
pub fn largest_error(expected: &Tensor, got: &Tensor) -> f32 {
    assert_eq!(expected.shape(), got.shape());
    let pairs = expected.to_f32().into_iter().zip(got.to_f32());
    pairs.map(|(e, g)| (e - g).abs()).fold(0.0, |a, b| if b.is_nan() { f32::INFINITY } else { a.max(b) })
}

/// The length of the difference over the length of what was expected.
pub fn distance(expected: &Tensor, got: &Tensor) -> f64 {
    assert_eq!(expected.shape(), got.shape());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let (expected, got) = (expected.to_f32(), got.to_f32());
    let difference: f64 = expected.iter().zip(got).map(|(e, g)| square(e - g)).sum();
    (difference / expected.iter().copied().map(square).sum::<f64>()).sqrt()
}
