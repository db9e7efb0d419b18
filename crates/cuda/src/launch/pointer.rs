//! Addresses in the GPU's memory.

use std::{ffi::c_void, fmt};

/// An address in the GPU's memory, which the host cannot read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct DevicePointer(u64);

impl DevicePointer {
    /// The address of nothing: of a tensor without elements, or of an operand that is not given.
    pub const NULL: DevicePointer = DevicePointer(0);

    /// The pointer to an address.
    pub const fn new(address: u64) -> DevicePointer {
        DevicePointer(address)
    }

    /// The address.
    pub const fn address(self) -> u64 {
        self.0
    }

    /// The pointer so many bytes further on.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> DevicePointer {
        DevicePointer(self.0 + bytes as u64)
    }

    /// The address as libraries take it. The host cannot follow it.
    pub(crate) const fn as_raw(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0 as usize)
    }

    /// Whether the address is a multiple of so many bytes.
    pub const fn is_aligned_to(self, bytes: usize) -> bool {
        self.0.is_multiple_of(bytes as u64)
    }
}

impl fmt::Debug for DevicePointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
