#![doc = include_str!("README.md")]

pub mod cpu;
pub mod csr;
pub mod generate;
mod job;
mod kernel;
pub mod market;
mod schedule;
mod statistics;

pub use csr::{Csr, CsrError, Index, Value};
pub use job::{Job, Placed};
pub use kernel::{Algorithm, Variant};
pub use schedule::Tiles;
pub use statistics::Statistics;
