//! Tensors by name, and the checks on those that a graph is fed with.

use std::collections::HashMap;

use kinora_graph::{Graph, Tensor, Value};

use crate::CpuError;

/// Values by name: what a graph is fed with and what it gives.
pub type Tensors = HashMap<String, Tensor>;

/// Refuses names that are no input of the graph: a misspelt one would otherwise be left out in silence.
pub(crate) fn refuse_unknown(graph: &Graph, inputs: &Tensors) -> Result<(), CpuError> {
    let known = |name: &str| graph.inputs().iter().any(|&id| graph.value(id).name == name);
    // The first by name, so that the error is the same every time.
    match inputs.keys().filter(|name| !known(name)).min() {
        Some(name) => Err(CpuError::UnknownInput(name.clone())),
        None => Ok(()),
    }
}

/// The tensor given for an input.
pub(crate) fn input<'a>(value: &Value, inputs: &'a Tensors) -> Result<&'a Tensor, CpuError> {
    let tensor = inputs
        .get(&value.name)
        .ok_or_else(|| CpuError::MissingInput { name: value.name.clone(), ty: value.ty.clone() })?;
    check_type(value, tensor)?;
    Ok(tensor)
}

/// The tensor given for a parameter, of finite numbers alone.
pub(crate) fn parameter<'a>(value: &Value, parameters: &'a Tensors) -> Result<&'a Tensor, CpuError> {
    let tensor = parameters
        .get(&value.name)
        .ok_or_else(|| CpuError::MissingParameter { name: value.name.clone(), ty: value.ty.clone() })?;
    check_type(value, tensor)?;
    match tensor.first_non_finite() {
        Some(index) => Err(CpuError::NonFinite { name: value.name.clone(), index }),
        None => Ok(tensor),
    }
}

fn check_type(value: &Value, tensor: &Tensor) -> Result<(), CpuError> {
    if *tensor.ty() == value.ty {
        return Ok(());
    }
    Err(CpuError::WrongType {
        name: value.name.clone(),
        expected: value.ty.clone(),
        got: tensor.ty().clone(),
    })
}
