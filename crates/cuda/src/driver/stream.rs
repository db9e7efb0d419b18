//! A queue of work for the GPU.

use std::{ffi::c_void, sync::Arc};

use cudarc::driver::sys::{self, CUstream};

use super::{context::Context, event::Event, graph::ExecutableGraph};
use crate::{CudaError, launch::DevicePointer};

/// A stream: what is put into it runs in that order, and waits for no other stream. Clones are the same stream.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: CUstream,
    context: Context,
}

// SAFETY: the handle is a name; the driver's calls are safe from several threads.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Stream {
    /// Makes a stream.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn new(context: &Context) -> Result<Stream, CudaError> {
        let entered = context.enter()?;
        let mut handle = std::ptr::null_mut();
        // Without a wait for the default stream, which other code in the process may use.
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current, and the call writes one handle.
        entered.check(unsafe { sys::cuStreamCreate(&mut handle, flags) }, "make a stream")?;
        drop(entered);
        Ok(Stream(Arc::new(Inner { handle, context: context.clone() })))
    }

    /// The driver's name of it, for libraries that take one.
    pub fn handle(&self) -> CUstream {
        self.0.handle
    }

    /// The context that it is in.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Waits for everything that was put into it.
    ///
    /// # Errors
    /// If the device failed meanwhile.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        self.0.context.count_wait();
        let entered = self.0.context.enter()?;
        // SAFETY: the stream is of the current context.
        entered.check(unsafe { sys::cuStreamSynchronize(self.0.handle) }, "wait for the GPU")
    }

    /// Marks this place in the stream.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        let entered = self.0.context.enter()?;
        // SAFETY: both are of the current context.
        entered.check(unsafe { sys::cuEventRecord(event.handle(), self.0.handle) }, "record an event")
    }

    /// Lets what is put in from now on wait for an event, which was recorded in another stream. The host does not wait.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        let entered = self.0.context.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT as u32;
        // SAFETY: both are of the current context.
        let code = unsafe { sys::cuStreamWaitEvent(self.0.handle, event.handle(), flags) };
        entered.check(code, "wait for another stream")
    }

    /// Copies from host memory. If the memory is pinned, the call returns at once.
    ///
    /// # Safety
    /// `from` is valid and unchanged until the copy is done. `to` is device memory of as many bytes.
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn upload(&self, to: DevicePointer, from: &[u8]) -> Result<(), CudaError> {
        if from.is_empty() {
            return Ok(());
        }
        let entered = self.0.context.enter()?;
        // SAFETY: by the caller's promise.
        let code = unsafe {
            sys::cuMemcpyHtoDAsync_v2(to.address(), from.as_ptr().cast::<c_void>(), from.len(), self.0.handle)
        };
        entered.check(code, "copy to the GPU")
    }

    /// Copies to host memory. If the memory is pinned, the call returns at once.
    ///
    /// # Safety
    /// `to` is valid, and nothing else touches it, until the copy is done. `from` is device memory of as many bytes.
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn download(&self, to: &mut [u8], from: DevicePointer) -> Result<(), CudaError> {
        if to.is_empty() {
            return Ok(());
        }
        let entered = self.0.context.enter()?;
        // SAFETY: by the caller's promise.
        let code = unsafe {
            sys::cuMemcpyDtoHAsync_v2(
                to.as_mut_ptr().cast::<c_void>(),
                from.address(),
                to.len(),
                self.0.handle,
            )
        };
        entered.check(code, "copy from the GPU")
    }

    /// Copies within the GPU's memory.
    ///
    /// # Safety
    /// Both are device memory of so many bytes, and do not overlap.
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn copy(&self, to: DevicePointer, from: DevicePointer, bytes: usize) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        let entered = self.0.context.enter()?;
        // SAFETY: by the caller's promise.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to.address(), from.address(), bytes, self.0.handle) };
        entered.check(code, "copy within the GPU")
    }

    /// Fills device memory with one byte.
    ///
    /// # Safety
    /// `to` is device memory of so many bytes.
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn fill(&self, to: DevicePointer, byte: u8, bytes: usize) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        let entered = self.0.context.enter()?;
        // SAFETY: by the caller's promise.
        entered.check(
            unsafe { sys::cuMemsetD8Async(to.address(), byte, bytes, self.0.handle) },
            "fill the GPU's memory",
        )
    }

    /// Records what `work` puts into the stream, which does not run, as a graph that can be launched at once.
    ///
    /// # Errors
    /// If `work` fails, or does what cannot be recorded.
    pub fn capture(
        &self,
        work: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<ExecutableGraph, CudaError> {
        let _recording = self.0.context.recording();
        let entered = self.0.context.enter()?;
        // Another thread's allocations do not disturb this one's recording; its waits for the whole context would.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is of the current context.
        entered.check(unsafe { sys::cuStreamBeginCapture_v2(self.0.handle, mode) }, "begin a CUDA graph")?;
        let worked = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the recording was begun above; it is ended whether `work` succeeded or not.
        let code = unsafe { sys::cuStreamEndCapture(self.0.handle, &mut graph) };
        let ended = entered.check(code, "end a CUDA graph");
        // SAFETY: the graph, if there is one, is this function's own.
        let graph = unsafe { ExecutableGraph::from_recording(&self.0.context, graph) };
        worked?;
        ended?;
        graph
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: nothing refers to the stream any more; the driver lets its work end.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}
