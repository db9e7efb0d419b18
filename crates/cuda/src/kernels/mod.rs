//! The kernels: which of them run an op, and how they are launched.
//!
//! A family has a folder: its CUDA sources, the Rust that launches them, and notes. Each family offers
//! [`Implementation`]s of an op, the one it would choose first; the tuner may measure the others. Nothing here needs a
//! device: an implementation gives [`Launch`]es with every argument in place, and something else runs them.

pub mod arrange;
pub mod attention;
mod choice;
pub mod embedding;
mod epilogue;
pub(crate) mod geometry;
mod kernel;
pub mod matrix;
pub(crate) mod names;
pub mod norm;
pub mod pointwise;
pub mod resample;
pub mod sampler;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;

use kinora_graph::{Op, TensorType};

pub use kinora_runtime::KernelSet;

pub(crate) use choice::Settled;
pub use choice::{Choose, Heuristic};
pub use kernel::{Argument, Kernel, Launch, Source, TensorMap};
pub(crate) use matrix::offered_before;

use crate::{
    Chip, CudaError,
    vendor::{Libraries, LibraryCall},
};

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

impl Call<'_> {
    /// Whether anything runs: not for a reshape, which is its operand's memory, nor where there is nothing to write.
    pub fn runs(&self) -> bool {
        !matches!(self.op, Op::Reshape(_)) && self.outputs.iter().any(|output| output.elements() > 0)
    }

    /// The op and its types in words: calls that are alike but for their names have the same.
    pub fn signature(&self) -> String {
        let types =
            |types: &[&TensorType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let op = serde_json::to_string(self.op).unwrap_or_else(|_| format!("{:?}", self.op));
        format!("{op} ({}) -> ({})", types(self.inputs), types(self.outputs))
    }
}

/// The bytes of a [fault word](Places::fault).
pub(crate) const FAULT_BYTES: usize = 8;

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

impl Places {
    /// Places that look like a call's: for what does not depend on where tensors lie, such as which kernels it launches.
    pub(crate) fn anywhere(call: &Call<'_>) -> Places {
        const SOMEWHERE: DevicePointer = 256;
        Places {
            inputs: vec![SOMEWHERE; call.inputs.len()],
            outputs: vec![SOMEWHERE; call.outputs.len()],
            workspace: SOMEWHERE,
            fault: SOMEWHERE,
            number: 1,
        }
    }
}

/// One way to run an op on a GPU.
pub trait Implementation: fmt::Debug + Send + Sync {
    /// Its name, the same in every run: the tuner's results are kept by it.
    fn name(&self) -> String;

    /// Whether a vendor's library does the work.
    fn is_vendors(&self) -> bool {
        false
    }

    /// Scratch memory that it needs while it runs, in bytes.
    fn workspace(&self, _call: &Call<'_>) -> usize {
        0
    }

    /// The launches, in order, of one that calls no library.
    ///
    /// # Errors
    /// Where the call is not one that it was offered for.
    fn launches(&self, call: &Call<'_>, _places: &Places) -> Result<Vec<Launch>, CudaError> {
        Err(CudaError::Internal(format!("{}: {} is not made of launches alone", call.layer, self.name())))
    }

    /// The work, in order.
    ///
    /// # Errors
    /// Where the call is not one that it was offered for.
    fn work(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Work>, CudaError> {
        Ok(self.launches(call, places)?.into_iter().map(Work::Launch).collect())
    }
}

/// Something to put into a stream.
#[derive(Debug)]
pub enum Work {
    /// One of our kernels.
    Launch(Launch),
    /// A call of a vendor's library.
    Library(Box<dyn LibraryCall>),
}

/// What a family offers for a call.
pub type Offer = fn(&Call<'_>, &Chip, KernelSet) -> Vec<Box<dyn Implementation>>;

/// All families but that of matrix products, which needs more.
const FAMILIES: [Offer; 7] = [
    attention::implementations,
    norm::implementations,
    pointwise::implementations,
    arrange::implementations,
    resample::implementations,
    embedding::implementations,
    sampler::implementations,
];

/// The ways to run a node, each family's own choice first, those of vendors' libraries last. A reshape has none: it runs
/// no code.
///
/// # Errors
/// Where there is none.
pub fn implementations(
    call: &Call<'_>,
    chip: &Chip,
    set: KernelSet,
    libraries: &Libraries,
) -> Result<Vec<Box<dyn Implementation>>, CudaError> {
    // A family offers nothing for an op that is not its own.
    let mut offered = matrix::implementations(call, chip, set, libraries, norm::implementations);
    offered.extend(FAMILIES.into_iter().flat_map(|family| family(call, chip, set)));
    if offered.is_empty() {
        let inputs: Vec<String> = call.inputs.iter().map(ToString::to_string).collect();
        return Err(CudaError::NoKernel {
            layer: call.layer.to_owned(),
            op: format!("{:?}", call.op),
            inputs: inputs.join(", "),
        });
    }
    Ok(offered)
}

/// Whether every kernel of an op reads each element of this operand in the thread that writes the result's element in
/// its place, before it does.
pub fn in_place(op: &Op, operand: usize) -> bool {
    // The other families read elements beside the one that they write.
    [matrix::in_place, norm::in_place, pointwise::in_place].iter().any(|family| family(op, operand))
}
