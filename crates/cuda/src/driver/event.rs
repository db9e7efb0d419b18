//! A mark in a stream.

use cudarc::driver::sys::{self, CUevent};

use super::{context::Context, library};
use crate::CudaError;

/// An event: recorded in a stream, it can be waited for, and the time between two can be asked for.
#[derive(Debug)]
pub struct Event {
    handle: CUevent,
    context: Context,
}

// SAFETY: the handle is a name; the driver's calls are safe from several threads.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn new(context: &Context) -> Result<Event, CudaError> {
        let entered = context.enter()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: a context is current, and the call writes one handle.
        entered.check(unsafe { sys::cuEventCreate(&mut handle, flags) }, "make an event")?;
        drop(entered);
        Ok(Event { handle, context: context.clone() })
    }

    pub(super) fn handle(&self) -> CUevent {
        self.handle
    }

    /// Waits until the stream has come to it.
    ///
    /// # Errors
    /// If the device failed meanwhile.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        self.context.count_wait();
        let entered = self.context.enter()?;
        // SAFETY: the event is of the current context.
        entered.check(unsafe { sys::cuEventSynchronize(self.handle) }, "wait for the GPU")
    }

    /// The milliseconds from `start` to this one. Both have been recorded and have come to pass.
    ///
    /// # Errors
    /// If they have not.
    pub fn milliseconds_since(&self, start: &Event) -> Result<f32, CudaError> {
        let entered = self.context.enter()?;
        // SAFETY: the events are of the current context; the driver refuses those of another one.
        let (code, milliseconds) = unsafe { library::elapsed(start.handle, self.handle)? };
        entered.check(code, "ask for the time between two events")?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: nothing refers to the event any more.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}
