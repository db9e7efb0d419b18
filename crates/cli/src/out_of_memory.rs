//! The program's allocator: the system's, and a last word when it has nothing left.
//!
//! What is large is asked of the system itself, where the lack of it can be reported as an error of its own. For everything else a
//! failed allocation would end the program by a signal, after a note of the standard library's and with nothing said to whoever
//! reads its JSON object.

use std::{
    alloc::{GlobalAlloc, Layout},
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Relaxed},
    },
};

/// Whether the program's output is a JSON object.
static JSON: AtomicBool = AtomicBool::new(false);

/// Says whether the program's output is a JSON object.
pub fn set_json(json: bool) {
    JSON.store(json, Relaxed);
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

/// What people read.
pub const MESSAGE: &str = "error: the program ran out of memory\n\
    help: lower --size, --frames or --decode-chunk; --precision f16 halves the weights; close other programs\n";

/// What programs read.
const JSON_MESSAGE: &str = concat!(
    r#"{"error":{"causes":[],"exit_code":1,"#,
    r#""help":"lower --size, --frames or --decode-chunk; --precision f16 halves the weights; close other programs","#,
    r#""kind":"memory","message":"the program ran out of memory"}}"#,
    "\n"
);

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
    write(2, MESSAGE);
    if JSON.load(Relaxed) {
        write(1, JSON_MESSAGE);
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
        let object: serde_json::Value = serde_json::from_str(JSON_MESSAGE).unwrap();
        let error = &object["error"];
        assert_eq!((&error["kind"], &error["exit_code"]), (&"memory".into(), &1.into()));
        for field in ["message", "help"] {
            assert!(MESSAGE.contains(error[field].as_str().unwrap()), "{field}");
        }
        assert!(MESSAGE.lines().chain(JSON_MESSAGE.lines()).count() == 3);
    }
}
