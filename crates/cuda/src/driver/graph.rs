//! CUDA graphs: many launches given to the GPU as one.

use cudarc::driver::sys::{self, CUgraph, CUgraphExec};

use super::{context::Context, stream::Stream};
use crate::CudaError;

/// A recording of a stream's work, ready to be launched.
#[derive(Debug)]
pub struct ExecutableGraph {
    handle: CUgraphExec,
    context: Context,
}

// SAFETY: the handle is a name, used by one thread at a time: launching takes an exclusive borrow.
unsafe impl Send for ExecutableGraph {}

impl ExecutableGraph {
    /// Makes a recording ready, and frees it.
    ///
    /// # Safety
    /// `graph` is null or a graph that the caller gives away.
    pub(super) unsafe fn from_recording(
        context: &Context,
        graph: CUgraph,
    ) -> Result<ExecutableGraph, CudaError> {
        if graph.is_null() {
            return Err(CudaError::Internal("the driver recorded a CUDA graph and returned none".into()));
        }
        let entered = context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the graph is one by the caller's promise, and the call writes one handle.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&mut handle, graph, 0) };
        // SAFETY: what was made of it is a copy.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        entered.check(code, "make a CUDA graph ready")?;
        drop(entered);
        Ok(ExecutableGraph { handle, context: context.clone() })
    }

    /// Brings it onto the GPU, so that the first launch is as fast as the next.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn upload(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let entered = self.context.enter()?;
        // SAFETY: graph and stream are of the current context.
        entered.check(unsafe { sys::cuGraphUpload(self.handle, stream.handle()) }, "upload a CUDA graph")
    }

    /// Puts it into a stream.
    ///
    /// # Safety
    /// The memory that its launches point to is there when it runs.
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn enqueue(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let entered = self.context.enter()?;
        // SAFETY: graph and stream are of the current context.
        entered.check(unsafe { sys::cuGraphLaunch(self.handle, stream.handle()) }, "launch a CUDA graph")
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: nothing refers to it any more; the driver lets a launch that is still running finish.
            let _ = unsafe { sys::cuGraphExecDestroy(self.handle) };
        }
    }
}
