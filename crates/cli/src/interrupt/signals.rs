//! The system's signals: which of them ask the program to end, and who hears them.

use std::{
    io,
    mem::MaybeUninit,
    ptr,
    thread::{self, Builder},
};

use libc::{SIG_IGN, SIGHUP, SIGINT, SIGTERM, SIGXCPU, SIGXFSZ, c_int, sigset_t};

/// What asks a program to end: Ctrl-C, a service manager, a terminal that was closed, and a limit on CPU time.
const REQUESTS: [c_int; 4] = [SIGINT, SIGTERM, SIGHUP, SIGXCPU];

/// Calls `heard` on a thread of its own for each request to end. A signal that whoever started the program has it ignore,
/// as `nohup` does, stays ignored.
///
/// It must be called before any other thread is started: threads inherit that these signals are not for them.
pub fn listen(heard: impl Fn() + Send + 'static) -> io::Result<()> {
    // A file beyond `ulimit -f` is then an error of the write, and what was written can be removed.
    // SAFETY: to ignore a signal runs no code.
    unsafe { libc::signal(SIGXFSZ, SIG_IGN) };
    let requests = set_of(&REQUESTS.into_iter().filter(|&signal| !is_ignored(signal)).collect::<Vec<_>>());
    // Blocked in every thread, they wait until one asks for them: no handler interrupts anything.
    mask(libc::SIG_BLOCK, &requests)?;
    let listener = move || loop {
        let mut signal = 0;
        // SAFETY: the set was initialised, and the call writes one number.
        if unsafe { libc::sigwait(&raw const requests, &raw mut signal) } == 0 {
            heard();
        } else {
            // An invalid set, or one without any signal.
            thread::park();
        }
    };
    if let Err(error) = Builder::new().name("signals".to_owned()).spawn(listener) {
        // With no one to hear them, the signals do what they always do.
        mask(libc::SIG_UNBLOCK, &requests)?;
        return Err(error);
    }
    Ok(())
}

fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call only reads the signal's action into `action`, for which all zeros are a valid value.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == SIG_IGN
    }
}

fn set_of(signals: &[c_int]) -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set, and `sigaddset` adds to it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Changes which signals this thread, and those that it starts from now on, leave waiting.
fn mask(how: c_int, signals: &sigset_t) -> io::Result<()> {
    // SAFETY: the set was initialised; the previous one is not asked for.
    match unsafe { libc::pthread_sigmask(how, signals, ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
