//! Inputs of a network whose speed alone matters.

use kinora_graph::{Graph, Phase, Source, Tensor, tensor::TensorError};
use kinora_models::synthetic::uniform;
use kinora_runtime::Tensors;

/// Inputs of a phase: random floats, and zeros for the rest.
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
        } else {
            Tensor::zeros(value.ty.clone())
        };
        tensors.insert(value.name.clone(), tensor);
    }
    Ok(tensors)
}
