//! The program's allocator: the system's, and a last word when it has nothing left.
//!
//! What is large is asked of the system itself, where the lack of it can be reported as an error of its own. For everything else a
//! failed allocation would end the program by a signal, after a note of the standard library's and with nothing said to whoever
//! reads its JSON object.

use std::{
    alloc::{GlobalAlloc, Layout},
    sync::{
        OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Relaxed},
        },
    },
};

/// Whether the program's output is a JSON object.
static JSON: AtomicBool = AtomicBool::new(false);

/// Says whether the program's output is a JSON object.
pub fn set_json(json: bool) {
    JSON.store(json, Relaxed);
}

/// What to do about it, for the command that runs.
static ADVICE: OnceLock<String> = OnceLock::new();

/// The options of a clip that need less memory.
const OF_A_CLIP: &str =
    "lower --size, --frames or --decode-chunk; --precision f16 halves the weights; close other programs";

/// Says what to do if memory runs out. It goes into a JSON text as it is, so it must have no quotes and no backslashes. A program runs
/// one command: what is said first stays.
pub fn set_advice(advice: String) {
    ADVICE.get_or_init(|| advice);
}

/// What to do if memory runs out: what was set, or else what helps a clip.
pub fn advice() -> &'static str {
    ADVICE.get().map_or(OF_A_CLIP, String::as_str)
}

/// An allocator that ends the program with a message if something cannot be had.
pub struct Allocator<A>(pub A);

// SAFETY: all calls are handed on to the other allocator, and so are its answers, unless the program ends.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Allocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(|| unsafe { self.0.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(|| unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(|| unsafe { self.0.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.dealloc(block, layout) }
    }
}

fn checked(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let block = allocate();
    if !block.is_null() {
        return block;
    }
    // There may be enough once it is put together.
    give_back();
    let block = allocate();
    if block.is_null() { last_words() } else { block }
}

/// Hands memory that was freed back to the system.
fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What people read, in parts, since nothing can be put together any more.
pub fn message() -> [&'static str; 3] {
    ["error: the program ran out of memory\nhelp: ", advice(), "\n"]
}

/// What programs read.
fn json_message() -> [&'static str; 3] {
    [
        r#"{"error":{"causes":[],"exit_code":1,"help":""#,
        advice(),
        concat!(r#"","kind":"memory","message":"the program ran out of memory"}}"#, "\n"),
    ]
}

/// Reports the failure and ends the program, without allocating anything. If memory ends for several threads at once, one of them
/// speaks, and the others wait for the end.
fn last_words() -> ! {
    static SPOKEN: AtomicBool = AtomicBool::new(false);
    while SPOKEN.swap(true, AcqRel) {
        #[cfg(unix)]
        // SAFETY: waits for a signal, and does nothing else.
        unsafe {
            libc::pause();
        }
    }
    message().into_iter().for_each(|part| write(2, part));
    if JSON.load(Relaxed) {
        json_message().into_iter().for_each(|part| write(1, part));
    }
    #[cfg(unix)]
    // SAFETY: ends the process and runs none of its code.
    unsafe {
        libc::_exit(1)
    }
    #[cfg(not(unix))]
    std::process::exit(1)
}

#[cfg(unix)]
fn write(file: libc::c_int, text: &str) {
    // If no one can be told, there is nothing else to do.
    // SAFETY: the text is valid for reading its length.
    let _ = unsafe { libc::write(file, text.as_ptr().cast(), text.len()) };
}

#[cfg(not(unix))]
fn write(file: i32, text: &str) {
    use std::io::Write;
    let _ = match file {
        1 => std::io::stdout().write_all(text.as_bytes()),
        _ => std::io::stderr().write_all(text.as_bytes()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_valid_and_the_same() {
        let (message, json) = (message().concat(), json_message().concat());
        let object: serde_json::Value = serde_json::from_str(&json).unwrap();
        let error = &object["error"];
        assert_eq!((&error["kind"], &error["exit_code"]), (&"memory".into(), &1.into()));
        for field in ["message", "help"] {
            assert!(message.contains(error[field].as_str().unwrap()), "{field}");
        }
        assert!(message.lines().chain(json.lines()).count() == 3);
    }
}
