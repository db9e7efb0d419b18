//! The kernels: which of them run an op, and how they are launched.
//!
//! A family has a folder: its CUDA sources, the Rust that launches them, and notes. Each family offers
//! [`Implementation`]s of an op, the one it would choose first; the tuner may measure the others. Nothing here needs a
//! device: an implementation gives [`Launch`]es with every argument in place, and something else runs them.

pub mod arrange;
pub mod embedding;
pub(crate) mod geometry;
mod kernel;
pub(crate) mod names;
pub mod norm;
pub mod pointwise;
pub mod resample;
pub mod sampler;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;

use kinora_graph::{Op, TensorType};

pub use kernel::{Argument, Kernel, Launch, Source, TensorMap};

use crate::CudaError;

/// An address in the GPU's memory.
pub type DevicePointer = u64;

/// A node, as its kernels see it.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The layer's name, for errors.
    pub layer: &'a str,
    /// What it does.
    pub op: &'a Op,
    /// The types of its operands.
    pub inputs: &'a [&'a TensorType],
    /// The types of its results.
    pub outputs: &'a [&'a TensorType],
}

/// Where a call's tensors lie. Every address is a multiple of 256, but for tensors without elements, whose address
/// is 0.
#[derive(Clone, Debug)]
pub struct Places {
    /// The operands.
    pub inputs: Vec<DevicePointer>,
    /// The results.
    pub outputs: Vec<DevicePointer>,
    /// Scratch memory of as many bytes as the implementation asked for; 0 where it asked for none.
    pub workspace: DevicePointer,
    /// Two i32: where a kernel that finds a bad index in its data leaves the call's [`number`](Places::number), by
    /// `atomicCAS` from 0, and then the index.
    pub fault: DevicePointer,
    /// The call's number in its program, from 1.
    pub number: i32,
}

/// One way to run an op on a GPU.
pub trait Implementation: fmt::Debug + Send + Sync {
    /// Its name, the same in every run: the tuner's results are kept by it.
    fn name(&self) -> String;

    /// Scratch memory that it needs while it runs, in bytes.
    fn workspace(&self, _call: &Call<'_>) -> usize {
        0
    }

    /// The launches, in order.
    ///
    /// # Errors
    /// Where the call is not one that it was offered for.
    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError>;
}

/// Which kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelSet {
    /// The fast ones, with everything fused that can be.
    #[default]
    Fused,
    /// The plain ones, one for each op as the model has it: what the fast ones are compared with.
    Baseline,
}
