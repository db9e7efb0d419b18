//! Tensors by name, and the checks on those that a graph is fed with.

use std::collections::HashMap;

use kinora_graph::{Graph, Parameters, Phase, Source, Tensor, TensorType, Value};

use crate::CpuError;

/// Values by name: what a graph is fed with and what it gives.
pub type Tensors = HashMap<String, Tensor>;

/// Refuses names that are no input of these phases: they would otherwise be left out in silence.
///
/// # Errors
/// With the first such name.
pub fn refuse_unknown(graph: &Graph, phases: &[Phase], inputs: &Tensors) -> Result<(), CpuError> {
    let declared = |name: &str| {
        let source = graph.inputs().iter().map(|&id| graph.value(id)).find(|value| value.name == name)?;
        if let Source::Input(phase) = source.source { Some(phase) } else { None }
    };
    let taken = |name: &str| declared(name).is_some_and(|phase| phases.contains(&phase));
    // The first by name, so that the error is the same every time.
    let Some(name) = inputs.keys().filter(|name| !taken(name)).min() else { return Ok(()) };
    Err(match declared(name) {
        Some(phase) => CpuError::OtherPhase { name: name.clone(), phase },
        None => CpuError::UnknownInput(name.clone()),
    })
}

/// Asks for memory and gives it back, so that what is allocated next does not end the process for want of it.
pub(crate) fn reserve(bytes: usize) -> Result<(), CpuError> {
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| CpuError::OutOfMemory { bytes })
}

/// A tensor of zeros.
pub(crate) fn zeros(ty: TensorType) -> Result<Tensor, CpuError> {
    reserve(ty.checked_bytes().unwrap_or(usize::MAX))?;
    Ok(Tensor::zeros(ty))
}

/// The tensor given for an input.
///
/// # Errors
/// Where there is none, or it is of another type.
pub fn input<'a>(value: &Value, inputs: &'a Tensors) -> Result<&'a Tensor, CpuError> {
    let tensor = inputs
        .get(&value.name)
        .ok_or_else(|| CpuError::MissingInput { name: value.name.clone(), ty: value.ty.clone() })?;
    check_type(value, tensor)?;
    Ok(tensor)
}

/// The tensor of a parameter, of finite numbers alone.
pub(crate) fn parameter(value: &Value, parameters: &dyn Parameters) -> Result<Tensor, CpuError> {
    let tensor = parameters
        .parameter(&value.name, &value.ty)
        .map_err(|source| CpuError::Parameter { name: value.name.clone(), source })?
        .ok_or_else(|| CpuError::MissingParameter { name: value.name.clone(), ty: value.ty.clone() })?;
    check_type(value, &tensor)?;
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
