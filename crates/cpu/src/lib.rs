//! Kinora on a plain CPU.

mod error;
// Nothing calls the kernels before there is an executor.
#[allow(dead_code)]
mod fast;
pub mod reference;
pub mod simd;
mod tensors;
// As above.
#[allow(dead_code)]
mod view;

pub use error::CpuError;
pub use tensors::Tensors;
