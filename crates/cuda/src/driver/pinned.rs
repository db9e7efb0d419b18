//! Host memory that the GPU copies from and to by itself.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ffi::c_void,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

use cudarc::driver::sys::{self, CUresult};

use super::context::Context;
use crate::CudaError;

/// The size of a page: memory is pinned in whole ones.
const PAGE: usize = 4096;

/// Host memory with its pages pinned. It is the process's own memory, registered with the driver, and not the driver's:
/// it stays valid when the context is lost. It is cached like any other, so that reading it is as fast.
///
/// If the system does not let memory be pinned, copies are slower and not asynchronous, and nothing else changes.
#[derive(Debug)]
pub struct PinnedBuffer {
    data: NonNull<u8>,
    layout: Layout,
    bytes: usize,
    pinned: bool,
    context: Context,
}

// SAFETY: the buffer is plain bytes with one owner.
unsafe impl Send for PinnedBuffer {}
// SAFETY: shared, it is only read.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates zeros and pins them.
    ///
    /// # Errors
    /// If the memory cannot be had, or the device has failed.
    pub fn new(context: &Context, bytes: usize) -> Result<PinnedBuffer, CudaError> {
        let too_large = || CudaError::Run(kinora_runtime::RunError::OutOfMemory { bytes });
        let size = bytes.max(1).checked_next_multiple_of(PAGE).ok_or_else(too_large)?;
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| too_large())?;
        // SAFETY: the size is not zero.
        let data = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_large)?;
        let mut buffer = PinnedBuffer { data, layout, bytes, pinned: false, context: context.clone() };
        let entered = context.enter()?;
        // SAFETY: the memory is this process's own, and is unregistered before it is freed.
        let code = unsafe { sys::cuMemHostRegister_v2(data.as_ptr().cast::<c_void>(), size, 0) };
        match code {
            CUresult::CUDA_SUCCESS => buffer.pinned = true,
            code if super::ends_the_context(code as u32) => entered.check(code, "pin host memory")?,
            _ => {}
        }
        drop(entered);
        Ok(buffer)
    }

    /// Whether the memory could be pinned.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }
}

impl Deref for PinnedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes were allocated and zeroed.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PinnedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // A copy may still be under way.
            let _no_recording = self.context.recording();
            // SAFETY: a context is current; what fails here shows at the next call that can say so.
            let _ = unsafe { sys::cuCtxSynchronize() };
            if self.pinned {
                // SAFETY: registered above.
                let _ = unsafe { sys::cuMemHostUnregister(self.data.as_ptr().cast::<c_void>()) };
            }
        }
        // SAFETY: allocated above with this layout.
        unsafe { dealloc(self.data.as_ptr(), self.layout) };
    }
}
