//! `kinora generate`, from the photo to the file.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use support::{Answer, Studio, answer, kinora};

#[test]
fn the_extension_decides_what_is_written() {
    let studio = Studio::new();
    for (output, at, mark) in
        [("clip.mp4", 4, "ftyp"), ("clip.gif", 0, "GIF89a"), ("clip.y4m", 0, "YUV4MPEG2 W64 H64 F7:1")]
    {
        let made = answer(&mut studio.generate(output));
        assert_eq!(made.code, Some(0), "{made:?}");
        assert!(studio.read(output)[at..].starts_with(mark.as_bytes()), "{output}");
    }
    let made = answer(&mut studio.generate("clip.png"));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(studio.read("clip-0002.png").starts_with(b"\x89PNG"));
    assert_eq!(
        studio.names(),
        [".clip.png.kinora", "clip-0001.png", "clip-0002.png", "clip.gif", "clip.mp4", "clip.y4m"]
    );
}

/// The seed is what it takes to make the clip again, so it belongs in a log.
#[test]
fn a_log_has_the_file_and_the_seed_in_a_line() {
    let studio = Studio::new();
    let made = answer(studio.generate("clip.gif").args(["--seed", "7", "--fit", "pad"]));
    assert_eq!((made.code, made.text()), (Some(0), String::new()));
    assert_eq!(made.stderr, "wrote clip.gif (2 frames, 64×64, seed 7)\n");
    let made = answer(studio.generate("clip.png").args(["--seed", "8", "--fit", "pad"]));
    assert_eq!(made.stderr, "wrote clip-0001.png … clip-0002.png (2 frames, 64×64, seed 8)\n");
    // A warning is a line as well.
    let made = answer(studio.generate("clip.gif").args(["--force", "--seed", "9", "--size", "64x256"]));
    let lines: Vec<&str> = made.stderr.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("warning: the photo (24×16) is cropped"), "{made:?}");
    assert_eq!(lines[1], "wrote clip.gif (2 frames, 64×256, seed 9)");
    // Nobody asked for a log.
    for quiet in ["-q", "--json"] {
        let made = answer(studio.generate("clip.gif").args(["--force", quiet]));
        assert_eq!((made.code, &*made.stderr), (Some(0), ""), "{quiet}");
    }
}

#[test]
fn verbose_prints_plain_lines() {
    let studio = Studio::new();
    let made = answer(studio.generate("clip.gif").args(["-v", "--steps", "2", "--seed", "7"]));
    assert_eq!((made.code, made.text()), (Some(0), String::new()), "{made:?}");
    for words in [
        "denoising: step 1/2",
        "denoising: step 2/2",
        "reading the photo: ",
        "clip.gif: 2 frames of 64×64, plays for 0.3 s at 7 frames per second",
        "generated in ",
        " per frame; ",
        "seed 7",
        "FLOP",
    ] {
        assert!(made.stderr.contains(words), "{words} is not in {}", made.stderr);
    }
    assert!(!made.stderr.contains('\x1b') && !made.stderr.contains('\r'), "{:?}", made.stderr);
}

