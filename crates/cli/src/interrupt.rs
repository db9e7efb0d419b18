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
    let before = PHASE.swap(Phase::Writing as u8, SeqCst);
    let result = work();
    PHASE.store(before, SeqCst);
    if asked() { Err(Failure::Interrupted) } else { result }
}

/// Listens from now on. `json` is whether the program's answer is a JSON object.
pub fn listen(json: bool) -> Result<(), Failure> {
    ctrlc::set_handler(move || {
        let first = ASKED.set(Instant::now()).is_ok();
        if !first && ASKED.get().is_some_and(|asked| asked.elapsed() < TOGETHER) {
            return;
        }
        let phase = PHASE.load(SeqCst);
        if phase == Phase::AtOnce as u8 || (phase == Phase::AtNextStep as u8 && !first) {
            if io::stderr().is_terminal() {
                // A bar may stand in the line.
                let _ = io::stderr().write_all(b"\n");
            }
            Failure::Interrupted.report(json);
            process::exit(EXIT_INTERRUPTED.into());
        }
    })
    .map_err(Failure::Signals)
}
