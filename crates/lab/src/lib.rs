#![doc = include_str!("../README.md")]

mod element;

pub use element::Element;
