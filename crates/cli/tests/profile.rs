//! `kinora profile`.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::process::Command;

use support::{Answer, Studio, answer, kinora, model, photo};

fn profile(words: &[&str]) -> Command {
    let mut command = kinora();
    command.args(["profile", "run"]).arg(photo("rgb.png")).arg("--model").arg(model());
    command.args(["--device", "cpu", "--steps", "2", "--seed", "1"]).args(words);
    command
}

fn text(answer: &Answer) -> String {
    assert_eq!(answer.code, Some(0), "{answer:?}");
    answer.text()
}

#[test]
fn tables_say_where_the_time_went() {
    let place = Studio::new();
    let path = |name: &str| place.folder.path().join(name);
    let (saved, trace, page) = (path("p.json"), path("trace.json"), path("page.html"));
    let ran = answer(profile(&["--save"]).arg(&saved).arg("--trace").arg(&trace).arg("--html").arg(&page));
    let tables = text(&ran);
    for words in
        ["2 steps, f32", "peak ", "denoise", "by kind", "UNet: ", "peak memory", "largest possible savings"]
    {
        assert!(tables.contains(words), "{words} is not in\n{tables}");
    }
    // The same tables from the file.
    let shown = answer(kinora().args(["profile", "show"]).arg(&saved));
    assert_eq!(text(&shown), tables);
    let events: serde_json::Value = serde_json::from_slice(&place.read("trace.json")).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 100);

    let again = answer(profile(&["--save"]).arg(&saved));
    again.must_fail(1, &["p.json exists already", "--force"]);
    let change = path("change.html");
    let compared =
        answer(kinora().args(["profile", "compare"]).arg(&saved).arg(&saved).arg("--html").arg(&change));
    for page in ["page.html", "change.html"] {
        let page = String::from_utf8(place.read(page)).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.contains("4 frames of 64×64"), "{page}");
    }
    assert!(text(&compared).contains("denoise"), "{compared:?}");
}

#[test]
fn a_program_gets_one_object() {
    let answer = answer(&mut profile(&["--json"])).json();
    let sum = |of: &serde_json::Value| -> u64 {
        of.as_array().unwrap().iter().map(|group| group["nanoseconds"].as_u64().unwrap()).sum()
    };
    // Kinds and layers are two views of the same time, which lies within the stages'.
    assert_eq!(sum(&answer["kinds"]), sum(&answer["layers"]));
    assert!(sum(&answer["kinds"]) <= sum(&answer["stages"]));
    assert!(sum(&answer["stages"]) <= answer["nanoseconds"].as_u64().unwrap());
    assert_eq!(answer["memory_peak_bytes"], answer["planned_peak_bytes"]);
    assert!(answer["machine"]["ceilings"]["flops_per_second"].as_f64().unwrap() > 1e8);
    let denoise =
        answer["stages"].as_array().unwrap().iter().find(|stage| stage["name"] == "denoise").unwrap();
    assert!(denoise["layer_nanoseconds"].as_u64().unwrap() > 0);
    let steps = answer["steps"].as_array().unwrap();
    let denoising: Vec<_> = steps.iter().filter(|step| step["stage"] == "denoise").collect();
    assert_eq!(denoising.len(), 2);
    for step in denoising {
        let [wall, layers] = ["nanoseconds", "layer_nanoseconds"].map(|field| step[field].as_u64().unwrap());
        assert!(0 < layers && layers <= wall, "{step}");
        // No GPU ran, so that nothing was traced.
        assert!(step["active_nanoseconds"].is_null(), "{step}");
    }
    for nothing in ["copies", "kernel_times", "notes"] {
        assert_eq!(answer[nothing].as_array().map(Vec::len), Some(0), "{nothing}");
    }
}

#[test]
fn what_cannot_be_shown_is_said() {
    let place = Studio::new();
    let broken = place.write("broken.json", b"{\"format\": 1, \"spans\": 3}");
    answer(kinora().args(["profile", "show"]).arg(&broken)).must_fail(1, &["broken.json is not a profile"]);
    answer(kinora().args(["profile", "show"]).arg(place.folder.path().join("none.json")))
        .must_fail(1, &["none.json"]);
    // Before the work, not after it.
    answer(profile(&["--save", "/nothing/here/p.json"]).arg("-v")).must_fail(2, &["-v"]);
    answer(&mut profile(&["--save", "/nothing/here/p.json"]))
        .must_fail(1, &["cannot write /nothing/here/p.json"]);
}

