//! Inputs of a network whose speed alone matters.

use kinora_graph::{DType, Graph, Phase, Source, Tensor, tensor::TensorError};
use kinora_models::synthetic::uniform;
use kinora_runtime::Tensors;

/// Inputs of a phase: random floats and bytes, and zeros for the rest.
pub fn random(graph: &Graph, phase: Phase) -> Result<Tensors, TensorError> {
    let mut tensors = Tensors::new();
    for &id in graph.inputs() {
        let value = graph.value(id);
        if value.source != Source::Input(phase) {
            continue;
        }
        let tensor = if value.ty.dtype.is_float() {
            let numbers: Vec<f32> =
                uniform(&value.name).map(|x| x as f32).take(value.ty.elements()).collect();
            Tensor::from_f32(value.ty.dtype, value.ty.shape.clone(), &numbers)?
        } else if value.ty.dtype == DType::U8 {
            let byte = |x: f64| (127.5 + 127.5 * x) as u8;
            let bytes: Vec<u8> = uniform(&value.name).map(byte).take(value.ty.elements()).collect();
            Tensor::from_slice(value.ty.shape.clone(), &bytes)?
        } else {
            Tensor::zeros(value.ty.clone())
        };
        tensors.insert(value.name.clone(), tensor);
    }
    Ok(tensors)
}
