//! Child processes of tests.
//!
//! Until a child becomes another program it holds the files of this process, and with them their locks. A test that lets go of a lock
//! and expects it to be free must not run while another test starts a child.

use std::sync::{Mutex, MutexGuard, PoisonError};

static CHILDREN: Mutex<()> = Mutex::new(());

/// Waits until no other test starts children. None does while the guard lives.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}
