//! Kinora on a plain CPU.

pub mod simd;
