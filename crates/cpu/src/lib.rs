//! Kinora on a plain CPU.

mod error;
mod gemm;
pub mod reference;
pub mod simd;
mod tensors;
mod view;

pub use error::CpuError;
pub use tensors::Tensors;
