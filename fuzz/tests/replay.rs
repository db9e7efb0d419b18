//! Every input that fuzzing kept is read again: what once went wrong stays mended, and what once was reached is reached.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use kinora_fuzz::{TARGETS, Target};

const KINDS: [&str; 2] = ["corpus", "regressions"];

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind)
}

/// The paths in a folder, in the order of their names; none if there is no such folder.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn replay(target: &Target) {
    for path in KINDS.iter().flat_map(|kind| entries(&folder(kind).join(target.name))) {
        // The name of the input is what a person needs if it ends the process.
        println!("{}", path.display());
        (target.run)(&fs::read(&path).unwrap());
    }
}

/// One test for each target, so that they run side by side and a failure has its name.
macro_rules! replays {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            replay(Target::named(stringify!($name)).unwrap());
        })+

        #[test]
        fn every_target_is_replayed_and_has_a_corpus() {
            let replayed = BTreeSet::from([$(stringify!($name)),+]);
            let targets: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(replayed, targets);
            for target in TARGETS {
                assert!(!entries(&folder("corpus").join(target.name)).is_empty(), "{} has no corpus", target.name);
            }
        }
    };
}

replays!(
    controlnet,
    defaults,
    graph,
    hub_headers,
    hub_listing,
    image_encoder,
    lora,
    matrix_market,
    matrix_recipe,
    model_index,
    mp4,
    photo,
    preprocessor,
    profile,
    ptx,
    results,
    scheduler,
    text_encoder,
    tiny_vae,
    tokenizer,
    unet,
    unet2d,
    vae,
    video_stream,
    weights,
    weights_index,
);

/// A folder that no target reads would be kept for nothing.
#[test]
fn nothing_else_is_kept() {
    for path in KINDS.iter().flat_map(|kind| entries(&folder(kind))) {
        let name = path.file_name().unwrap().to_string_lossy();
        assert!(Target::named(&name).is_some(), "{}: there is no such target", path.display());
    }
}

/// The corpus travels with every checkout.
#[test]
fn the_corpus_is_small() {
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    let all: u64 = KINDS
        .iter()
        .flat_map(|kind| entries(&folder(kind)))
        .flat_map(|target| entries(&target))
        .map(|path| size(&path))
        .sum();
    assert!(all < 2 << 20, "{all} bytes: minimise it with `cargo xtask fuzz --minimise`");
}
