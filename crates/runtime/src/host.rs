//! Ops on the host: what a backend needs of the CPU, whatever device it drives.

use std::fmt;

use kinora_graph::{Op, Tensor, passes::Evaluate};

use crate::RunError;

/// Runs single ops on tensors in host memory.
///
/// A backend folds constants with it while it plans ([`Evaluate`], exact) and runs the load phase with it
/// ([`HostOps::run`], fast). `kinora-cpu` implements it; a backend takes it as an option, so that no backend depends on
/// another.
pub trait HostOps: Evaluate + fmt::Debug + Send + Sync {
    /// Runs one op.
    ///
    /// # Errors
    /// If the op refuses its operands, a token or a sampler step is outside its table, or memory runs out.
    fn run(&self, layer: &str, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, RunError>;
}
