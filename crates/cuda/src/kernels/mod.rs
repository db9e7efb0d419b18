//! The kernels: which of them run an op, and how they are launched.
//!
//! A family has a folder: its CUDA sources, the Rust that launches them, and notes. Each family offers
//! [`Implementation`]s of an op, the one it would choose first; the tuner may measure the others. Nothing here needs a
//! device: an implementation gives [`Launch`]es with every argument in place, and something else runs them. `README.md` says
//! how to add one.

mod arrange;
mod attention;
mod choice;
mod embedding;
mod epilogue;
pub(crate) mod geometry;
mod matrix;
pub(crate) mod names;
mod norm;
mod pointwise;
mod resample;
mod sampler;
#[cfg(test)]
pub(crate) mod testing;

use std::{fmt, ops::Range};

use kinora_graph::{Op, TensorType};

pub use kinora_runtime::KernelSet;

pub(crate) use choice::Settled;
pub use choice::{Choose, Heuristic};
pub(crate) use matrix::{has_quantised, has_statistics, has_subpixel, offered_before};
pub(crate) use norm::reads_twice;

pub use crate::launch::{Argument, DevicePointer, Kernel, Launch, Source, TensorMap};
use crate::{
    Chip, CudaError,
    vendor::{Libraries, LibraryCall},
};

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
    /// Whether anything runs: not for a reshape, which is its operand's memory, nor if there is nothing to write.
    pub fn runs(&self) -> bool {
        !matches!(self.op, Op::Reshape(_)) && self.outputs.iter().any(|output| output.elements() > 0)
    }

    /// An error about this call, with the layer's name. Calls of several layers may share an implementation, which therefore
    /// does not know it.
    pub fn blame(&self, error: CudaError) -> CudaError {
        match error {
            CudaError::TooLarge(what) if !self.layer.is_empty() => {
                CudaError::TooLarge(format!("{}: {what}", self.layer))
            }
            error => error,
        }
    }

    /// The op and its types in words: calls that are alike but for their names have the same.
    pub fn signature(&self) -> String {
        let types =
            |types: &[&TensorType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        format!("{} ({}) -> ({})", self.op_text(), types(self.inputs), types(self.outputs))
    }

    /// The op in words.
    fn op_text(&self) -> String {
        serde_json::to_string(self.op).unwrap_or_else(|_| format!("{:?}", self.op))
    }
}

/// The bytes of a [fault word](Places::fault).
pub(crate) const FAULT_BYTES: usize = 8;

/// Where a call's tensors lie. Every address is a multiple of 256. Tensors without elements have a null pointer.
#[derive(Clone, Debug)]
pub struct Places {
    /// The operands.
    pub inputs: Vec<DevicePointer>,
    /// The results.
    pub outputs: Vec<DevicePointer>,
    /// Scratch memory of as many bytes as the implementation asked for; null if it asked for none.
    pub workspace: DevicePointer,
    /// The fault word, two i32: a kernel that finds a bad index in its data leaves the call's [`number`](Places::number) there,
    /// by `atomicCAS` from 0, and then the index.
    pub fault: DevicePointer,
    /// The call's number in its program, from 1.
    pub number: i32,
}

impl Places {
    /// Places that look like a call's: for what does not depend on where tensors lie, such as which kernels it launches.
    pub(crate) fn anywhere(call: &Call<'_>) -> Places {
        const SOMEWHERE: DevicePointer = DevicePointer::new(256);
        Places {
            inputs: vec![SOMEWHERE; call.inputs.len()],
            outputs: vec![SOMEWHERE; call.outputs.len()],
            workspace: SOMEWHERE,
            fault: SOMEWHERE,
            number: 1,
        }
    }
}

/// One way to run a call on a GPU. It keeps what it needs to know of the call that it was offered for.
///
/// # Safety
/// Its work runs on a GPU without further checks. Given the places of a call like the one that it was offered for, with
/// [`workspace`](Implementation::workspace) bytes of scratch memory, the work must read and write only those tensors, that
/// scratch memory and the fault word, and each launch must have the arguments that its kernel takes.
pub unsafe trait Implementation: fmt::Debug + Send + Sync {
    /// Its name, the same in every run: the tuner's results are kept by it.
    fn name(&self) -> String;

    /// Whether a vendor's library does the work.
    fn is_vendors(&self) -> bool {
        false
    }

    /// Scratch memory that it needs while it runs, in bytes.
    fn workspace(&self) -> usize {
        0
    }

    /// The launches, in order, of an implementation that calls no library.
    ///
    /// # Errors
    /// If a tensor is larger than the kernels count, or the implementation calls a library.
    fn launches(&self, _places: &Places) -> Result<Vec<Launch>, CudaError> {
        Err(CudaError::Internal(format!("{} does not consist of launches alone", self.name())))
    }

    /// The launches that compute at least these elements of its one result, if it can leave out others.
    fn part(&self, _places: &Places, _elements: &[Range<usize>]) -> Option<Result<Vec<Launch>, CudaError>> {
        None
    }

    /// The work, in order.
    ///
    /// # Errors
    /// If a tensor is larger than the kernels count, or a library does not take the call.
    fn work(&self, places: &Places) -> Result<Vec<Work>, CudaError> {
        Ok(self.launches(places)?.into_iter().map(Work::Launch).collect())
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

/// What a family offers for a call: nothing for an op that is not its own.
pub type Offer = fn(&Call<'_>, &Chip, KernelSet) -> Vec<Box<dyn Implementation>>;

/// A family of kernels, which its folder defines.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The implementations of a call, the family's own choice first.
    pub offer: Offer,
    /// Whether every kernel of an op reads each element of an operand in the thread that writes the result's element in its
    /// place, before it does.
    pub in_place: fn(&Op, usize) -> bool,
}

/// All families but that of matrix products, which also needs vendors' libraries and the norms. A new family is registered
/// here.
const FAMILIES: [Family; 7] = [
    attention::FAMILY,
    norm::FAMILY,
    pointwise::FAMILY,
    arrange::FAMILY,
    resample::FAMILY,
    embedding::FAMILY,
    sampler::FAMILY,
];

/// The ways to run a node, each family's own choice first, those of vendors' libraries last. A reshape has none: it runs
/// no code.
///
/// # Errors
/// If there is none.
pub fn implementations(
    call: &Call<'_>,
    chip: &Chip,
    set: KernelSet,
    libraries: &Libraries,
) -> Result<Vec<Box<dyn Implementation>>, CudaError> {
    let mut offered = matrix::implementations(call, chip, set, libraries, norm::implementations);
    offered.extend(FAMILIES.into_iter().flat_map(|family| (family.offer)(call, chip, set)));
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
    matrix::in_place(op, operand) || FAMILIES.iter().any(|family| (family.in_place)(op, operand))
}
