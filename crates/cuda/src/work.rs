//! A call's work, ready to be enqueued in a stream.

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
    /// Resolves a launch's function.
    pub fn new(work: Work, kernels: &LoadedKernels) -> Result<PreparedWork, CudaError> {
        match work {
            Work::Launch(launch) => Ok(PreparedWork::Launch(kernels.prepare(&launch)?)),
            Work::Library(call) => Ok(PreparedWork::Library(call)),
        }
    }

    /// Enqueues the work in a stream.
    ///
    /// # Safety
    /// The memory of the call that it was made for must stay allocated until the stream has finished it.
    pub unsafe fn enqueue(&self, stream: &Stream) -> Result<(), CudaError> {
        match self {
            // SAFETY: the implementation that made the launch set the arguments that its kernel takes, and addresses only its
            // call's memory (the contract of `Implementation`); the caller keeps that memory alive.
            PreparedWork::Launch(launch) => unsafe { launch.enqueue(stream) },
            // SAFETY: as above: the implementation gave the operands, and the caller keeps their memory alive.
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
