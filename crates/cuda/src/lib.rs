//! Kinora on NVIDIA GPUs.
//!
//! A [`Program`] is a plan whose every step has become launches of kernels that were compiled for the device
//! found. The layers, lowest first: [`launch`] is what a launch is made of, [`driver`] talks to the GPU, [`compiler`] turns
//! sources into code for it, [`kernels`] knows which kernel runs which op, and how. What a kernel is and how it is launched is decided without a
//! device, so that everything up to the launch itself can be tested on a machine that has none.

mod backend;
pub mod ceilings;
pub mod chip;
pub mod compiler;
pub mod cupti;
pub mod driver;
pub mod error;
mod installed;
pub mod kernels;
pub mod launch;
mod loaded;
mod options;
pub mod program;
#[cfg(feature = "simulator")]
pub mod simulation;
mod target;
#[cfg(test)]
mod testing;
pub mod tuning;
pub mod vendor;
mod work;
pub mod workbench;

pub use backend::{ChipBackend, CudaBackend};
pub use chip::{Architecture, Chip, CodeForm};
pub use error::CudaError;
pub use installed::NotFound;
pub use loaded::{KernelPool, LoadedKernels};
pub use options::CudaOptions;
pub use program::{CountedCall, LoadOptions, LoadTimes, Planned, Program, ProgramMemory};
pub use target::CudaTarget;
