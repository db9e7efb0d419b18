//! Calls that are not inlined, and calls of the device's run-time library.

use super::Operand;
use crate::error::Place;

/// A function of the device's run-time library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemCall {
    /// `vprintf`: the format and the packed arguments.
    Print,
    /// `__assertfail`: the condition, the file, the line, the function, and the size of a character.
    AssertFail,
    /// `malloc`.
    Allocate,
    /// `__nv_aligned_device_malloc`: the size and the alignment.
    AllocateAligned,
    /// `free`.
    Free,
}

impl SystemCall {
    /// The function of a name.
    pub fn named(name: &str) -> Option<SystemCall> {
        Some(match name {
            "vprintf" => SystemCall::Print,
            "__assertfail" => SystemCall::AssertFail,
            "malloc" => SystemCall::Allocate,
            "__nv_aligned_device_malloc" => SystemCall::AllocateAligned,
            "free" => SystemCall::Free,
            _ => return None,
        })
    }

    /// How many arguments it takes.
    pub fn arguments(self) -> usize {
        match self {
            SystemCall::Print | SystemCall::AllocateAligned => 2,
            SystemCall::AssertFail => 5,
            SystemCall::Allocate | SystemCall::Free => 1,
        }
    }

    /// Whether it uses the device's heap.
    pub fn uses_heap(self) -> bool {
        matches!(self, SystemCall::Allocate | SystemCall::AllocateAligned | SystemCall::Free)
    }
}

/// A range of bytes in a stack frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FramePart {
    pub offset: u32,
    pub bytes: u32,
}

/// A function that is called rather than inlined.
#[derive(Clone, Debug)]
pub(crate) struct Subroutine {
    pub name: String,
    /// What a pointer to it holds.
    pub address: u64,
    /// Its first instruction.
    pub entry: u32,
    /// Its results, parameters and variables.
    pub frame_bytes: u32,
    pub results: Vec<FramePart>,
    pub parameters: Vec<FramePart>,
}

/// A call that is not inlined.
#[derive(Clone, Debug)]
pub(crate) struct CallSite {
    /// The subroutine; `None` if the call takes a function pointer.
    pub target: Option<u32>,
    /// Where the caller's frame holds the results and the arguments.
    pub results: Vec<FramePart>,
    pub arguments: Vec<FramePart>,
    /// The registers whose values are needed after the call, which the called function may overwrite.
    pub saved: Vec<Operand>,
}

/// An instruction that the simulator does not support, which matters only if it is reached.
#[derive(Clone, Debug)]
pub(crate) struct Unsupported {
    pub place: Place,
    pub what: String,
    pub instruction: String,
}