#[test]
fn json_has_the_files_and_the_figures() {
    let studio = Studio::new();
    let made = answer(studio.generate("clip.png").args(["--json", "--seed", "42", "--steps", "2"]));
    assert_eq!((made.code, &*made.stderr), (Some(0), ""), "{made:?}");
    let json = made.json();
    assert_eq!(json["files"], serde_json::json!(["clip-0001.png", "clip-0002.png"]));
    assert_eq!((json["frames"].as_u64(), json["playback_frames_per_second"].as_f64()), (Some(2), Some(7.0)));
    assert!(json.get("frames_per_second").is_none(), "the name would not say which rate is meant");
    let report = &json["report"];
    let figure = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("no {name} in {report}"));
    let seconds = figure("seconds");
    assert!((figure("seconds_per_frame") - seconds / 2.0).abs() < 1e-9 * seconds, "{report}");
    assert!((figure("generated_frames_per_second") * seconds / 2.0 - 1.0).abs() < 1e-9, "{report}");
    assert_eq!(report["settings"]["seed"], 42);
    assert_eq!((&report["settings"]["width"], &report["scheduler"]), (&64.into(), &"euler".into()));
    assert_eq!(report["step_seconds"].as_array().unwrap().len(), 2);
    assert!(report["plan"]["peak_bytes"].as_u64().unwrap() > 0);
    assert!(report["plan"]["flops"].as_u64().unwrap() > 0);
    let stages = report["stages"].as_array().unwrap().iter();
    let stages: Vec<&str> = stages.map(|time| time["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["load", "encode_image", "encode_latents", "denoise", "decode"]);
}

#[test]
fn a_seed_makes_the_same_clip_again() {
    let studio = Studio::new();
    let clip = |name: &str, seed: &str| {
        let made = answer(studio.generate(name).args(["--seed", seed]));
        assert_eq!(made.code, Some(0), "{made:?}");
        studio.read(name)
    };
    assert_eq!(clip("a.y4m", "1"), clip("b.y4m", "1"));
    assert_ne!(clip("c.y4m", "1"), clip("d.y4m", "2"));
}

#[test]
fn a_better_picture_takes_a_larger_file() {
    let studio = Studio::new();
    let bytes = |quality: &str| {
        let made = answer(studio.generate("clip.mp4").args(["--seed", "1", "--force", "--quality", quality]));
        assert_eq!(made.code, Some(0), "{made:?}");
        studio.read("clip.mp4").len()
    };
    assert!(bytes("5") < bytes("100"));
    for quality in ["0", "101", "-1", "best"] {
        let option = format!("--quality={quality}");
        answer(studio.generate("clip.mp4").arg(option)).must_fail(2, &["--quality", "from 1 to 100"]);
    }
    let made = answer(studio.generate("clip.gif").args(["--quality", "50"]));
    assert!(made.stderr.contains("--quality counts only for .mp4"), "{made:?}");
}

#[test]
fn every_scheduler_and_precision_runs() {
    let studio = Studio::new();
    for (option, value) in [
        ("--scheduler", "euler"),
        ("--scheduler", "ddim"),
        ("--scheduler", "dpm++"),
        ("--scheduler", "lcm"),
        ("--precision", "f16"),
        ("--precision", "bf16"),
        ("--device", "cpu"),
        ("--decode-chunk", "1"),
        ("--cache", "2"),
        ("--cache-blocks", "1"),
        ("--memory", "2GB"),
        ("--max-guidance", "1"),
        ("--motion", "60"),
        ("--noise-aug", "0.1"),
        ("--min-guidance", "1.5"),
    ] {
        let made = answer(studio.generate("clip.y4m").args(["--force", option, value]));
        assert_eq!(made.code, Some(0), "{option} {value}: {made:?}");
    }
}

#[test]
fn the_file_may_play_at_another_speed() {
    let studio = Studio::new();
    // The second name is the one that it had before.
    for option in ["--play-fps", "--output-fps"] {
        let made = answer(studio.generate("clip.y4m").args([option, "29.97", "--force"]));
        assert_eq!(made.code, Some(0), "{made:?}");
        assert!(studio.read("clip.y4m").starts_with(b"YUV4MPEG2 W64 H64 F30000:1001"));
    }
    for option in ["--motion-fps", "--fps"] {
        let made = answer(studio.generate("clip.y4m").args([option, "5", "--force", "--json"]));
        assert_eq!(made.json()["report"]["settings"]["fps"], 5, "{made:?}");
        assert!(studio.read("clip.y4m").starts_with(b"YUV4MPEG2 W64 H64 F5:1"));
    }
}

#[test]
fn a_dash_is_standard_output() {
    let studio = Studio::new();
    let made = answer(studio.generate("-").args(["--fit", "pad"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(
        made.stderr.starts_with("wrote to standard output (2 frames, ") && made.stderr.lines().count() == 1
    );
    assert!(made.stdout.starts_with(b"YUV4MPEG2 W64 H64"));
    assert!(studio.names().is_empty());
    answer(studio.generate("-").arg("--json")).must_fail(2, &["standard output"]);
}

#[test]
fn a_file_is_not_overwritten_unless_forced() {
    let studio = Studio::new();
    studio.write("clip.gif", b"mine");
    // The model is not even looked for.
    let refused =
        studio.generate_from(&support::photo("rgb.png"), "/nonexistent".as_ref(), "clip.gif").output();
    let refused = Answer::from(refused.unwrap());
    refused.must_fail(1, &["clip.gif", "exists", "--force"]);
    assert_eq!(refused.stderr.matches("another name").count(), 1, "{refused:?}");
    assert_eq!(studio.read("clip.gif"), b"mine");
    let made = answer(studio.generate("clip.gif").arg("--force"));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(studio.read("clip.gif").starts_with(b"GIF89a"));
    // Of numbered files only those that will be written are in the way.
    studio.write("frame-0003.png", b"mine");
    answer(studio.generate("frame.png").args(["--frames", "3"])).must_fail(1, &["frame-0003.png", "exists"]);
    let made = answer(&mut studio.generate("frame.png"));
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::remove_file(studio.folder.path().join("frame-0002.png")).unwrap();
    let made = answer(studio.generate("frame.png").args(["--frames", "1", "--force"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(studio.read("frame-0003.png"), b"mine");
}

#[test]
#[cfg(target_os = "linux")]
fn names_need_not_be_unicode() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let studio = Studio::new();
    let odd = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    let made = answer(kinora().current_dir(studio.folder.path()).arg("demo-model").arg(odd(b"model\xFF")));
    assert_eq!(made.code, Some(0), "{made:?}");
    let mut command = kinora();
    command.current_dir(studio.folder.path()).arg("generate").arg(support::photo("rgb.png"));
    command.arg("-o").arg(odd(b"clip\xFF.png")).arg("--model").arg(odd(b"model\xFF"));
    let made = answer(command.args(["--frames", "1", "--steps", "1", "--json"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(made.json()["files"], serde_json::json!(["clip\u{FFFD}-0001.png"]));
    assert!(studio.folder.path().join(odd(b"clip\xFF-0001.png")).exists());
    let mut command = kinora();
    command.current_dir(studio.folder.path()).arg("info").arg(odd(b"model\xFF")).arg("--json");
    assert_eq!(answer(&mut command).json()["folder"], "model\u{FFFD}");
}

#[test]
fn a_scheduler_that_does_not_suit_the_model_is_warned_of() {
    let studio = Studio::new();
    let made = answer(studio.generate("clip.gif").args(["--scheduler", "ddim", "--json", "-v"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stderr.contains("warning: the model was trained with continuous timesteps"), "{made:?}");
    assert!(made.json()["warnings"].to_string().contains("continuous timesteps"), "{made:?}");
    let made = answer(studio.generate("clip.gif").args(["--scheduler", "euler", "--json", "--force"]));
    assert!(!made.json()["warnings"].to_string().contains("continuous"), "{made:?}");
}

#[test]
fn options_for_a_gpu_are_not_ignored_in_silence() {
    let studio = Studio::new();
    let words = ["--device", "cpu", "--kernels", "baseline", "--tuning", "off", "--json"];
    let made = answer(studio.generate("clip.gif").args(words));
    let warnings = made.json()["warnings"].to_string();
    assert!(warnings.contains("have no effect: --kernels and --tuning"), "{warnings}");
    let made = answer(studio.generate("clip.gif").args(["--device", "cpu", "--force", "--json"]));
    assert!(!made.json()["warnings"].to_string().contains("the CPU makes"), "{made:?}");
}

#[test]
fn the_environment_may_name_the_model() {
    let studio = Studio::new();
    let mut command = kinora();
    command.env("KINORA_MODEL", support::model()).current_dir(studio.folder.path());
    command.arg("generate").arg(support::photo("rgb.png"));
    command.args(["-o", "clip.gif", "--size", "64x64", "--frames", "1", "--steps", "1"]);
    let made = answer(&mut command);
    assert_eq!(made.code, Some(0), "{made:?}");
}

#[cfg(feature = "model-in-the-box")]
#[test]
fn the_model_in_the_box_needs_nothing_but_a_place() {
    let studio = Studio::new();
    let generate = |words: &[&str]| {
        let mut command = kinora();
        answer(
            command
                .current_dir(studio.folder.path())
                .args(["generate", "--force", "--steps", "1"])
                .args(words),
        )
    };
    let made = generate(&["-o", "clip.gif", "--json"]);
    assert_eq!((made.code, &*made.stderr), (Some(0), ""), "{made:?}");
    let report = &made.json()["report"];
    assert_eq!((&report["settings"]["frames"], &report["settings"]["width"]), (&14.into(), &128.into()));
    assert!(report["model"].as_str().unwrap().contains("model-in-the-box"), "{report}");
    // It was made for one size and length.
    let made = generate(&["-o", "clip.gif", "--frames", "1", "--json"]);
    assert!(made.json()["warnings"].to_string().contains("made only for 14 frames of 128×128"), "{made:?}");
    // Another model has no still of its own.
    let model = support::model().to_str().unwrap();
    generate(&["-o", "clip.gif", "--model", model]).must_fail(2, &["name a photo"]);
}

/// Starts a clip of a thousand steps, and ends it with a signal after the first.
#[cfg(unix)]
fn interrupted(studio: &Studio, output: &str, signal: &str) -> Answer {
    let mut command = studio.generate(output);
    command.args(["--steps", "1000", "-v", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    let first_step = lines.by_ref().map(Result::unwrap).inspect(|line| said.push_str(line));
    assert!(first_step.into_iter().any(|line| line.contains("step 1/1000")), "{said}");
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(!rest.iter().any(|line| line.contains("step 1000/1000")), "{rest:?}");
    let output = child.wait_with_output().unwrap();
    Answer { code: output.status.code(), stdout: output.stdout, stderr: rest.join("\n") }
}

#[test]
#[cfg(unix)]
fn ctrl_c_stops_at_the_next_step_and_leaves_nothing() {
    for output in ["clip.mp4", "clip.gif", "clip.png", "clip.y4m"] {
        let studio = Studio::new();
        let stopped = interrupted(&studio, output, "-INT");
        stopped.must_fail(130, &["interrupted", "nothing was written"]);
        assert_eq!(stopped.json()["error"]["kind"], "interrupted");
        assert_eq!(studio.names(), [""; 0], "{output}");
    }
}

/// Sends a signal.
#[cfg(unix)]
fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Before the work a frame is written and thrown away.
#[test]
#[cfg(unix)]
fn ctrl_c_while_a_place_is_tried_leaves_nothing() {
    let studio = Studio::new();
    let mut command = studio.generate("clip.png");
    command.args(["--size", "8192x8192"]).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    while !studio.names().iter().any(|name| name.ends_with(".partial")) {
        thread::sleep(Duration::from_millis(1));
    }
    // The first look at the place takes no time; a frame of this size does.
    thread::sleep(Duration::from_millis(200));
    signal(&child, "-INT");
    Answer::from(child.wait_with_output().unwrap()).must_fail(130, &["interrupted"]);
    assert_eq!(studio.names(), [""; 0]);
}

/// A program that reads nothing must not hold this one.
#[test]
#[cfg(unix)]
fn ctrl_c_ends_a_video_that_no_one_reads() {
    let studio = Studio::new();
    let mut command = studio.generate("-");
    // More than a pipe holds.
    command.args(["--size", "256x256", "-v"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // The end of decoding is said before writing begins.
    assert!(lines.any(|line| line.starts_with("decoding frames: ")));
    // Until the pipe is full.
    thread::sleep(Duration::from_millis(500));
    signal(&child, "-INT");
    assert!(lines.any(|line| line.contains("interrupted")));
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
#[cfg(unix)]
fn a_request_to_end_does_the_same() {
    let studio = Studio::new();
    studio.write("clip.mp4", b"mine");
    interrupted(&studio, "other.mp4", "-TERM").must_fail(130, &["interrupted"]);
    assert_eq!(studio.names(), ["clip.mp4"]);
}
