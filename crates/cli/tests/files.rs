//! Files that no command may lose, and outputs that do not take what is written to them.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{fs, path::Path};

use support::{Studio, answer, kinora, model, photo};

/// With `--force` the output would take the input's place.
#[test]
fn a_photo_is_never_overwritten() {
    let studio = Studio::new();
    let bytes = fs::read(photo("rgb.png")).unwrap();
    for (input, output) in [("ph.gif", "ph.gif"), ("ph.gif", "./ph.gif"), ("IMG-0001.png", "IMG.png")] {
        let input = studio.write(input, &bytes);
        let refused = answer(studio.generate_from(&input, model(), output).arg("--force"));
        refused.must_fail(2, &["is an input and would be overwritten", "choose another name"]);
        assert!(fs::read(input).unwrap() == bytes);
    }
    assert_eq!(studio.names(), ["IMG-0001.png", "ph.gif"]);
}

/// A camera numbers its photos like a clip.
#[test]
fn numbered_photos_beyond_the_clip_are_kept_and_named() {
    let studio = Studio::new();
    for number in 1..=6 {
        studio.write(&format!("IMG-{number:04}.png"), format!("photo {number}").as_bytes());
    }
    let made = answer(studio.generate("IMG.png").args(["--force", "--json"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    for number in 3..=6 {
        assert_eq!(studio.read(&format!("IMG-{number:04}.png")), format!("photo {number}").as_bytes());
    }
    let json = made.json();
    let left = ["IMG-0003.png", "IMG-0004.png", "IMG-0005.png", "IMG-0006.png"];
    assert_eq!(json["left"], serde_json::json!(left));
    let warnings: Vec<&str> =
        json["warnings"].as_array().unwrap().iter().filter_map(|text| text.as_str()).collect();
    assert!(warnings.iter().any(|text| text.contains("IMG-0003.png to IMG-0006.png")), "{warnings:?}");
}

/// The frames of a longer clip do not stay at the end of a shorter one.
#[test]
fn a_shorter_clip_replaces_a_longer_one() {
    let studio = Studio::new();
    for frames in ["3", "1"] {
        let made = answer(studio.generate("clip.png").args(["--force", "--json", "--frames", frames]));
        assert_eq!((made.code, &made.json()["left"]), (Some(0), &serde_json::json!([])), "{made:?}");
    }
    assert_eq!(studio.names(), [".clip.png.kinora", "clip-0001.png"]);
}

#[test]
fn other_inputs_are_never_overwritten_either() {
    let studio = Studio::new();
    let own = support::model_copy();
    let config = own.path().join("unet/config.json");
    let before = fs::read(&config).unwrap();
    let mut profile = kinora();
    profile.args(["profile", "run", "--force"]).arg(photo("rgb.png")).arg("--model").arg(own.path());
    answer(profile.arg("--save").arg(&config)).must_fail(2, &["config.json is an input"]);
    assert!(fs::read(&config).unwrap() == before);

    studio.write("run.json", b"mine");
    let mut bench = kinora();
    bench.current_dir(studio.folder.path()).args(["bench", "cpu", "--force", "--compare", "run.json"]);
    answer(bench.args(["--save", "./run.json"])).must_fail(2, &["run.json is an input"]);
    assert_eq!(studio.read("run.json"), b"mine");
}

#[cfg(feature = "simulator")]
#[test]
fn a_simulated_kernels_files_are_never_overwritten() {
    let studio = Studio::new();
    studio.write("scale.ptx", b"mine");
    studio.write("data.bin", b"mine");
    for write in ["0=scale.ptx", "0=data.bin"] {
        let mut sim = kinora();
        sim.current_dir(studio.folder.path()).args(["sim", "scale.ptx", "--grid", "1", "--block", "32"]);
        answer(sim.args(["--arg", "u8[4]=@data.bin", "--force", "--write", write]))
            .must_fail(2, &["is an input"]);
    }
    assert_eq!((studio.read("scale.ptx"), studio.read("data.bin")), (b"mine".to_vec(), b"mine".to_vec()));
}

/// Runs `kinora` in a shell: `"$0"` is the program, `"$1"` the first of the words.
#[cfg(unix)]
fn shell(script: &str, words: &[&Path]) -> support::Answer {
    let program = kinora();
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(script).arg(program.get_program()).args(words);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    answer(&mut shell)
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
#[test]
fn a_closed_standard_output_is_an_error() {
    let photo = photo("rgb.png");
    let words = [photo.as_path(), model()];
    let clip = r#""$0" generate "$1" -o - --model "$2" --size 64x64 --frames 2 --steps 1"#;
    shell(&format!("{clip} >&-"), &words).must_fail(1, &["standard output", "closed"]);
    for command in ["--help", "--version", "info --config svd", "completions bash"] {
        shell(&format!(r#""$0" {command} >&-"#), &[]).must_fail(1, &["standard output", "closed"]);
        // Someone who does not want it says so in another way.
        for nowhere in [">/dev/null", "1<>/dev/null"] {
            let thrown_away = shell(&format!(r#""$0" {command} {nowhere}"#), &[]);
            assert_eq!(thrown_away.code, Some(0), "{command} {nowhere}: {thrown_away:?}");
        }
    }
    let thrown_away = shell(&format!("{clip} 1<>/dev/null"), &words);
    assert_eq!(thrown_away.code, Some(0), "{thrown_away:?}");
    // A clip in a file does not need it.
    let studio = Studio::new();
    let output = studio.folder.path().join("clip.gif");
    let to_a_file = clip.replace("-o -", r#"-o "$3" >&-"#);
    let made = shell(&to_a_file, &[&photo, model(), &output]);
    assert_eq!(made.code, Some(0), "{made:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    for command in ["--help", "generate --help", "--version"] {
        let full = shell(&format!(r#""$0" {command} >/dev/full"#), &[]);
        full.must_fail(1, &["standard output", "No space left"]);
    }
}

/// A limit on the length of files stands for a disk that is full.
#[cfg(unix)]
#[test]
fn a_manual_that_does_not_fit_leaves_no_partial_page() {
    let studio = Studio::new();
    let pages = studio.folder.path();
    let limited = shell(r#"trap "" XFSZ; ulimit -f 1; "$0" man "$1""#, &[pages]);
    limited.must_fail(1, &["cannot write", ".1"]);
    for name in studio.names() {
        assert!(!name.ends_with(".partial") && studio.read(&name).len() <= 1024, "{name}");
    }
    let whole = shell(r#""$0" man "$1""#, &[pages]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let names = studio.names();
    assert!(
        ["kinora.1", "kinora-generate.1", "kinora-profile-run.1"]
            .iter()
            .all(|page| names.contains(&(*page).to_owned()))
    );
    assert!(names.iter().all(|name| studio.read(name).starts_with(b".ie")), "{names:?}");
}
