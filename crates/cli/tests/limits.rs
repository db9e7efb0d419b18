//! The limits of a process, as `ulimit` and the environment set them: work, or an error that says what is missing.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod support;

use support::{Studio, after, answer, kinora, with_threads};

#[test]
fn a_thousand_threads_are_a_few() {
    let studio = Studio::new();
    for threads in ["100000", "1", "0", "18446744073709551616"] {
        let made =
            answer(studio.generate("clip.gif").args(["--force", "--json"]).env("RAYON_NUM_THREADS", threads));
        assert_eq!(made.code, Some(0), "{threads}: {made:?}");
    }
}

/// Whichever thread is refused, the program does without it or says so.
#[test]
fn few_threads_are_an_error_or_enough() {
    let studio = Studio::new();
    let mut info = kinora();
    info.args(["info", "--config", "svd", "--json"]);
    let mut pull = kinora();
    pull.args(["models", "pull", "owner/name", "--json"]).env("HF_HOME", studio.folder.path());
    let mut generate = studio.generate("clip.gif");
    generate.args(["--force", "--json"]);
    for (command, need) in [(info, 2), (generate, 2), (pull, 3)] {
        for most in 0..6 {
            let ended = answer(&mut with_threads(most, &command));
            let about = format!("{command:?}, {most} threads: {ended:?}");
            assert!(!ended.stderr.contains("panicked"), "{about}");
            let said = ended.json();
            let kind = said["error"]["kind"].as_str();
            match most {
                // For signals, and for the first of those that compute.
                0 => assert_eq!((ended.code, kind), (Some(1), Some("system")), "{about}"),
                1 => assert_eq!((ended.code, kind), (Some(1), Some("device")), "{about}"),
                _ if need == 3 => {
                    let refused = ended.stderr.contains("thread");
                    assert_eq!((ended.code, kind, refused), (Some(1), Some("model"), most < 4), "{about}");
                }
                _ => assert_eq!(ended.code, Some(0), "{about}"),
            }
        }
    }
}

/// From far too little to enough: whichever allocation fails, the program says so and leaves nothing behind.
fn sweep(option: &str, kilobytes: impl Iterator<Item = usize>) {
    let studio = Studio::new();
    let (mut made, mut refused, mut last) = (0, 0, None);
    for limit in kilobytes {
        // Below this the system cannot even load the program.
        let ulimit = format!("ulimit {option} {limit}");
        let starts = answer(&mut after(&ulimit, kinora().arg("--version")));
        let ended = answer(&mut after(&ulimit, studio.generate("clip.gif").args(["--force", "--json"])));
        let about = format!("{ulimit}: {ended:?}");
        last = ended.code;
        match ended.code {
            Some(0) => made += 1,
            Some(1) => {
                refused += 1;
                let error = &ended.json()["error"];
                assert!(["memory", "device", "system"].contains(&error["kind"].as_str().unwrap()), "{about}");
                // No note of the standard library's or of the C library's.
                let ours = |line: &str| {
                    line.starts_with("error: ") || line.starts_with("help: ") || line.starts_with("  ")
                };
                assert!(ended.stderr.starts_with("error: ") && ended.stderr.lines().all(ours), "{about}");
            }
            _ => assert_ne!(starts.code, Some(0), "{about}"),
        }
        // Nothing half-written under a name that someone would look for.
        assert!(studio.names().iter().all(|name| name == "clip.gif" || name.starts_with('.')), "{about}");
    }
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
    // How many addresses a run takes differs from run to run, so only the last limit, which is ample, surely suffices.
    assert_eq!(last, Some(0));
}

/// The folder in which numbered pictures wait takes a descriptor, and so does each picture.
#[test]
fn few_open_files_leave_nothing_behind() {
    let mut refused = 0;
    for limit in 3..16 {
        let studio = Studio::new();
        let ended =
            answer(&mut after(&format!("ulimit -n {limit}"), studio.generate("clip.png").arg("--json")));
        let about = format!("{limit}: {ended:?} {:?}", studio.names());
        match ended.code {
            Some(0) => {
                assert_eq!(studio.names(), [".clip.png.kinora", "clip-0001.png", "clip-0002.png"], "{about}")
            }
            Some(1) => {
                refused += 1;
                assert!(ended.json()["error"]["kind"].is_string() && studio.names().is_empty(), "{about}");
            }
            // The system cannot even load the program.
            _ => assert!(studio.names().is_empty() && ended.stderr.contains("shared libraries"), "{about}"),
        }
    }
    assert!(refused > 2, "{refused}");
}

#[test]
fn few_addresses_are_an_error() {
    sweep("-v", (0..16).map(|step| 40_000 + 25_000 * step).chain([2_000_000]));
}

#[test]
fn little_data_is_an_error() {
    sweep("-d", (0..16).map(|step| 5_000 + 12_000 * step).chain([2_000_000]));
}
