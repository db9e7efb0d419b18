//! Models and files from anywhere: whatever is in them, the program ends with a word about it, and no terminal is driven by it.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use support::{Answer, Studio, answer, kinora, model, model_copy, photo};

/// The answers to a model with one of its files changed: of `generate` and of `info`.
fn with_file(name: &str, change: impl Fn(Value) -> Value) -> [Answer; 2] {
    let copy = model_copy();
    let path = copy.path().join(name);
    let before = fs::read_to_string(&path).map_or(json!({}), |text| serde_json::from_str(&text).unwrap());
    fs::write(&path, change(before).to_string()).unwrap();
    answers(copy.path())
}

fn answers(model: &Path) -> [Answer; 2] {
    let studio = Studio::new();
    let mut generate = kinora();
    generate.current_dir(studio.folder.path()).arg("generate").arg(photo("rgb.png"));
    generate.args(["-o", "clip.png", "--json", "--model"]).arg(model);
    let generated = answer(&mut generate);
    assert_eq!(studio.names(), [""; 0]);
    [generated, answer(kinora().arg("info").arg(model).arg("--json"))]
}

/// The sizes that once ended the program by an abort, a panic, a loop without end, or took all memory.
#[test]
fn a_models_settings_are_checked_before_use() {
    for (field, value, said) in [
        ("width", json!(1u64 << 32), "width is 4294967296, but it must be a multiple of 64"),
        ("width", json!(u64::MAX), "width is 18446744073709551615, but it must be a multiple of 64"),
        ("height", json!(0), "height is 0, but it must be a multiple of 64"),
        ("frames", json!(1_000_000_000), "frames is 1000000000, but it must be from 1 to 1024"),
        ("steps", json!(1_000_000), "steps is 1000000, but it must be from 1 to"),
        ("fps", json!("fast"), "fps is \"fast\", but it must be a whole number, at least 0"),
        ("speed", json!(1), "speed is 1, but there is no such setting; there are frames, steps"),
    ] {
        for refused in with_file("defaults.json", |_| json!({ field: value })) {
            refused.must_fail(1, &["defaults.json", said]);
            assert_eq!(refused.json()["error"]["kind"], "model");
        }
    }
    for refused in with_file("defaults.json", |_| json!([])) {
        refused.must_fail(1, &["defaults.json", "this must be a JSON object", "it is a list"]);
    }
}

#[test]
fn every_error_of_a_configuration_names_its_file_and_field() {
    for (file, field, value, said) in [
        ("unet/config.json", "in_channels", json!(1u64 << 40), "in_channels is 1099511627776"),
        ("unet/config.json", "block_out_channels", json!(vec![32; 16]), "down_block_types is a list of 4"),
        ("unet/config.json", "layers_per_block", json!({}), "layers_per_block is {}, but it must be"),
        ("vae/config.json", "scaling_factor", json!(1e39), "scaling_factor is 1e+39"),
        ("vae/config.json", "block_out_channels", json!([1, 2, 3, 4]), "block_out_channels is 1 for block 0"),
        ("image_encoder/config.json", "patch_size", json!(0), "patch_size is 0"),
        (
            "scheduler/scheduler_config.json",
            "beta_end",
            json!(-1),
            "`beta_end` is -1.0, but must be between 0 and 1",
        ),
        ("scheduler/scheduler_config.json", "sigma_max", json!(1e300), "`sigma_max` is 1e+300, but must be"),
        (
            "feature_extractor/preprocessor_config.json",
            "image_std",
            json!([0, 0, 0]),
            "`image_std` is [0,0,0]",
        ),
    ] {
        let changed = |mut config: Value| {
            config[field] = value.clone();
            config
        };
        for refused in with_file(file, changed) {
            refused.must_fail(1, &[file, said]);
            assert!(!refused.stderr.contains("struct") && !refused.stderr.contains("usize"), "{refused:?}");
        }
    }
}

