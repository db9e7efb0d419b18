//! The examples do what they say, and so does the README.
#![cfg(feature = "model-in-the-box")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::{fs, path::Path};

#[allow(dead_code)]
#[path = "../examples/clip.rs"]
mod clip;

#[test]
fn the_clip_in_ten_lines_is_a_video() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    clip::make_clip(&path).unwrap();
    let video = re_mp4::Mp4::read_bytes(&fs::read(&path).unwrap()).unwrap();
    let track = video.tracks().values().next().unwrap();
    assert_eq!((track.width, track.height, track.samples.len()), (128, 128, 14));
}

/// The crate's README is its front page, whose example `cargo test` compiles; the project's README has the same one.
#[test]
fn the_readmes_have_the_example_that_is_compiled() {
    let example = |path: &str| {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let after = &text[text.find("```rust").unwrap()..];
        let code = &after[after.find('\n').unwrap() + 1..];
        code[..code.find("```").unwrap()].to_owned()
    };
    assert_eq!(example("../../README.md"), example("README.md"));
    assert!(example("README.md").contains("clip.save("));
}
