//! Ctrl-C and other requests to end: the program ends at once if nothing is lost by it, and leaves nothing half-written.

#[cfg(unix)]
mod signals;

use std::{
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use kinora::runtime::Stop;
use serde_json::{Value, json};

use crate::failure::{EXIT_INTERRUPTED, Failure};

/// When the program was first asked to end.
static REQUESTED: OnceLock<Instant> = OnceLock::new();
/// What runs before the program exits immediately.
static CLEANUP: OnceLock<fn()> = OnceLock::new();
/// Whether the listener is ending the program. Locked while it decides.
static ENDING: Mutex<bool> = Mutex::new(false);
static PHASE: AtomicU8 = AtomicU8::new(Phase::AtOnce as u8);
/// Whether a download is under way, of which a part stays.
static DOWNLOADING: AtomicBool = AtomicBool::new(false);

/// What is said of work of which something stays, or which has no other end.
static WORDS: OnceLock<&str> = OnceLock::new();

/// The work that the first request stops.
static STOPS: Mutex<Option<Stop>> = Mutex::new(None);

/// What is reported of several clips if the program ends between them.
static CLIPS: Mutex<Option<Clips>> = Mutex::new(None);

struct Clips {
    reports: Vec<Value>,
    made: usize,
    asked: usize,
}

/// Requests this close to the first count as the same one: `timeout` and shells signal both a program and its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// What the program is doing, as far as an interrupt is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nothing would be left behind or lost: the first request ends the program, however long a step may take.
    AtOnce,
    /// The first request ends the work after this case of a benchmark, because the finished ones are kept; the second does
    /// not wait for it. No file is being written.
    AtNextCase,
    /// A file is being written: every request waits for the next frame, which takes milliseconds.
    Writing,
    /// A frame is being drawn for a file. The first request stops it, if it was named with [`stops`], and the file ends with the frame
    /// before; the second does not wait for that.
    Drawing,
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

/// Names what is said if the program ends now. A program runs one command, which has one.
#[cfg(feature = "simulator")]
pub fn set_words(words: &'static str) {
    let _ = WORDS.set(words);
}

/// Says which of several clips are finished, or have failed: if the program ends now, their files are kept and they are reported.
pub fn set_clips(reports: &[Value], made: usize, asked: usize) {
    let clips = Clips { reports: reports.to_vec(), made, asked };
    *CLIPS.lock().unwrap_or_else(PoisonError::into_inner) = Some(clips);
}

/// Names the work that the first request stops.
pub fn stops(stop: Stop) {
    *STOPS.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop.clone());
    // It may have come before.
    if requested() {
        stop.request();
    }
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
    // Asked again within: the listener may just have found that the program can end at once.
    let result = to_completion(|| if requested() { Err(interrupted()) } else { work() });
    if requested() { Err(interrupted()) } else { result }
}

/// The same for work that is done even after a request to end. The caller checks whether there was one.
pub fn to_completion<T>(work: impl FnOnce() -> T) -> T {
    let before = PHASE.swap(Phase::Writing as u8, SeqCst);
    let result = work();
    PHASE.store(before, SeqCst);
    result
}

/// Draws a frame for a file that is being written: see [`Phase::Drawing`].
pub fn drawing<T>(draw: impl FnOnce() -> T) -> T {
    let change =
        |from: Phase, to: Phase| PHASE.compare_exchange(from as u8, to as u8, SeqCst, SeqCst).is_ok();
    let writing = change(Phase::Writing, Phase::Drawing);
    let drawn = draw();
    if writing {
        change(Phase::Drawing, Phase::Writing);
    }
    drawn
}

/// Leaves the program's end to the listener if it has begun with it, so that not both of them report it.
pub fn settle() {
    while *ENDING.lock().unwrap_or_else(PoisonError::into_inner) {
        thread::park();
    }
}

/// Whether a request ends the program immediately; `since` is how long ago the first request came, if this is a later
/// one.
fn ends_at_once(phase: u8, since: Option<Duration>) -> bool {
    let again = since.is_some();
    let same = since.is_some_and(|since| since < TOGETHER);
    let at_the_second = [Phase::AtNextCase, Phase::Drawing].iter().any(|&waits| phase == waits as u8);
    !same && (phase == Phase::AtOnce as u8 || (at_the_second && again))
}

/// What the program may take to say that it was interrupted. Whoever reads its output may not be reading.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Begins to listen for requests to end. `json` says whether the program's output is a JSON object. No other thread may have
/// been started.
pub fn listen(json: bool) -> Result<(), Failure> {
    signals::listen(move || {
        let mut ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
        let first = REQUESTED.set(Instant::now()).is_ok();
        let since = REQUESTED.get().filter(|_| !first).map(Instant::elapsed);
        if let Some(stop) = &*STOPS.lock().unwrap_or_else(PoisonError::into_inner) {
            stop.request();
        }
        *ending = ends_at_once(PHASE.load(SeqCst), since);
        if *ending {
            drop(ending);
            end(json);
        }
    })
    .map_err(Failure::Signals)
}

/// Ends the program, and says so.
fn end(json: bool) -> ! {
    if let Some(cleanup) = CLEANUP.get() {
        cleanup();
    }
    // Without this thread there is only more to wait for.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(LAST_WORDS);
        exit();
    });
    if io::stderr().is_terminal() {
        // The cursor may be on a progress bar's line.
        let _ = io::stderr().write_all(b"\n");
    }
    let clips = CLIPS.lock().unwrap_or_else(PoisonError::into_inner).take();
    let failure = match (DOWNLOADING.load(SeqCst), clips) {
        (true, _) => Failure::InterruptedDownload,
        (false, None) => interrupted(),
        (false, Some(Clips { reports, made, asked })) => {
            Failure::InterruptedClips { made, asked }.after(json!({ "clips": reports }))
        }
    };
    failure.report(json);
    exit()
}

/// The interruption, in the words for what the program does.
fn interrupted() -> Failure {
    WORDS.get().map_or(Failure::Interrupted, |words| Failure::InterruptedWith(words))
}

/// Exits without the libraries' own work at the end: threads are still computing, with what these would take down.
#[cfg(unix)]
fn exit() -> ! {
    // SAFETY: ends the process and runs none of its code.
    unsafe { libc::_exit(EXIT_INTERRUPTED.into()) }
}

#[cfg(not(unix))]
fn exit() -> ! {
    std::process::exit(EXIT_INTERRUPTED.into())
}

/// Ctrl-C and its like on systems without signals.
#[cfg(not(unix))]
mod signals {
    use std::io;

    pub fn listen(heard: impl Fn() + Send + 'static) -> io::Result<()> {
        ctrlc::set_handler(heard).map_err(io::Error::other)
    }
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
        assert!(!at(Phase::AtNextCase, &[]) && !at(Phase::AtNextCase, &[20]));
        assert!(at(Phase::AtNextCase, &[900]));
        assert!(!at(Phase::Drawing, &[]) && !at(Phase::Drawing, &[20]));
        assert!(at(Phase::Drawing, &[900]));
        assert!(!at(Phase::Writing, &[]) && !at(Phase::Writing, &[900]));
    }
}
