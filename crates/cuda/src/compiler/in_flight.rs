//! Kernels that this process is compiling. Who wants one of them waits for it, and finds it in the cache: calls that need the same
//! kernel often come to it at the same time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Key;

static UNDER_WAY: Mutex<Vec<Key>> = Mutex::new(Vec::new());
static DONE: Condvar = Condvar::new();

fn under_way() -> MutexGuard<'static, Vec<Key>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to compile a kernel, which one thread has at a time.
pub(super) struct InFlight(Key);

impl InFlight {
    /// Waits until nobody else compiles it.
    pub(super) fn begin(key: Key) -> InFlight {
        let there = |keys: &mut Vec<Key>| keys.contains(&key);
        let mut keys = DONE.wait_while(under_way(), there).unwrap_or_else(PoisonError::into_inner);
        keys.push(key);
        InFlight(key)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        under_way().retain(|key| *key != self.0);
        DONE.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        thread,
    };

    use super::*;

    #[test]
    fn one_thread_has_a_key_and_others_have_theirs() {
        let (one, other) = (Key([1; 32]), Key([2; 32]));
        let (within, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let _other = InFlight::begin(other);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _mine = InFlight::begin(one);
                        most.fetch_max(within.fetch_add(1, SeqCst) + 1, SeqCst);
                        thread::yield_now();
                        within.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
    }
}
