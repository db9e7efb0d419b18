#![doc = include_str!("../README.md")]

mod element;
#[cfg(feature = "cuda")]
pub mod kernelbench;

pub use element::Element;
