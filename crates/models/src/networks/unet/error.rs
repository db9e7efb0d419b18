//! What can be wrong with a UNet.

use kinora_graph::{GraphError, tensor::TensorError};

/// Why a UNet cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum UnetError {
    /// The text is not the JSON of a configuration.
    #[error("the UNet's config.json cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The configuration belongs to another network.
    #[error("the UNet's config.json is that of a {class}; a {expected} is needed")]
    Class {
        /// What it names.
        class: String,
        /// What it must name.
        expected: &'static str,
    },
    /// A field has a value that no network can be built from.
    #[error("the UNet's {field} {problem}")]
    Invalid {
        /// The field of `config.json`, or the argument.
        field: &'static str,
        /// What it is and what it must be.
        problem: String,
    },
    /// A constant of the graph could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The graph refused an op: sizes that do not fit each other, or tensors too large to exist.
    #[error(transparent)]
    Graph(#[from] GraphError),
}
