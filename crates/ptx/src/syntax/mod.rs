//! The text of PTX, as NVRTC and nvcc write it.

mod parse;
mod token;
pub(crate) mod tree;

pub(crate) use parse::parse;
