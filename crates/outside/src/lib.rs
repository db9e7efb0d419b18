#![doc = include_str!("../README.md")]

mod files;
mod text;

pub use files::{Refused, open, open_stream, read, read_stream, read_text, to_text, without_temporary_name};
pub use text::{printable, shortened};
