//! What fuzzing feeds with hostile bytes: one [`Target`] for each kind of input that comes from outside.
//!
//! A target is a plain function. `cargo xtask fuzz` builds all of them into one program with libFuzzer (`fuzz/driver`); the
//! test `replay` gives them every input that is kept in `corpus/` and `regressions/`, with the ordinary compiler and no
//! sanitizer. A target must return, whatever it is given: a panic, an abort, a long run or much memory is a finding.
#![allow(clippy::unwrap_used, reason = "what fails in a target's own preparation is to be seen")]

mod mutate;
mod scratch;
mod targets;

pub use mutate::mutate;
pub use targets::TARGETS;

/// Something that reads what comes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folders in `corpus` and `regressions`.
    pub name: &'static str,
    /// What its inputs look like.
    pub shape: Shape,
    /// The longest input that is tried.
    pub max_bytes: usize,
    /// Reads an input. It returns, whatever the input is.
    pub run: fn(&[u8]),
}

/// What an input looks like, so that a change to a good one gives another that is almost good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Anything.
    Bytes,
    /// A JSON text.
    Json,
    /// A safetensors file: the length of its header, the header as JSON, numbers.
    Safetensors,
    /// Lines of words.
    Lines,
}

impl Target {
    /// A target by its name.
    pub fn named(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|target| target.name == name)
    }
}
