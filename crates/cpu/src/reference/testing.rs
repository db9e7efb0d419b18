//! Short forms for the tests of this folder.

use kinora_graph::{DType, Op, Tensor};

use super::run;

/// An f32 tensor.
pub(super) fn floats(shape: &[usize], elements: &[f32]) -> Tensor {
    Tensor::from_slice(shape, elements).unwrap()
}

/// An i32 tensor.
pub(super) fn ints(shape: &[usize], elements: &[i32]) -> Tensor {
    Tensor::from_slice(shape, elements).unwrap()
}

/// A u8 tensor.
pub(super) fn bytes(shape: &[usize], elements: &[u8]) -> Tensor {
    Tensor::from_slice(shape, elements).unwrap()
}

/// An f32 tensor of 1, 2, 3, …
pub(super) fn counting(shape: &[usize]) -> Tensor {
    let elements: Vec<f32> = (1..=shape.iter().product()).map(|i: usize| i as f32).collect();
    floats(shape, &elements)
}

/// An f32 tensor of scattered values in ±1, another for each seed.
pub(super) fn scattered(shape: &[usize], seed: usize) -> Tensor {
    let elements: Vec<f32> = (0..shape.iter().product())
        .map(|i: usize| ((i * 37 + seed * 53) % 101) as f32 / 50.0 - 1.0)
        .collect();
    floats(shape, &elements)
}

/// Runs an op that gives one result.
pub(super) fn run_one(op: Op, inputs: &[&Tensor]) -> Tensor {
    let mut results = run("layer", &op, inputs).unwrap();
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Runs an op on f32 operands, for its elements.
pub(super) fn values(op: Op, inputs: &[&Tensor]) -> Vec<f32> {
    let result = run_one(op, inputs);
    assert_eq!(result.dtype(), DType::F32);
    result.to_f32()
}

/// Whether results are the expected ones but for the rounding of the expected ones to f32 literals.
#[track_caller]
pub(super) fn assert_close(got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (i, (&g, &e)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(g) - e).abs() <= 1e-6 * e.abs().max(1.0), "element {i}: got {g}, expected {e}");
    }
}
