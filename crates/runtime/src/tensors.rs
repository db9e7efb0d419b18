//! Tensors by name, and the checks on those given to a graph.

use std::collections::HashMap;

use kinora_graph::{Graph, Parameters, Phase, Source, Tensor, TensorType, Value, tensor::AlignedBytes};

use crate::RunError;

/// Tensors by name: the inputs and results of a graph.
pub type Tensors = HashMap<String, Tensor>;

/// Refuses names that are not inputs of these phases: they would otherwise be ignored silently.
///
/// # Errors
/// With the first such name.
pub fn refuse_unknown(graph: &Graph, phases: &[Phase], inputs: &Tensors) -> Result<(), RunError> {
    let declared = |name: &str| {
        let source = graph.inputs().iter().map(|&id| graph.value(id)).find(|value| value.name == name)?;
        if let Source::Input(phase) = source.source { Some(phase) } else { None }
    };
    let taken = |name: &str| declared(name).is_some_and(|phase| phases.contains(&phase));
    // The first by name, so that the error is the same every time.
    let Some(name) = inputs.keys().filter(|name| !taken(name)).min() else { return Ok(()) };
    Err(match declared(name) {
        Some(phase) => RunError::OtherPhase { name: name.clone(), phase },
        None => RunError::UnknownInput(name.clone()),
    })
}

/// Allocates memory and frees it again: if there is not enough, the allocation that follows would abort the process.
///
/// # Errors
/// If there is not enough.
pub fn reserve(bytes: usize) -> Result<(), RunError> {
    AlignedBytes::try_zeroed(bytes).map(drop).ok_or(RunError::OutOfMemory { bytes })
}

/// A tensor of zeros.
///
/// # Errors
/// If there is not enough memory.
pub fn zeros(ty: TensorType) -> Result<Tensor, RunError> {
    reserve(ty.checked_bytes().unwrap_or(usize::MAX))?;
    Ok(Tensor::zeros(ty))
}

/// The tensor given for an input.
///
/// # Errors
/// If there is none, or it has another type.
pub fn input<'a>(value: &Value, inputs: &'a Tensors) -> Result<&'a Tensor, RunError> {
    let tensor = inputs
        .get(&value.name)
        .ok_or_else(|| RunError::MissingInput { name: value.name.clone(), ty: value.ty.clone() })?;
    check_type(value, tensor)?;
    Ok(tensor)
}

/// The tensor of a parameter.
///
/// # Errors
/// If it is missing, cannot be read, has another type, or holds a NaN or an infinity.
pub fn parameter(value: &Value, parameters: &dyn Parameters) -> Result<Tensor, RunError> {
    let tensor = parameters
        .parameter(&value.name, &value.ty)
        .map_err(|source| RunError::Parameter { name: value.name.clone(), source })?
        .ok_or_else(|| RunError::MissingParameter { name: value.name.clone(), ty: value.ty.clone() })?;
    check_type(value, &tensor)?;
    match tensor.first_non_finite() {
        Some(index) => Err(RunError::NonFinite { name: value.name.clone(), index }),
        None => Ok(tensor),
    }
}

fn check_type(value: &Value, tensor: &Tensor) -> Result<(), RunError> {
    if *tensor.ty() == value.ty {
        return Ok(());
    }
    Err(RunError::WrongType {
        name: value.name.clone(),
        expected: value.ty.clone(),
        got: tensor.ty().clone(),
    })
}
