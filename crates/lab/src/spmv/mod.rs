#![doc = include_str!("README.md")]

pub mod cpu;
pub mod csr;
pub mod generate;
pub mod market;
mod statistics;

pub use csr::{Csr, CsrError, Index, Value};
pub use statistics::Statistics;
