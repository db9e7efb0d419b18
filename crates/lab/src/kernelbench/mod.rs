//! KernelBench: its tasks, solutions in CUDA or Python, and whether they are right and faster than PyTorch.

mod error;
mod plan;
mod simulated;

pub use error::KernelBenchError;
pub use plan::{Argument, Buffer, Launch, Plan};
pub use simulated::{Predicted, PredictedKernel, Simulated, compile, predict, simulate};
