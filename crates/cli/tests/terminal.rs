//! The program on a terminal: a pseudo-terminal of a given width.
#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    fs::File,
    io::Read,
    os::fd::{FromRawFd, OwnedFd},
    process::Command,
    ptr,
};

use support::{Studio, kinora, model, photo};

/// Both ends of a new terminal.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let (mut master, mut slave) = (0, 0);
    let mut size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes two descriptors and reads the size; the other pointers may be null.
    let made =
        unsafe { libc::openpty(&mut master, &mut slave, ptr::null_mut(), ptr::null_mut(), &raw mut size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both descriptors are new and belong to nobody else.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

/// Runs a command on a terminal; gives all that it wrote there.
fn shown(columns: u16, mut command: Command) -> String {
    let (mut master, slave) = terminal(columns);
    command.env("TERM", "xterm-256color").stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    // The last copy of the other end goes with the child, and reading ends.
    drop(command);
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    // Linux says EIO where others say that it is the end.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        bytes.extend(&piece[..count]);
    }
    let status = child.wait().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(status.success(), "{text}");
    text
}

/// The rows as a person sees them, each state of a progress bar for itself.
fn rows(text: &str) -> Vec<String> {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.split(['\r', '\n']).map(str::to_owned).filter(|row| !row.trim().is_empty()).collect()
}

fn assert_fits(text: &str, columns: u16) {
    for row in rows(text) {
        assert!(row.chars().count() <= usize::from(columns), "{columns} columns: {row:?}");
    }
}

fn generate(studio: &Studio) -> Command {
    let mut command = kinora();
    command.current_dir(studio.folder.path()).arg("generate").arg(photo("rgba.png"));
    command.arg("--model").arg(model()).args(["--size", "64x256", "--frames", "2", "--steps", "30"]);
    command.args(["--force", "-o", "clip.mp4"]);
    command
}

#[test]
fn progress_and_results_fit_the_terminal() {
    let studio = Studio::new();
    for columns in [80, 40] {
        let text = shown(columns, generate(&studio));
        assert_fits(&text, columns);
        let rows = rows(&text);
        let starts = |start: &str| rows.iter().any(|row| row.starts_with(start));
        for start in
            ["✓ reading the photo", "✓ encoding the photo", "✓ denoising", "✓ decoding frames", "warning: "]
        {
            assert!(starts(start), "{columns} columns, {start}: {rows:#?}");
        }
        // Words are not cut, and what follows a break is indented.
        assert!(starts("         ") && rows.iter().any(|row| row.contains("seed")), "{rows:#?}");
        assert!(rows.iter().any(|row| row.contains("denoising") && row.contains("/30")), "{rows:#?}");
        assert_eq!(rows.iter().any(|row| row.contains("━")), columns == 80, "a bar only if there is room");
    }
}

/// Without a thread for the bar's clock, the bar moves only when its stage does.
#[cfg(target_os = "linux")]
#[test]
fn a_bar_needs_no_thread_of_its_own() {
    let studio = Studio::new();
    for most in 2..5 {
        let text = shown(80, support::with_threads(most, &generate(&studio)));
        assert!(rows(&text).iter().any(|row| row.contains("denoising") && row.contains("/30")), "{text}");
    }
}

#[test]
fn errors_and_help_fit_the_terminal() {
    for words in [
        &["--help"][..],
        &["generate", "--help"],
        &["generate", "-h"],
        &["bench", "--help"],
        &["sim", "--help"],
    ] {
        let mut command = kinora();
        command.args(words);
        assert_fits(&shown(80, command), 80);
    }
    let text = shown(80, {
        let mut command = kinora();
        command.arg("--help");
        command
    });
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words} is not in {text}"));
    assert!(at("generate ") < at("For those who write kernels") && at("demo-model ") > at("For those who"));
}

/// It runs every check, but for the slow ones it need not run twice.
#[test]
fn the_doctor_fits_the_terminal() {
    let mut command = kinora();
    command.args(["doctor", "--device", "cpu"]);
    assert_fits(&shown(60, command), 60);
}
