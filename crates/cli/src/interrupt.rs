//! Ctrl-C, and a request to end: the work stops at its next step, and nothing half-written is left.

use std::{
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    process,
    sync::{
        OnceLock,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::failure::{EXIT_INTERRUPTED, Failure};

/// When someone first wanted the program to end.
static ASKED: OnceLock<Instant> = OnceLock::new();
/// What is done before the program exits at once.
static BEFORE_EXIT: OnceLock<fn()> = OnceLock::new();
static PHASE: AtomicU8 = AtomicU8::new(Phase::AtOnce as u8);

/// Requests this close to the first are the same one: `timeout` and shells send theirs to a program and to its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// What the program is doing, as far as it matters to someone who wants it to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nothing would be left behind: the first request ends the program.
    AtOnce,
    /// The first request ends the work at its next step; the second does not wait for it. No file is being written.
    AtNextStep,
    /// A file is being written: every request waits for the next frame, which takes milliseconds.
    Writing,
}

impl Phase {
    /// From now on the program does this.
    pub fn enter(self) {
        PHASE.store(self as u8, SeqCst);
    }
}

/// Sets what is done before the program exits at once: processes that it started would outlive it.
pub fn before_exit(action: fn()) {
    // The program runs one command, and a command sets it once.
    let _ = BEFORE_EXIT.set(action);
}

/// Whether someone wants the program to end.
pub fn asked() -> bool {
    ASKED.get().is_some()
}

/// The same, for callbacks.
pub fn control_flow() -> ControlFlow<()> {
    if asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Does something that leaves a file behind where it is ended at once, and takes milliseconds. Whoever asked meanwhile for the
/// program to end is heard after it.
pub fn uninterrupted<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let result = to_its_end(work);
    if asked() { Err(Failure::Interrupted) } else { result }
}

/// The same for what is to be done though someone has asked; who calls it looks whether anyone has.
pub fn to_its_end<T>(work: impl FnOnce() -> T) -> T {
    let before = PHASE.swap(Phase::Writing as u8, SeqCst);
    let result = work();
    PHASE.store(before, SeqCst);
    result
}

/// Whether a request ends the program at once; `since` is how long ago the first one came, where this is another.
fn ends_at_once(phase: u8, since: Option<Duration>) -> bool {
    let again = since.is_some();
    let same = since.is_some_and(|since| since < TOGETHER);
    !same && (phase == Phase::AtOnce as u8 || (phase == Phase::AtNextStep as u8 && again))
}

/// Listens from now on. `json` is whether the program's answer is a JSON object.
pub fn listen(json: bool) -> Result<(), Failure> {
    ctrlc::set_handler(move || {
        let first = ASKED.set(Instant::now()).is_ok();
        let since = ASKED.get().filter(|_| !first).map(Instant::elapsed);
        if ends_at_once(PHASE.load(SeqCst), since) {
            if io::stderr().is_terminal() {
                // A bar may stand in the line.
                let _ = io::stderr().write_all(b"\n");
            }
            Failure::Interrupted.report(json);
            if let Some(action) = BEFORE_EXIT.get() {
                action();
            }
            process::exit(EXIT_INTERRUPTED.into());
        }
    })
    .map_err(Failure::Signals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_twice_at_a_time_is_one() {
        let at = |phase: Phase, milliseconds: &[u64]| {
            ends_at_once(phase as u8, milliseconds.first().map(|&since| Duration::from_millis(since)))
        };
        assert!(at(Phase::AtOnce, &[]));
        // The work has ended since the first, and its results are being written.
        assert!(!at(Phase::AtOnce, &[20]));
        assert!(at(Phase::AtOnce, &[900]));
        assert!(!at(Phase::AtNextStep, &[]) && !at(Phase::AtNextStep, &[20]));
        assert!(at(Phase::AtNextStep, &[900]));
        assert!(!at(Phase::Writing, &[]) && !at(Phase::Writing, &[900]));
    }
}
