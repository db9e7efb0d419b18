//! The limits of a process, as `ulimit` and the environment set them: work, or an error that says what is missing.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod support;

use support::{Studio, after, answer, kinora};

#[test]
fn a_thousand_threads_are_a_few() {
    let studio = Studio::new();
    for threads in ["100000", "1", "0", "18446744073709551616"] {
        let made =
            answer(studio.generate("clip.gif").args(["--force", "--json"]).env("RAYON_NUM_THREADS", threads));
        assert_eq!(made.code, Some(0), "{threads}: {made:?}");
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
                assert!(!ended.stderr.contains("panicked"), "{about}");
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

#[test]
fn few_addresses_are_an_error() {
    sweep("-v", (0..16).map(|step| 40_000 + 25_000 * step).chain([2_000_000]));
}

#[test]
fn little_data_is_an_error() {
    sweep("-d", (0..16).map(|step| 5_000 + 12_000 * step).chain([2_000_000]));
}
