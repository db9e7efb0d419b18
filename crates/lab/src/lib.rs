#![doc = include_str!("../README.md")]

pub mod compile;
mod element;
pub mod execute;
#[cfg(feature = "cuda")]
pub mod kernelbench;

pub use element::Element;
