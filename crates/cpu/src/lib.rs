//! Kinora on a plain CPU.

pub mod gemm;
pub mod simd;