/// With `--force` what is written would replace what is read.
#[test]
fn what_is_read_is_not_written_over() {
    let place = Studio::new();
    place.write("p.json", b"a profile");
    place.write("q.json", b"another");
    for words in [
        &["show", "p.json", "--html", "./p.json"][..],
        &["show", "p.json", "--trace", "p.json"],
        &["compare", "p.json", "q.json", "--html", "./q.json"],
    ] {
        let mut command = kinora();
        command.arg("profile").args(words).arg("--force").current_dir(place.folder.path());
        answer(&mut command).must_fail(2, &["json is an input and would be overwritten"]);
    }
    assert_eq!((place.read("p.json"), place.read("q.json")), (b"a profile".to_vec(), b"another".to_vec()));
}

/// Each of two files by one name would replace the other, with `--force` or without; it is said before the work.
#[test]
fn two_outputs_of_one_name_are_refused() {
    let place = Studio::new();
    let folder = place.folder.path();
    let twice = |first: &str, second: &str, other_spelling: &str| {
        let mut command = profile(&["--force", first]);
        command.arg(folder.join("p")).arg(second).arg(folder.join(other_spelling));
        answer(&mut command).must_fail(2, &["is named for two outputs"]);
    };
    twice("--save", "--trace", "p");
    twice("--save", "--html", "./p");
    twice("--trace", "--html", "p");
    let mut shown = kinora();
    shown.args(["profile", "show", "none.json", "--html", "page", "--trace", "./page"]).current_dir(folder);
    answer(&mut shown).must_fail(2, &["./page is named for two outputs"]);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn frames_of_live_video_are_profiled_by_their_parts() {
    let place = Studio::new();
    let folder = place.folder.path();
    let here = |words: &[&str]| {
        let mut command = kinora();
        command.current_dir(folder).args(words);
        command
    };
    assert_eq!(answer(&mut here(&["demo-model", "--preset", "live", "model"])).code, Some(0));
    let live = |words: &[&str]| {
        let mut command = here(&["profile", "live"]);
        command.arg(photo("rgb.png")).args(["--prompt", "a harbour", "--steps", "2", "--blend", "0.3"]);
        command.args(["--model", "model", "--autoencoder", "model/tiny", "--device", "cpu"]).args(words);
        command
    };
    let tables = text(&answer(&mut live(&["--save", "p.json", "--html", "page.html"])));
    for words in
        ["model: 1 frame of ", " in 2 steps, f32", "load", "by network", "\nencode ", "\nsteps ", "\ndecode "]
    {
        assert!(tables.contains(words), "{words} is not in\n{tables}");
    }
    assert_eq!(text(&answer(&mut here(&["profile", "show", "p.json"]))), tables);
    assert!(place.read("page.html").starts_with(b"<!doctype html>"));

    let profile = answer(&mut live(&["--json"])).json();
    let networks = profile["networks"].as_array().unwrap();
    let mut names: Vec<&str> = networks.iter().map(|group| group["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["conditions", "decode", "encode", "steps", "text encoder"]);
    assert!(
        networks.iter().all(|group| group["floor_nanoseconds"].as_f64().is_some_and(|floor| floor > 0.0))
    );
    let layers = profile["layers"].as_array().unwrap();
    let is_decoder = |layer: &&serde_json::Value| layer["name"].as_str().unwrap().starts_with("vae.decoder");
    assert!(layers.iter().filter(is_decoder).all(|layer| layer["program"] == "decode"));
    assert!(layers.iter().filter(is_decoder).count() > 5);
    assert!(
        profile["planned_peak_bytes"].as_u64().unwrap() >= profile["memory_peak_bytes"].as_u64().unwrap()
    );
}

#[test]
fn both_text_encoders_of_a_large_model_are_profiled() {
    let place = Studio::new();
    let here = |words: &[&str]| {
        let mut command = kinora();
        command.current_dir(place.folder.path()).args(words);
        command
    };
    assert_eq!(answer(&mut here(&["demo-model", "--preset", "live-xl", "model"])).code, Some(0));
    let mut command = here(&["profile", "live", "--json", "--model", "model", "--device", "cpu"]);
    let profile = answer(command.arg(photo("rgb.png"))).json();
    let networks = profile["networks"].as_array().unwrap();
    let runs = |name: &str| networks.iter().find(|group| group["name"] == name)?["runs"].as_u64();
    let layers = profile["layers"].as_array().unwrap();
    for name in ["text encoder", "text encoder 2"] {
        assert!(runs(name).is_some_and(|runs| runs > 5), "{name}: {networks:?}");
        assert!(layers.iter().filter(|layer| layer["program"] == name).count() > 5, "{name}");
    }
}