/// The command line's own values are its own fault.
#[test]
fn what_the_command_line_asks_for_is_its_own_fault() {
    let refused = answer(kinora().arg("info").arg(model()).args(["--frames", "2000"]));
    refused.must_fail(2, &["frames is 2000, but it must be from 1 to 1024"]);
    let studio = Studio::new();
    let refused = answer(studio.generate("clip.png").args(["--steps", "20000"]));
    refused.must_fail(2, &["steps is 20000, but it must be from 1 to 10000"]);
}

#[test]
#[cfg(unix)]
fn a_model_of_pipes_and_devices_is_refused_at_once() {
    for (file, said) in [
        ("model_index.json", "cannot be read"),
        ("unet/config.json", "cannot be read"),
        ("scheduler/scheduler_config.json", "cannot be read"),
        ("vae/diffusion_pytorch_model.safetensors", "cannot be read"),
    ] {
        let copy = model_copy();
        let path = copy.path().join(file);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        for refused in answers(copy.path()) {
            refused.must_fail(1, &[file, said, "it is a device, not an ordinary file"]);
        }
        fs::remove_file(&path).unwrap();
        // Nobody writes to it.
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        for refused in answers(copy.path()) {
            refused.must_fail(1, &[file, said, "it is a pipe, not an ordinary file"]);
        }
    }
    // A file that grows without end is one of a limited length.
    let copy = model_copy();
    let long = fs::File::create(copy.path().join("defaults.json")).unwrap();
    long.set_len(17 << 20).unwrap();
    for refused in answers(copy.path()) {
        refused.must_fail(1, &["defaults.json", "longer than 16777216 bytes"]);
    }
}

#[test]
#[cfg(unix)]
fn files_for_other_commands_are_bounded_too() {
    for words in [
        &["profile", "show", "/dev/zero"][..],
        &["profile", "compare", "/dev/zero", "/dev/zero"],
        &["bench", "--from", "/dev/zero"],
        &["bench", "--compare", "/dev/zero", "--from", "/dev/zero"],
    ] {
        answer(kinora().args(words)).must_fail(1, &["/dev/zero", "it is a device, not an ordinary file"]);
    }
    // That a kernel could not be run is another code than that something was found in it.
    #[cfg(feature = "simulator")]
    answer(kinora().args(["sim", "/dev/zero", "--grid", "1", "--block", "1"]))
        .must_fail(3, &["/dev/zero", "it is a device, not an ordinary file"]);
    let studio = Studio::new();
    let refused = answer(&mut studio.generate_from("/dev/zero".as_ref(), model(), "clip.png"));
    refused.must_fail(1, &["`/dev/zero` is a device"]);
}

/// A shell's `<(command)`.
#[test]
#[cfg(unix)]
fn a_photo_may_come_through_a_pipe() {
    let studio = Studio::new();
    let pipe = studio.folder.path().join("photo");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let bytes = fs::read(photo("rgb.png")).unwrap();
    let made = std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&pipe, bytes).unwrap());
        answer(&mut studio.generate_from(&pipe, model(), "clip.y4m"))
    });
    assert_eq!(made.code, Some(0), "{made:?}");
}

/// Clears the screen, renames the window, turns the direction of text.
const DRIVES: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}1m\u{202e}\r";
const SHOWN: &str = "\\u001b[2J\\u001b]0;x\\u0007\\u009b1m\\u202e";

/// Fails unless the text is shown, and nothing in the answer would drive a terminal.
fn must_show(answered: &Answer) {
    let all = must_not_drive(answered);
    assert!(all.contains(SHOWN), "{all}");
}

/// Fails if anything in the answer would drive a terminal; returns all of it.
fn must_not_drive(answered: &Answer) -> String {
    let all = format!("{}{}", answered.text(), answered.stderr);
    let drives = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
    assert!(!all.contains(drives), "{all:?}");
    all
}

#[test]
fn no_name_in_a_file_drives_the_terminal() {
    let index = |index: Value| {
        serde_json::from_str(
            &index.to_string().replace("UNetSpatio", "\\u001b[2J\\u001b]0;x\\u0007\\u009b1m\\u202e\\r"),
        )
        .unwrap()
    };
    with_file("model_index.json", index).iter().for_each(must_show);
    let block = |mut config: Value| {
        config["down_block_types"] = json!([DRIVES, DRIVES, DRIVES, DRIVES]);
        config
    };
    with_file("unet/config.json", block).iter().for_each(must_show);
    // A field's own name.
    with_file("defaults.json", |_| json!({ DRIVES: 1 })).iter().for_each(must_show);
}

