//! Parsing PTX as NVRTC and nvcc emit it.

mod declarations;
mod parse;
mod token;
pub(crate) mod tree;

pub(crate) use parse::parse;
