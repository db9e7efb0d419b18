//! What the device's run-time library does for a kernel: `printf` and the heap of `malloc`.

mod heap;
mod output;
mod printf;

pub(crate) use heap::{DeviceHeap, FreeError, HeapBlock, HeapMiss};
pub use output::DeviceOutput;
pub(crate) use output::{OutputSink, Printed};
pub(crate) use printf::{ArgumentKind, Piece, format, pieces};

/// Limits of the device's run-time library, as `cudaDeviceSetLimit` sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// The stack of a thread beyond its kernel's own variables: frames of functions that are not inlined, and `alloca`. The default,
    /// 64 KiB, is above a device's 1 KiB, because frames are counted from PTX, without the assembler's optimisations.
    pub stack_bytes: usize,
    /// The heap of `malloc` and `new`: 8 MiB by default. It is made by the first kernel that uses it.
    pub heap_bytes: usize,
    /// The text that a launch may print: 1 MiB by default.
    pub printf_bytes: usize,
}

impl Default for DeviceLimits {
    fn default() -> DeviceLimits {
        DeviceLimits { stack_bytes: 64 << 10, heap_bytes: 8 << 20, printf_bytes: 1 << 20 }
    }
}
