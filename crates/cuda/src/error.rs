//! What can go wrong on a GPU.

use kinora_cpu::CpuError;
use kinora_graph::{GraphError, plan::PlanError};

/// Why a graph could not be prepared for a GPU or run there.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The graph itself is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No plan could be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An input is missing or wrong, or the weights could not be prepared on the host.
    #[error(transparent)]
    Host(#[from] CpuError),
    /// A tensor has an extent beyond what a kernel counts with.
    #[error(
        "{0} is more than the GPU kernels can count; make the clip smaller, or run this model on the CPU"
    )]
    TooLarge(String),
    /// No such generation of GPUs.
    #[error("{0} is no GPU architecture that Kinora knows; write it as sm_75, sm_80, sm_86, sm_89 or sm_90a")]
    UnknownArchitecture(String),
    /// A mistake of this crate's own.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}
