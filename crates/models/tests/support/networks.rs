//! Running networks and comparing them with what diffusers made of the same numbers.

use std::{collections::BTreeMap, fs, path::PathBuf};

use kinora_cpu::{Options, Program, Tensors, reference};
use kinora_graph::{DType, Graph, Parameters, Tensor, Value};
use kinora_models::synthetic::{Synthetic, uniform};
use safetensors::SafeTensors;

/// A file of a folder of fixtures.
pub fn fixture(folder: &str, file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder).join(file)
}

/// The text of a fixture.
pub fn text(folder: &str, file: &str) -> String {
    fs::read_to_string(fixture(folder, file)).unwrap()
}

/// The f32 tensors of a fixture, by name.
pub fn tensors(folder: &str, file: &str) -> BTreeMap<String, Tensor> {
    let bytes = fs::read(fixture(folder, file)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |view: &safetensors::tensor::TensorView<'_>| {
        assert_eq!(view.dtype(), safetensors::Dtype::F32);
        let numbers: Vec<f32> =
            view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        Tensor::from_slice(view.shape(), &numbers).unwrap()
    };
    file.tensors().iter().map(|(name, view)| (name.clone(), tensor(view))).collect()
}

/// An input whose numbers are made from its name, as the scripts make it.
pub fn given(dtype: DType, name: &str, shape: &[usize], factor: f32) -> Tensor {
    let count = shape.iter().product();
    let numbers: Vec<f32> = uniform(name).map(|u| u as f32 * factor).take(count).collect();
    Tensor::from_f32(dtype, shape, &numbers).unwrap()
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

/// The results of a graph whose inputs are all given at once.
pub fn run(graph: &Graph, inputs: &Tensors, way: Way) -> Tensors {
    let program = |optimise| {
        let options = Options { optimise, poison: Some(0xFF), ..Options::default() };
        Program::new(graph, &Synthetic, options).unwrap().run(inputs).unwrap()
    };
    match way {
        Way::Optimised => program(true),
        Way::AsBuilt => program(false),
        Way::Reference => {
            let weight = |value: &Value| Synthetic.parameter(&value.name, &value.ty).unwrap().unwrap();
            let weights = graph.parameters().map(|(_, value)| (value.name.clone(), weight(value))).collect();
            reference::evaluate(graph, &weights, inputs).unwrap()
        }
    }
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
