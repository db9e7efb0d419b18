#![doc = include_str!("README.md")]

mod choose;
pub mod cpu;
pub mod csr;
pub mod examine;
pub mod generate;
mod job;
mod kernel;
pub mod market;
pub mod predict;
mod row_blocks;
mod schedule;
mod slices;
mod statistics;
pub mod suite;
mod text;

pub use choose::{Choice, candidates, choose};
pub use csr::{Csr, CsrError, Index, Value};
pub use job::{Job, Placed};
pub use kernel::{Algorithm, Variant};
pub use schedule::Tiles;
pub use statistics::Statistics;
