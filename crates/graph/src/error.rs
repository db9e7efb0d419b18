//! What can be wrong with a graph.

use crate::{SharedError, TensorType, op::OpError};

/// Why a graph could not be built, read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An op refuses its operands.
    #[error("{layer}: {source}")]
    Layer {
        /// The layer's full name.
        layer: String,
        /// What the op says.
        source: OpError,
    },
    /// A layer refers to a value that does not exist.
    #[error("{layer}: there is no value {value}")]
    UnknownValue {
        /// The layer's full name.
        layer: String,
        /// What it refers to.
        value: String,
    },
    /// A layer's op could not be read: it does not exist, or it does not have these attributes.
    #[error("{layer}: {source}")]
    UnknownOp {
        /// The layer's full name.
        layer: String,
        /// What the reader says.
        source: SharedError,
    },
    /// Two inputs, two outputs, an input and a parameter, or two values of a file have one name.
    #[error("{0} is declared twice")]
    Duplicate(String),
    /// An input is declared for the load phase, when only weights are known.
    #[error("input {0} cannot belong to the load phase: declare weights as parameters")]
    LoadInput(String),
    /// A parameter is declared again as something else.
    #[error("parameter {name} is declared as {first} and as {second}")]
    Parameter {
        /// The parameter.
        name: String,
        /// Its first declaration.
        first: TensorType,
        /// The other one.
        second: TensorType,
    },
    /// A declared tensor is larger than memory can be.
    #[error("{name}: {ty} is too large to address")]
    TooLarge {
        /// The input, parameter or constant.
        name: String,
        /// Its type.
        ty: TensorType,
    },
    /// Layers form a cycle.
    #[error("these layers form a cycle: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// A change would alter a value's type.
    #[error("{layer}: {from} cannot stand in for {to}")]
    Retyped {
        /// The layer's full name.
        layer: String,
        /// The replacement's type.
        from: TensorType,
        /// The type that is used.
        to: TensorType,
    },
    /// The text is not a graph.
    #[error("not a graph: {0}")]
    Json(#[source] SharedError),
}
