//! Ops, graphs, passes and memory plans: what every other part of Kinora is built on.
//!
//! A model is a function that builds a [`Graph`] with a [`GraphBuilder`]. [`passes`] make it cheaper without changing
//! its result; a [`plan`] fixes the order of its nodes and the place of every buffer before anything is allocated. All
//! of it is pure: no I/O, no device. Backends implement [`Target`] to say what they can fuse.

mod builder;
pub mod calibration;
pub mod dtype;
pub mod e4m3;
mod editor;
mod error;
mod graph;
mod json;
pub mod op;
mod order;
mod parameters;
pub mod passes;
pub mod plan;
mod shape;
mod shared_error;
mod target;
pub mod tensor;
mod text;

pub use builder::GraphBuilder;
pub use dtype::DType;
pub use editor::Editor;
pub use error::GraphError;
pub use graph::{Graph, Node, NodeId, Output, Phase, Source, Value, ValueId};
pub use op::Op;
pub use parameters::{ParameterError, Parameters};
pub use shape::{Shape, TensorType};
pub use shared_error::SharedError;
pub use target::{FuseAll, FuseNothing, Target};
pub use tensor::Tensor;