#[test]
fn no_name_of_a_file_drives_the_terminal() {
    let studio = Studio::new();
    let missing = studio.folder.path().join(DRIVES);
    must_show(&answer(&mut studio.generate_from(&missing, model(), "clip.png")));
    must_show(&answer(&mut studio.generate_from(&photo("rgb.png"), &missing, "clip.png")));
    must_show(&answer(kinora().arg("info").arg(&missing)));
    // An option that is not one, such as a file's name that a wildcard brought here.
    must_not_drive(&answer(kinora().arg("info").arg(format!("--{DRIVES}"))));
    must_not_drive(&answer(kinora().arg("info").arg(format!("--{DRIVES}")).arg("--json")));
    must_show(&answer(kinora().arg("demo-model").arg(&missing)));
    // What was made is a model, and `info` names its folder, for people and for programs.
    must_show(&answer(kinora().arg("info").arg(&missing)));
    let json = answer(kinora().arg("info").arg(&missing).arg("--json"));
    must_show(&json);
    assert!(json.json()["folder"].as_str().unwrap().ends_with(DRIVES));
}

#[test]
fn no_name_in_saved_results_drives_the_terminal_or_breaks_a_page() {
    let studio = Studio::new();
    let profile = json!({
        "format": 1, "title": DRIVES, "machine": {"device": DRIVES, "ceilings": null}, "lanes": [], "spans": [],
        "works": [], "memory": [], "planned_peak_bytes": null,
    });
    let path = studio.write("profile.json", profile.to_string().as_bytes());
    let page = studio.folder.path().join("page.html");
    must_show(&answer(kinora().args(["profile", "show"]).arg(&path).arg("--html").arg(&page)));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(SHOWN) && !page.contains(|c: char| c.is_control() && !c.is_whitespace()));
}

/// No clip can be made, and a script must be able to tell.
#[test]
fn info_fails_if_the_weights_lack_something() {
    let copy = model_copy();
    let path = copy.path().join("unet/diffusion_pytorch_model.safetensors");
    let whole = fs::read(&path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&whole).unwrap();
    let kept = tensors.iter().filter(|(name, _)| *name != "conv_in.bias").collect::<Vec<_>>();
    let fewer = safetensors::serialize(kept, None::<std::collections::HashMap<_, _>>).unwrap();
    fs::write(&path, fewer).unwrap();
    let refused = answer(kinora().arg("info").arg(copy.path()));
    refused.must_fail(1, &["no clip can be made with this model: its weights have 1 problem"]);
    assert!(refused.text().contains("conv_in.bias"), "{refused:?}");
    let refused = answer(kinora().arg("info").arg(copy.path()).arg("--json"));
    assert_eq!((refused.code, &refused.json()["problems"].as_array().unwrap().len()), (Some(1), &1));
}

#[test]
fn an_index_without_weights_is_refused() {
    let copy = model_copy();
    let folder = copy.path().join("unet");
    fs::remove_file(folder.join("diffusion_pytorch_model.safetensors")).unwrap();
    fs::write(folder.join("diffusion_pytorch_model.safetensors.index.json"), r#"{"weight_map": {}}"#)
        .unwrap();
    for refused in answers(copy.path()) {
        refused.must_fail(1, &["safetensors.index.json", "its weight_map is empty"]);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_no_temporary_one() {
    let studio = Studio::new();
    let output = studio.folder.path().join("absent/profile.json");
    let mut command = kinora();
    command
        .args(["profile", "run"])
        .arg(photo("rgb.png"))
        .arg("--model")
        .arg(model())
        .arg("--save")
        .arg(&output);
    let refused = answer(&mut command);
    refused.must_fail(1, &["absent/profile.json", "No such file"]);
    assert!(!refused.stderr.contains(".new-"), "{refused:?}");
}
