//! What a solution in CUDA asks for: buffers, and launches over them. The worker works it out from the declaration and the shapes.

use std::path::PathBuf;

use serde::Deserialize;

/// The launches of one call of a solution.
#[derive(Clone, Debug, Deserialize)]
pub struct Plan {
    /// The source's file name.
    pub name: String,
    /// The source.
    pub text: String,
    /// Options of the compiler, `-DNAME=VALUE` for each constant.
    pub options: Vec<String>,
    /// The memory.
    pub buffers: Vec<Buffer>,
    /// The launches, in order.
    pub launches: Vec<Launch>,
}

/// Memory of a plan.
#[derive(Clone, Debug, Deserialize)]
pub struct Buffer {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: usize,
    /// The file with what it holds at first; without one it is not initialised.
    pub from: Option<PathBuf>,
    /// The file for what it holds at the end.
    pub to: Option<PathBuf>,
}

/// A launch of a plan.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub entry: String,
    /// Blocks on each axis.
    pub grid: [u32; 3],
    /// Threads of a block on each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: usize,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

/// An argument of a launch.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Argument {
    /// The address of a buffer, by its number.
    Buffer(usize),
    /// A signed integer of 32 bits.
    I32(i32),
    /// A signed integer of 64 bits.
    I64(i64),
    /// Single precision.
    F32(f32),
}
