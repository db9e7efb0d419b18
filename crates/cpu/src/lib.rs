//! Kinora on a plain CPU.

mod error;
mod fast;
pub mod gemm;
pub mod reference;
pub mod simd;
mod view;

pub use error::CpuError;
