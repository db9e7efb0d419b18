//! A request to stop work that is under way.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::RunError;

/// A request to stop work, which any thread may make. Copies are the same request, and it cannot be taken back.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// One that nobody has made yet.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Makes the request.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the request was made.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if the request was made.
    ///
    /// # Errors
    /// [`RunError::Stopped`].
    pub fn check(&self) -> Result<(), RunError> {
        if self.is_requested() { Err(RunError::Stopped) } else { Ok(()) }
    }
}
