//! A call's work, ready to be put into a stream.

use crate::{
    CudaError, LoadedKernels,
    driver::{PreparedLaunch, Stream},
    kernels::Work,
    launch::Kernel,
    vendor::LibraryCall,
};

/// One piece of a call's work.
#[derive(Debug)]
pub(crate) enum PreparedWork {
    /// One of our kernels.
    Launch(PreparedLaunch),
    /// A call of a vendor's library.
    Library(Box<dyn LibraryCall>),
}

impl PreparedWork {
    /// Gives a launch its function.
    pub fn new(work: Work, kernels: &LoadedKernels) -> Result<PreparedWork, CudaError> {
        match work {
            Work::Launch(launch) => Ok(PreparedWork::Launch(kernels.prepare(&launch)?)),
            Work::Library(call) => Ok(PreparedWork::Library(call)),
        }
    }

    /// Puts the work into a stream.
    ///
    /// # Safety
    /// The memory that it reads and writes is there until the stream has done it.
    pub unsafe fn enqueue(&self, stream: &Stream) -> Result<(), CudaError> {
        match self {
            // SAFETY: the family that made the launch gave its arguments; the memory is the caller's promise.
            PreparedWork::Launch(launch) => unsafe { launch.enqueue(stream) },
            // SAFETY: as above: the family gave the operands, and the caller keeps their memory.
            PreparedWork::Library(call) => unsafe { call.enqueue(stream) },
        }
    }
}

/// The kernels that some work needs, each once.
pub(crate) fn kernels<'a>(work: impl Iterator<Item = &'a Work>) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = work
        .filter_map(|work| match work {
            Work::Launch(launch) => Some(launch.kernel.clone()),
            Work::Library(_) => None,
        })
        .collect();
    kernels.sort_unstable();
    kernels.dedup();
    kernels
}
