//! Ctrl-C and termination requests: the work stops at its next step, and nothing half-written is left.

use std::{
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    process,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU8, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::failure::{EXIT_INTERRUPTED, Failure};

/// When the program was first asked to end.
static REQUESTED: OnceLock<Instant> = OnceLock::new();
/// What runs before the program exits immediately.
static CLEANUP: OnceLock<fn()> = OnceLock::new();
static PHASE: AtomicU8 = AtomicU8::new(Phase::AtOnce as u8);
/// Whether a download is under way, of which a part stays.
static DOWNLOADING: AtomicBool = AtomicBool::new(false);

/// Requests this close to the first count as the same one: `timeout` and shells signal both a program and its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// What the program is doing, as far as an interrupt is concerned.
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
    /// Enters this phase.
    pub fn enter(self) {
        PHASE.store(self as u8, SeqCst);
    }
}

/// Registers work to do if the program exits immediately, such as ending processes that would outlive it.
pub fn on_immediate_exit(cleanup: fn()) {
    // A program runs one command, and a command has one cleanup.
    let _ = CLEANUP.set(cleanup);
}

/// Says whether a download is under way: if the program ends now, what has arrived is kept.
pub fn set_downloading(downloading: bool) {
    DOWNLOADING.store(downloading, SeqCst);
}

/// Whether the program was asked to end.
pub fn requested() -> bool {
    REQUESTED.get().is_some()
}

/// The same, for callbacks.
pub fn control_flow() -> ControlFlow<()> {
    if requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Does something that takes milliseconds and would leave a file behind if it were cut short. A request to end that
/// arrives meanwhile takes effect afterwards.
pub fn uninterrupted<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let result = to_completion(work);
    if requested() { Err(Failure::Interrupted) } else { result }
}

/// The same for work that is done even after a request to end. The caller checks whether there was one.
pub fn to_completion<T>(work: impl FnOnce() -> T) -> T {
    let before = PHASE.swap(Phase::Writing as u8, SeqCst);
    let result = work();
    PHASE.store(before, SeqCst);
    result
}

/// Whether a request ends the program immediately; `since` is how long ago the first request came, if this is a later
/// one.
fn ends_at_once(phase: u8, since: Option<Duration>) -> bool {
    let again = since.is_some();
    let same = since.is_some_and(|since| since < TOGETHER);
    !same && (phase == Phase::AtOnce as u8 || (phase == Phase::AtNextStep as u8 && again))
}

/// Installs the handler. `json` says whether the program's output is a JSON object.
pub fn listen(json: bool) -> Result<(), Failure> {
    ctrlc::set_handler(move || {
        let first = REQUESTED.set(Instant::now()).is_ok();
        let since = REQUESTED.get().filter(|_| !first).map(Instant::elapsed);
        if ends_at_once(PHASE.load(SeqCst), since) {
            if io::stderr().is_terminal() {
                // The cursor may be on a progress bar's line.
                let _ = io::stderr().write_all(b"\n");
            }
            let downloading = DOWNLOADING.load(SeqCst);
            let failure = if downloading { Failure::InterruptedDownload } else { Failure::Interrupted };
            failure.report(json);
            if let Some(cleanup) = CLEANUP.get() {
                cleanup();
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
