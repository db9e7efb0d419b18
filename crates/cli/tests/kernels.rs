//! `kinora kernels build`.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{collections::BTreeSet, fs, io::Write, path::Path};

use support::{answer, kinora, model, run};

#[test]
fn a_bundle_holds_the_kernels_of_a_clip_for_each_architecture() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    // What an earlier run of the tests compiled is found again.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel-cache");
    let build = |arch: &str| {
        let mut command = kinora();
        command.env("KINORA_CACHE_DIR", &cache).args(["kernels", "build", "--json", "--arch", arch]);
        // The kernels of f32 compile in the shortest time.
        answer(command.arg("-o").arg(&bundle).arg("--model").arg(model()).args(["--precision", "f32"]))
    };
    let built = build("sm_75,sm_90a");
    if built.stderr.contains("NVRTC") && std::env::var_os("KINORA_REQUIRE_NVRTC").is_none() {
        let _ = writeln!(std::io::stderr(), "a_bundle_holds_the_kernels_of_a_clip not run: no NVRTC");
        return;
    }
    assert_eq!((built.code, &*built.stderr), (Some(0), ""), "{built:?}");
    let answer = built.json();
    let count = |at: usize| answer["architectures"][at]["kernels"].as_u64().unwrap();
    assert_eq!(answer["architectures"][1]["architecture"], "sm_90a");
    assert!(count(0) > 10 && count(1) > 10, "{answer}");

    let index = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(path.join("index.json")).unwrap()).unwrap()
    };
    let of = |target: &str| {
        let kernels = index(&bundle)["kernels"].clone();
        kernels.as_object().unwrap().values().filter(|kernel| kernel["target"] == target).count() as u64
    };
    assert_eq!((of("sm_75"), of("sm_90a")), (count(0), count(1)));
    // Another architecture comes beside those that are there.
    let more = build("sm_80").json();
    assert_eq!(of("sm_80"), more["architectures"][0]["kernels"].as_u64().unwrap());
    assert_eq!((of("sm_75"), of("sm_90a")), (count(0), count(1)));
    assert!(more["bytes"].as_u64() > answer["bytes"].as_u64());
}

#[test]
fn a_bundle_holds_the_kernels_of_live_video() {
    let folder = tempfile::tempdir().unwrap();
    let here = |words: &[&str]| {
        let mut command = kinora();
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel-cache");
        command.current_dir(folder.path()).env("KINORA_CACHE_DIR", cache).args(words);
        command
    };
    assert_eq!(answer(&mut here(&["demo-model", "--preset", "live", "model"])).code, Some(0));
    let live = ["--model", "model", "--autoencoder", "model/tiny", "--precision", "f32"];
    let build = |words: &[&str]| {
        answer(here(&["kernels", "build", "--arch", "sm_90a", "--json", "-o"]).args(words).args(live))
    };
    let built = build(&["bundle", "--steps", "2", "--size", "64x64"]);
    if built.stderr.contains("NVRTC") && std::env::var_os("KINORA_REQUIRE_NVRTC").is_none() {
        let _ = writeln!(std::io::stderr(), "a_bundle_holds_the_kernels_of_live_video not run: no NVRTC");
        return;
    }
    assert_eq!((built.code, &*built.stderr), (Some(0), ""), "{built:?}");
    let kernels = |bundle: &str| -> BTreeSet<String> {
        let index = fs::read(folder.path().join(bundle).join("index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
        index["kernels"].as_object().unwrap().keys().cloned().collect()
    };
    let plain = kernels("bundle");
    assert!(plain.len() > 10);
    assert_eq!(built.json()["architectures"][0]["kernels"].as_u64(), Some(plain.len() as u64));
    // What the options add is there: the blend of two frames, and the rest is the same.
    let blended = build(&["blended", "--steps", "2", "--size", "64x64", "--blend", "0.3"]);
    assert_eq!(blended.code, Some(0), "{blended:?}");
    assert!(kernels("blended").is_superset(&plain) && kernels("blended").len() > plain.len());
    let refused = build(&["bundle", "--frames", "3"]);
    refused.must_fail(2, &["--frames is for clips"]);
    build(&["bundle", "--scheduler", "euler"]).must_fail(2, &["--scheduler is for clips"]);
    build(&["bundle", "--steps", "9"]).must_fail(2, &["steps is 9"]);
    build(&["bundle", "--size", "63x64"]).must_fail(2, &["width is 63"]);
}

#[test]
fn what_cannot_be_built_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("bundle");
    let output = output.to_str().unwrap();
    run(&["kernels", "build", "--arch", "volta", "-o", output]).must_fail(2, &["volta", "sm_75"]);
    // Plausible, and not among those that are listed.
    for other in ["sm_99", "90"] {
        run(&["kernels", "build", "--arch", other, "-o", output]).must_fail(2, &["--arch", "sm_90a"]);
    }
    run(&["kernels", "build", "-o", output]).must_fail(2, &["--arch"]);
    run(&["kernels", "build", "--arch", "sm_80", "-o", output, "--model", "/nothing/here"])
        .must_fail(1, &["/nothing/here"]);
    run(&["kernels", "build", "--arch", "sm_80", "-o", output, "--frames", "0"]).must_fail(2, &["--frames"]);
    // Options of live video, for clips.
    for option in [&["--blend", "0.5"][..], &["--stream-batch"], &["--tiny-autoencoder"], &["--steps", "2"]] {
        let words = [&["kernels", "build", "--arch", "sm_80", "-o", output, "--config", "svd"][..], option];
        run(&words.concat()).must_fail(2, &[option[0], "is for live video"]);
    }
    assert!(!Path::new(output).exists());
    // A compiler that is not where it was said to be.
    let none = answer(
        kinora()
            .env("KINORA_NVRTC", "/nothing")
            .args(["kernels", "build", "--arch", "sm_80", "-o", output])
            .args(["--model"])
            .arg(model()),
    );
    none.must_fail(1, &["NVRTC", "cannot be used: /nothing: not found", "pip install nvidia-cuda-nvrtc"]);
    assert_eq!(none.stderr.lines().count(), 1, "{none:?}");
    assert!(!Path::new(output).exists());
    // A place that cannot be written is found before the compiler is asked for.
    fs::write(folder.path().join("file"), "mine").unwrap();
    let inside = folder.path().join("file/bundle");
    let refused = answer(
        kinora()
            .env("KINORA_NVRTC", "/nothing")
            .args(["kernels", "build", "--arch", "sm_80", "--model"])
            .arg(model())
            .arg("-o")
            .arg(&inside),
    );
    refused.must_fail(1, &["cannot write", "file/bundle"]);
}
