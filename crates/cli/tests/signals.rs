//! Signals, as shells, terminals and service managers send them.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::Duration,
};

use support::{Answer, Studio, after, answer, model, photo};

/// Starts a command and reads what it says until a line contains one of these words.
fn until(command: &mut Command, words: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = |line: String| words.iter().any(|word| line.contains(word));
    assert!(lines.by_ref().map(Result::unwrap).any(said));
    (child, lines)
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// As after `nohup`, and in the background of a shell.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let studio = Studio::new();
    let mut command =
        after("trap '' HUP INT TERM", studio.generate("clip.gif").args(["--steps", "30", "-v"]));
    let (mut child, mut lines) = until(&mut command, &["step 1/30"]);
    for name in ["-HUP", "-INT", "-TERM"] {
        signal(&child, name);
    }
    assert!(lines.any(|line| line.unwrap().contains("step 30/30")));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(studio.names(), ["clip.gif"]);
    // The others still end it.
    let mut command = after("trap '' HUP", studio.generate("other.gif").args(["--steps", "999", "-v"]));
    let (child, _lines) = until(&mut command, &["step 1/999"]);
    signal(&child, "-HUP");
    signal(&child, "-TERM");
    Answer::from(child.wait_with_output().unwrap()).must_fail(130, &[]);
    assert_eq!(studio.names(), ["clip.gif"]);
}

/// A step of a large model takes minutes on a CPU, and no one waits for its end.
#[test]
fn one_request_ends_a_long_step() {
    for name in ["-TERM", "-INT", "-HUP", "-XCPU"] {
        let studio = Studio::new();
        let mut command = studio.generate("clip.gif");
        command.args(["--size", "768x768", "--frames", "16", "--decode-chunk", "1", "--json", "-v"]);
        let (child, lines) = until(&mut command, &["encode_latents", "encoding the photo"]);
        thread::sleep(Duration::from_millis(200));
        signal(&child, name);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(!rest.iter().any(|line| line.contains("step 1/1")), "{rest:?}");
        let ended = Answer::from(child.wait_with_output().unwrap());
        assert_eq!((ended.code, ended.json()["error"]["kind"].as_str()), (Some(130), Some("interrupted")));
        assert_eq!(studio.names(), [""; 0]);
    }
}

/// The clips that are finished are kept, and whoever reads the object is told which.
#[test]
fn finished_clips_are_reported_after_an_interrupt() {
    let studio = Studio::new();
    let mut command = studio.generate_from(&photo("rgb.png"), model(), "clips/");
    command.arg(photo("rgba.png")).arg(photo("gray.png")).args(["--steps", "60", "--json", "-v"]);
    let (child, mut lines) = until(&mut command, &["clips/rgb.mp4: "]);
    assert!(lines.any(|line| line.unwrap().contains("step 1/60")));
    signal(&child, "-INT");
    lines.for_each(drop);
    let ended = Answer::from(child.wait_with_output().unwrap());
    let json = ended.json();
    assert_eq!((ended.code, &json["error"]["kind"]), (Some(130), &"interrupted".into()), "{json}");
    assert!(json["error"]["message"].as_str().unwrap().contains("1 of 3 clips"), "{json}");
    assert_eq!(json["clips"].as_array().map(Vec::len), Some(1), "{json}");
    assert_eq!(json["clips"][0]["files"][0], "clips/rgb.mp4");
    assert!(studio.folder.path().join("clips/rgb.mp4").exists());
}

/// `ulimit -f` ends a program by a signal, unless it asks to be told instead.
#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let studio = Studio::new();
    for output in ["clip.y4m", "clip.gif", "clip.mp4", "clip.png"] {
        // One block, of 512 or 1024 bytes.
        let refused = answer(&mut after("ulimit -f 1", studio.generate(output).arg("--json")));
        refused.must_fail(1, &["error: "]);
        assert_eq!(refused.json()["error"]["kind"], "output", "{refused:?}");
        assert_eq!(studio.names(), [""; 0]);
    }
}
