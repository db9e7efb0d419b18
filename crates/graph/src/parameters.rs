//! Where the weights of a graph come from: a map in memory, or a file whose tensors are read on demand.

use std::{collections::HashMap, error::Error};

use crate::{SharedError, Tensor, TensorType};

/// A source of weights that is asked for one parameter at a time, so that a model never has to be in memory twice. Several threads may
/// ask at once.
pub trait Parameters: Sync {
    /// The tensor of the parameter `name`, which the graph declares as `ty`; `None` if the source has none of that
    /// name. The caller checks the type of what it gets.
    ///
    /// # Errors
    /// If the source has the tensor but cannot provide it.
    fn parameter(&self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, ParameterError>;
}

/// Why a source could not provide a tensor that it has. The source's own error is its [`source`](Error::source).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct ParameterError(SharedError);

impl ParameterError {
    /// Keeps the error of a source of weights, or a sentence.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        ParameterError(SharedError::new(cause))
    }
}

impl Parameters for HashMap<String, Tensor> {
    fn parameter(&self, name: &str, _: &TensorType) -> Result<Option<Tensor>, ParameterError> {
        Ok(self.get(name).cloned())
    }
}
