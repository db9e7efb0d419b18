#![doc = include_str!("../README.md")]

pub mod compile;
mod element;
pub mod execute;
pub mod feedback;
#[cfg(feature = "cuda")]
pub mod kernelbench;
pub mod spmv;

pub use element::Element;
