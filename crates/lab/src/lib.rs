#![doc = include_str!("../README.md")]

mod element;
pub mod spmv;

pub use element::Element;
