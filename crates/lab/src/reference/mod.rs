//! What must come out of a task: computed in f64 by something other than the kernel.

mod elementwise;
mod kernel;
mod python;
mod worker;

use std::path::PathBuf;

use crate::{
    expression::Scope,
    inputs::npy::Array,
    task::{Reference, Sizes, Task},
};

#[cfg(feature = "cuda")]
pub(crate) use python::time_on_gpu;
pub(crate) use python::{declared, imports_torch};
pub(crate) use worker::MORE_SECONDS;

/// The right results.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The numbers of each buffer that holds a result.
    pub results: Vec<Option<Vec<f64>>>,
    /// Floating-point operations for each element of the results, if they were counted.
    pub operations: Option<f64>,
}

/// Why there are no right results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reference cannot be computed: {0}")]
pub struct ReferenceError(pub String);

/// Computes the results for what buffers hold at the start. `None` if the task has no reference.
///
/// # Errors
/// If the reference fails, does not end, or gives something else than results of the right shape.
pub fn expected(
    task: &Task,
    sizes: &Sizes,
    scope: &Scope,
    given: &[Vec<u8>],
) -> Result<Option<Expected>, ReferenceError> {
    let wrong = |what: String| ReferenceError(what);
    match &task.reference {
        Reference::None => Ok(None),
        Reference::Expressions(expressions) => {
            elementwise::results(task, scope, given, expressions).map(Some).map_err(wrong)
        }
        Reference::Kernel { source, launch } => {
            kernel::results(task, scope, given, source, launch).map(Some).map_err(wrong)
        }
        Reference::Python { file, function, seconds } => {
            let results =
                python::results(task, sizes, scope, given, (file, function, *seconds)).map_err(wrong)?;
            Ok(Some(Expected { results, operations: None }))
        }
        Reference::Files(files) => from_files(task, scope, files).map(Some).map_err(wrong),
    }
}

fn from_files(task: &Task, scope: &Scope, files: &[(usize, PathBuf)]) -> Result<Expected, String> {
    let mut results = vec![None; task.buffers.len()];
    for (place, path) in files {
        let buffer = &task.buffers[*place];
        let array = Array::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let wanted = buffer.elements(scope).map_err(|error| error.to_string())?;
        let numbers = array.element.load(&array.bytes);
        if numbers.len() != wanted {
            return Err(format!(
                "{} has {} numbers, but {} has {wanted}",
                path.display(),
                numbers.len(),
                buffer.name
            ));
        }
        results[*place] = Some(numbers);
    }
    Ok(Expected { results, operations: None })
}
