//! A clip takes the memory that its plan said. `cargo run -p kinora --example memory_table` measures more of them.
#![cfg(all(target_os = "linux", feature = "model-in-the-box"))]
#![allow(clippy::unwrap_used)]

#[path = "../examples/memory_table/measure.rs"]
mod measure;

use std::{env, path::PathBuf, process::Command};

use kinora::image_to_video::Precision;
use kinora_models::presets::Preset;
use measure::{Case, Measured};

/// Names the folder for the process that makes the clip.
const FOLDER: &str = "KINORA_MEMORY_TEST";

/// Each network is freed before the next is loaded, the UNet in many parts of a few hundred kilobytes: an allocator keeps
/// such memory. The photo is larger than everything else.
#[test]
fn a_clip_takes_what_its_plan_said() {
    let case = Case {
        model: Some("small"),
        precision: Precision::F16,
        clip: [4, 128, 128],
        decode_chunk: 2,
        keep_loaded: false,
        cache: 1,
        photo: [3000, 2000],
        format: "mp4",
    };
    check("a_clip_takes_what_its_plan_said", &case);
}

/// Both networks of the steps are there at once, their weights once, and what is kept for shallow steps.
#[test]
fn a_cached_clip_takes_what_its_plan_said() {
    let case = Case {
        model: Some("small"),
        precision: Precision::F32,
        clip: [6, 256, 256],
        decode_chunk: 1,
        keep_loaded: false,
        cache: 2,
        photo: [256, 256],
        format: "mp4",
    };
    check("a_cached_clip_takes_what_its_plan_said", &case);
}

fn check(name: &str, case: &Case) {
    if let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) {
        let measured = measure::make(case, &folder).unwrap();
        println!("measured {}", serde_json::to_string(&measured).unwrap());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    Preset::small().model.write(&folder.path().join("small")).unwrap();
    measure::write_photo(folder.path(), case.photo).unwrap();
    // In a process of its own, so that only the clip's memory counts.
    let mut child = Command::new(env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(FOLDER, folder.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let measured = said.lines().find_map(|line| line.split_once("measured ")).expect(&said).1;
    let measured: Measured = serde_json::from_str(measured).unwrap();
    assert!(measured.peak <= measured.bound(), "{measured:?}");
    // Nor is it said to take much more than it does.
    assert!(measured.planned <= measured.peak / 20 * 21 + 20_000_000, "{measured:?}");
}
