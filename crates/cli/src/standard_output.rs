//! Standard output, which may be closed, full, or without a reader.

use std::{
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use kinora_outside::printable;

use crate::failure::Failure;

/// Whether the program was started without it.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's own start, which puts `/dev/null` in the place of a standard stream that is closed. After that a program that
/// is started as `kinora … >&-` would take everything for written.
#[cfg(any(target_os = "linux", target_os = "macos"))]
#[used]
// SAFETY: the loader calls the functions in this section once, before `main`. This one asks the system a question and stores a flag: it
// uses nothing that has to be set up first.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
static AT_START: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: takes two numbers, and fails if the first is no open file.
        CLOSED.store(unsafe { libc::fcntl(1, libc::F_GETFD) } == -1, Relaxed);
    }
    look
};

/// Refuses to go on if there is no standard output to write to.
pub fn check() -> Result<(), Failure> {
    if CLOSED.load(Relaxed) {
        let closed = io::Error::other("it is closed; redirect it to a file or a program");
        return Err(Failure::StandardOutput(closed));
    }
    Ok(())
}

/// Prints to standard output, whose reader may be gone, in which case `println!` would panic. The text may quote files, so
/// whatever a terminal would obey is shown instead.
pub fn print(text: &str) -> Result<(), Failure> {
    print_styled(&printable(text))
}

/// The same for text with colours, which only terminals get. What it quotes must be [`printable`] already.
pub fn print_styled(text: &str) -> Result<(), Failure> {
    check()?;
    let mut output = anstream::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(Failure::StandardOutput)
}
