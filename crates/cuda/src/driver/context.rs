//! A context: what a process holds on a device.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult};

use super::{
    library,
    status::{check, ends_the_context},
};
use crate::CudaError;

/// A context of its own, not the process's primary one: after a fault of the device it can be destroyed, and a new one
/// made, whatever else the process does there.
#[derive(Clone, Debug)]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: CUcontext,
    state: Mutex<State>,
    /// Held while a stream of the context is recorded, and by who waits for all of its streams: the driver ends a recording
    /// whose context is waited for, in whatever thread.
    recording: Mutex<()>,
    allocations: AtomicU64,
    waits: AtomicU64,
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Context {}

/// What was done in a context since it was made: a steady state shows in what did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Allocations of the GPU's memory.
    pub allocations: u64,
    /// Times that the host waited for the GPU.
    pub waits: u64,
}

/// What has become of a context.
#[derive(Debug, Default)]
struct State {
    /// How many calls are under way. A context that is lost is destroyed when the last of them has ended.
    users: usize,
    /// Why it can no longer be used.
    lost: Option<String>,
    destroyed: bool,
}

// SAFETY: the handle is a name that any thread may make current; the driver's calls are safe from several threads.
unsafe impl Send for Inner {}
// SAFETY: as above; what changes is behind the mutex.
unsafe impl Sync for Inner {}

/// The GPU's memory as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFigures {
    /// Bytes that nothing uses.
    pub free: usize,
    /// Bytes there are.
    pub total: usize,
}

/// A context that is current in this thread until this is dropped.
pub(crate) struct Entered<'a> {
    context: &'a Context,
}

impl Context {
    /// Makes a context on a device.
    pub(super) fn create(device: CUdevice) -> Result<Context, CudaError> {
        // SAFETY: a device's number comes from an initialised driver.
        let handle = unsafe { library::create_context(device) }.map_err(|error| match error {
            CudaError::Driver { code, .. } if ends_the_context(code) => {
                CudaError::ProcessLost(error.to_string())
            }
            error => error,
        })?;
        // A new context is current in the thread that made it; here it is current only while it is used.
        // SAFETY: the one just made is on top.
        check(unsafe { sys::cuCtxPopCurrent_v2(&mut std::ptr::null_mut()) }, "leave a context")?;
        let (allocations, waits) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Context(Arc::new(Inner {
            handle,
            state: Mutex::new(State::default()),
            recording: Mutex::default(),
            allocations,
            waits,
        })))
    }

    /// Keeps recordings and waits for the whole context apart. Who records must not drop what waits.
    pub(super) fn recording(&self) -> MutexGuard<'_, ()> {
        self.0.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole after every statement that changes it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the context current.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, CudaError> {
        let mut state = self.state();
        if let Some(reason) = &state.lost {
            return Err(CudaError::ContextLost(reason.clone()));
        }
        // SAFETY: a context that is not lost has not been destroyed.
        check(unsafe { sys::cuCtxPushCurrent_v2(self.0.handle) }, "enter the context")?;
        state.users += 1;
        Ok(Entered { context: self })
    }

    /// Does something with the context current: for libraries that work in whatever context is.
    ///
    /// # Errors
    /// If the context is lost.
    pub fn with_current<T>(&self, work: impl FnOnce() -> T) -> Result<T, CudaError> {
        let _entered = self.enter()?;
        Ok(work())
    }

    /// Does something with the context current, and the driver's name of it: for libraries that ask for that.
    ///
    /// # Errors
    /// If the context is lost.
    pub(crate) fn with_handle<T>(&self, work: impl FnOnce(CUcontext) -> T) -> Result<T, CudaError> {
        self.with_current(|| work(self.0.handle))
    }

    /// Whether an error has ended the context.
    pub fn is_lost(&self) -> bool {
        self.state().lost.is_some()
    }

    /// The GPU's memory, whoever uses it.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn memory(&self) -> Result<MemoryFigures, CudaError> {
        let entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: a context is current, and the call writes two numbers.
        let code = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        entered.check(code, "ask for the memory there is")?;
        Ok(MemoryFigures { free, total })
    }

    /// What was done in it so far.
    pub fn activity(&self) -> Activity {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Activity { allocations: count(&self.0.allocations), waits: count(&self.0.waits) }
    }

    pub(super) fn count_allocation(&self) {
        self.0.allocations.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_wait(&self) {
        self.0.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for everything in the context.
    ///
    /// # Errors
    /// If the device failed meanwhile.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        self.count_wait();
        let _no_recording = self.recording();
        let entered = self.enter()?;
        // SAFETY: a context is current.
        entered.check(unsafe { sys::cuCtxSynchronize() }, "wait for the GPU")
    }
}

impl Entered<'_> {
    /// The error of a code, which may end the context.
    pub fn check(&self, code: CUresult, doing: &str) -> Result<(), CudaError> {
        let result = check(code, doing);
        if let Err(error) = &result
            && ends_the_context(code as u32)
        {
            self.context.state().lost.get_or_insert_with(|| error.to_string());
        }
        result
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: this context was put on top when this was made, and whatever was put above it has gone. A context that
        // cannot be taken off is one that is lost; there is nothing left to do about it.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut std::ptr::null_mut()) };
        let mut state = self.context.state();
        state.users -= 1;
        if state.lost.is_some() && state.users == 0 && !state.destroyed {
            state.destroyed = true;
            // SAFETY: no call is under way and none can begin. What lived in the context goes with it: whoever holds it
            // can no longer enter.
            let _ = unsafe { sys::cuCtxDestroy_v2(self.context.0.handle) };
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.destroyed {
            // SAFETY: nothing refers to the context any more.
            let _ = unsafe { sys::cuCtxDestroy_v2(self.handle) };
        }
    }
}
