//! `kinora live` and `kinora image`, with small models of random weights.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use kinora::{
    RgbImage,
    photo::{Colour, Fit},
    video::{
        FrameRate, VideoFile, VideoOptions,
        fit::Placement,
        input::{self, InputOptions},
    },
};
use support::kinora as program;

/// A folder with a model, its tiny autoencoder and a video of `frames` frames.
fn folder(frames: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let written = kinora(folder.path()).args(["demo-model", "--preset", "live", "model"]).output().unwrap();
    assert!(written.status.success());
    let options = VideoOptions::new(FrameRate::new(10.0).unwrap());
    let mut video = VideoFile::create(folder.path().join("in.y4m"), &options).unwrap();
    for number in 0..frames {
        let pixel = |i: usize| ((i * 7 + number * 40 + i / 80) % 256) as u8;
        let bytes = (0..80 * 48 * 3).map(pixel).collect();
        video.write_frame(&RgbImage::new(80, 48, bytes).unwrap()).unwrap();
    }
    video.finish().unwrap();
    folder
}

/// The program in a folder.
fn kinora(folder: &Path) -> Command {
    let mut command = program();
    command.current_dir(folder);
    command
}

const MODEL: [&str; 6] = ["--model", "model", "--autoencoder", "model/tiny", "--device", "cpu"];

fn run(folder: &Path, words: &[&str]) -> Output {
    kinora(folder).args(words).args(MODEL).output().unwrap()
}

fn succeed(folder: &Path, words: &[&str]) -> Output {
    let output = run(folder, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// What was said, in one line.
fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn frames(path: &Path) -> Vec<RgbImage> {
    let mut video = input::open(path, &InputOptions::new()).unwrap();
    std::iter::from_fn(|| video.next_frame().unwrap()).map(|frame| frame.image).collect()
}

#[test]
fn a_video_is_drawn_and_its_log_makes_it_again() {
    let folder = folder(4);
    let at = folder.path();
    fs::write(at.join("changes"), "{\"frame\": 2, \"prompt\": \"snow\", \"strength\": 0.9, \"steps\": 2}\n")
        .unwrap();
    let output = succeed(
        at,
        &[
            "live",
            "in.y4m",
            "-o",
            "one.y4m",
            "--prompt",
            "a harbour",
            "--json",
            "--changes",
            "changes",
            "--record",
            "log",
        ],
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["frames"], &report["changes"]), (&4.into(), &1.into()), "{report}");
    assert_eq!(report["files"], serde_json::json!(["one.y4m"]));
    let drawn = frames(&at.join("one.y4m"));
    assert_eq!((drawn.len(), drawn[0].size()), (4, [64, 64]));
    assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]));
    // The seed was a random one, and the prompt is another: all that counts is in the log.
    succeed(at, &["live", "in.y4m", "-o", "two.y4m", "--changes", "log"]);
    assert_eq!(fs::read(at.join("one.y4m")).unwrap(), fs::read(at.join("two.y4m")).unwrap());
}

/// A LoRA file that fits the small model: see `golden/make_lora.py`.
fn lora(folder: &Path, from: &str, to: &str) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/lora");
    fs::copy(fixtures.join(format!("{from}.safetensors")), folder.join(to)).unwrap();
}

#[test]
fn a_lora_is_turned_while_it_runs_and_the_log_makes_it_again() {
    let folder = folder(4);
    let at = folder.path();
    lora(at, "peft", "style.safetensors");
    lora(at, "kohya", "ink.safetensors");
    fs::write(at.join("changes"), "{\"frame\": 2, \"lora\": {\"style\": 0.8}}\n").unwrap();
    let loras = ["--lora", "style.safetensors:0", "--lora", "ink.safetensors:0.5", "--seed", "7"];
    let live = |words: &[&str]| succeed(at, &[&["live", "in.y4m"][..], words, &loras].concat());
    let drawn = live(&["-o", "one.y4m", "--changes", "changes", "--record", "log"]);
    let said = String::from_utf8_lossy(&drawn.stderr).replace('\n', " ");
    assert!(
        said.contains("the LoRA style changes the text encoder, too: there it keeps the strength 0"),
        "{said}"
    );
    assert!(!said.contains("the LoRA ink"), "it is not turned: {said}");
    let log = fs::read_to_string(at.join("log")).unwrap();
    assert!(log.lines().next().unwrap().contains("\"lora\":{\"style\":0.0}"), "{log}");
    assert!(log.lines().nth(1).unwrap().contains("\"lora\":{\"style\":0.8}"), "{log}");
    live(&["-o", "two.y4m", "--changes", "log"]);
    assert_eq!(fs::read(at.join("one.y4m")).unwrap(), fs::read(at.join("two.y4m")).unwrap());
    // Up to the change it is the video without.
    live(&["-o", "off.y4m"]);
    let [turned, off] = ["one.y4m", "off.y4m"].map(|name| frames(&at.join(name)));
    assert_eq!(turned[..2], off[..2]);
    assert!(turned[2..].iter().zip(&off[2..]).all(|(turned, off)| turned != off));
}

#[test]
fn changes_of_loras_that_are_not_there_are_refused() {
    let folder = folder(2);
    let at = folder.path();
    lora(at, "peft", "style.safetensors");
    fs::create_dir(at.join("other")).unwrap();
    lora(at, "kohya", "other/style.safetensors");
    fs::write(at.join("changes"), "{\"frame\": 1, \"lora\": {\"style\": 1}}\n").unwrap();
    let refused = |loras: &[&str]| {
        let output = run(at, &[&["live", "in.y4m", "--changes", "changes"][..], loras].concat());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).replace('\n', " ")
    };
    let missing = refused(&[]);
    assert!(missing.contains("no LoRA is called \"style\": give its file with --lora"), "{missing}");
    let two = refused(&["--lora", "style.safetensors", "--lora", "other/style.safetensors"]);
    assert!(two.contains("2 files of --lora are called \"style\""), "{two}");
    fs::write(at.join("changes"), "{\"frame\": 1, \"lora\": {\"style\": 1e300}}\n").unwrap();
    let endless = refused(&["--lora", "style.safetensors"]);
    assert!(endless.contains("style = 1"), "{endless}");
}

/// A picture as a BMP file.
fn bmp(picture: &RgbImage) -> Vec<u8> {
    let [width, height] = picture.size();
    let row = (width * 3).next_multiple_of(4);
    let word = |number: usize| (number as u32).to_le_bytes();
    let header = [54 + row * height, 0, 54, 40, width, height].map(word).concat();
    let mut file = [&b"BM"[..], &header, &[1, 0, 24, 0]].concat();
    file.resize(54, 0);
    for y in (0..height).rev() {
        file.extend(picture.row(y).iter().flat_map(|[red, green, blue]| [blue, green, red]));
        file.resize(54 + row * (height - y), 0);
    }
    file
}

/// Whatever fits the frames, they are drawn as if they had had the model's size from the start.
#[test]
fn frames_of_a_video_may_have_any_sizes() {
    let folder = folder(1);
    let at = folder.path();
    let sizes = [[80, 48], [80, 48], [33, 70], [80, 48], [64, 64], [33, 70], [33, 70], [33, 70], [33, 70]];
    for name in ["raw", "fitted"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    for (number, [width, height]) in sizes.into_iter().enumerate() {
        let byte = |i: usize| ((i * 7 + number * 9 + i / 80) % 256) as u8;
        let picture = RgbImage::new(width, height, (0..width * height * 3).map(byte).collect()).unwrap();
        let placement = Placement::new(Fit::Pad, [width, height], [64, 64]).unwrap();
        let fitted = placement.forward(&picture, Colour::WHITE).unwrap();
        fs::write(at.join(format!("raw/{number}.bmp")), bmp(&picture)).unwrap();
        fs::write(at.join(format!("fitted/{number}.bmp")), bmp(&fitted)).unwrap();
    }
    let words = ["--prompt", "a harbour", "--seed", "7", "--fit", "pad", "--background", "white"];
    for row in [&[][..], &["--blend", "0.4"], &["--stream-batch", "--steps", "2"]] {
        for name in ["raw", "fitted"] {
            let output = format!("{name}.y4m");
            let place = ["live", name, "-o", &output, "--force"];
            succeed(at, &[&place[..], &words, row].concat());
        }
        let drawn = frames(&at.join("raw.y4m"));
        assert_eq!((drawn.len(), drawn[0].size()), (sizes.len(), [64, 64]));
        assert!(drawn == frames(&at.join("fitted.y4m")), "{row:?}");
    }
}

#[test]
fn a_video_goes_through_standard_streams() {
    let folder = folder(3);
    let at = folder.path();
    let words = ["--prompt", "a harbour", "--seed", "7", "--original-size"];
    succeed(at, &[&["live", "in.y4m", "-o", "out.y4m"][..], &words].concat());
    let input = fs::File::open(at.join("in.y4m")).unwrap();
    let output =
        kinora(at).args(["live", "-", "-o", "-"]).args(words).args(MODEL).stdin(input).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, fs::read(at.join("out.y4m")).unwrap());
    assert_eq!(frames(&at.join("out.y4m"))[0].size(), [80, 48]);
}

#[test]
fn still_frames_are_shown_again() {
    let folder = folder(1);
    let at = folder.path();
    let one = fs::read(at.join("in.y4m")).unwrap();
    let frame = one.windows(6).position(|bytes| bytes == b"FRAME\n").unwrap();
    let still = [&one[..], &one[frame..], &one[frame..]].concat();
    fs::write(at.join("still.y4m"), still).unwrap();
    let output = succeed(at, &["live", "still.y4m", "-o", "out.gif", "--similar", "0.98", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["frames"], &report["repeated"]), (&3.into(), &2.into()));
}

#[test]
fn a_camera_may_be_too_fast() {
    let folder = folder(6);
    let at = folder.path();
    let changes = "{\"frame\": 2, \"prompt\": \"snow\"}\n{\"frame\": 3, \"strength\": 0.9}\n";
    fs::write(at.join("changes"), changes).unwrap();
    let words = ["live", "in.y4m", "-o", "out.y4m", "--realtime", "--changes", "changes", "--json"];
    let output = succeed(at, &words);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Whatever is dropped, there are as many frames as came from the first that was drawn on, and every change takes effect or is counted.
    let written = frames(&at.join("out.y4m")).len() as u64;
    let changes = ["changes", "changes_unused"].map(|count| report[count].as_u64().unwrap());
    assert_eq!((&report["frames"], changes[0] + changes[1]), (&written.into(), 2), "{report}");
    assert!(written >= 1 && report["dropped"].as_u64().unwrap() <= 5, "{report}");
    assert!(report["frame_ms"]["p50"].as_f64() <= report["frame_ms"]["p99"].as_f64(), "{report}");
    let said = stderr(&succeed(at, &["live", "in.y4m", "-f", "-o", "out.y4m", "--realtime"]));
    let last = said.split("wrote ").nth(1).unwrap();
    for fact in [" dropped", "p50 ", " ms, p99 ", " ms a frame"] {
        assert!(last.contains(fact), "{fact:?} is not in {said}");
    }
}

/// From a camera, too, a change that does not fit is left out, and those after it take effect.
#[test]
fn a_camera_goes_on_when_a_change_is_left_out() {
    let folder = folder(1);
    let at = folder.path();
    let changes = "{\"frame\": 1, \"width\": 1024, \"height\": 1024}\n{\"frame\": 2, \"prompt\": \"snow\"}\n";
    fs::write(at.join("changes"), changes).unwrap();
    let mut command = kinora(at);
    command.args(["live", "-", "-o", "out.y4m", "--realtime", "--changes", "changes", "--record", "log"]);
    command.args(["--memory-limit", "64MB"]).args(MODEL);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut camera = command.spawn().unwrap();
    let (mut film, said) = (camera.stdin.take().unwrap(), BufReader::new(camera.stderr.take().unwrap()));
    // It takes pictures until a warning is seen.
    let (seen, warned) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(String::new())));
    let (see, warn) = (seen.clone(), warned.clone());
    let reader = thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            *warn.lock().unwrap() += &line;
            see.fetch_or(line.contains("is left out"), Ordering::SeqCst);
        }
        see.store(true, Ordering::SeqCst);
    });
    let video = fs::read(at.join("in.y4m")).unwrap();
    let frame = video.windows(6).position(|bytes| bytes == b"FRAME\n").unwrap();
    film.write_all(&video[..frame]).unwrap();
    while !seen.load(Ordering::SeqCst) && film.write_all(&video[frame..]).is_ok() {
        thread::sleep(Duration::from_millis(10));
    }
    drop(film);
    assert!(camera.wait().unwrap().success());
    reader.join().unwrap();
    let warned = warned.lock().unwrap();
    assert_eq!(warned.matches("a change is left out: the live network needs").count(), 1, "{warned}");
    let log = fs::read_to_string(at.join("log")).unwrap();
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&last["width"], &last["prompt"]), (&64.into(), &"snow".into()), "{log}");
}

#[test]
fn a_truncated_video_gives_its_whole_frames_and_a_warning() {
    let folder = folder(3);
    let at = folder.path();
    let bytes = fs::read(at.join("in.y4m")).unwrap();
    fs::write(at.join("cut.y4m"), &bytes[..bytes.len() - 100]).unwrap();
    let output = succeed(at, &["live", "cut.y4m", "-o", "out.y4m"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("truncated after frame 2"));
    assert_eq!(frames(&at.join("out.y4m")).len(), 2);
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_written() {
    let folder = folder(2);
    let at = folder.path();
    fs::write(at.join("changes"), "{\"frame\": 1, \"promt\": \"snow\"}\n").unwrap();
    fs::write(at.join("late"), "{\"frame\": 1, \"steps\": 99}\n").unwrap();
    fs::write(at.join("text.mp4"), "no video").unwrap();
    fs::write(at.join("fine"), "{\"frame\": 1, \"steps\": 2}\n").unwrap();
    let wrong: [(&[&str], i32, &str); 11] = [
        (&["live", "missing.mp4"], 1, "there is no video at"),
        (&["live", "text.mp4"], 1, "is not a video"),
        (&["live", "in.y4m", "--strength", "2"], 2, "strength is 2"),
        (&["live", "in.y4m", "--steps", "9"], 2, "steps is 9"),
        (&["live", "in.y4m", "--similar", "1"], 2, "--similar 1 is out of range"),
        (&["live", "in.y4m", "--changes", "changes"], 2, "changes:1: unknown field `promt`"),
        (&["live", "in.y4m", "--changes", "late"], 2, "late:1: steps is 99"),
        (&["live", "in.y4m", "-o", "in.y4m", "--force"], 2, "in.y4m"),
        (&["live", "in.y4m", "-o", "-", "--json"], 2, "standard output"),
        (&["live", "in.y4m", "-o", "out.y4m", "--record", "out.y4m"], 2, "named for two outputs"),
        (&["live", "in.y4m", "--changes", "fine", "--record", "fine", "--force"], 2, "is an input"),
    ];
    for (words, code, said) in wrong {
        let output = run(at, words);
        let error = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        assert!(error.contains(said) || printed.contains(said), "{words:?}: {error}");
    }
    let mut left: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["changes", "fine", "in.y4m", "late", "model", "text.mp4"]);
}

#[test]
fn a_prompt_becomes_a_picture() {
    let folder = folder(1);
    let at = folder.path();
    let words = ["image", "--prompt", "a lighthouse", "--seed", "5"];
    succeed(at, &[&words[..], &["-o", "one.png"]].concat());
    succeed(at, &[&words[..], &["-o", "two.png"]].concat());
    assert_eq!(fs::read(at.join("one.png")).unwrap(), fs::read(at.join("two.png")).unwrap());
    let from = [&words[..], &["--from", "one.png", "--strength", "0.3", "-o", "three.png"]].concat();
    succeed(at, &from);
    let (one, three) = (
        kinora::photo::open(at.join("one.png")).unwrap(),
        kinora::photo::open(at.join("three.png")).unwrap(),
    );
    assert!(one.size() == three.size() && one != three);
    let again = run(at, &[&words[..], &["-o", "one.png"]].concat());
    assert_eq!(again.status.code(), Some(1), "it exists");
    let itself = run(at, &[&words[..], &["--from", "one.png", "-o", "one.png", "--force"]].concat());
    assert_eq!(itself.status.code(), Some(2), "an input is never replaced");
    let other = run(at, &[&words[..], &["-o", "picture.jpg"]].concat());
    assert_eq!(other.status.code(), Some(2));
}

/// The first frame in 8 bits waits until the model is measured; what was measured is kept for pictures and later runs.
#[test]
fn a_video_and_a_picture_are_drawn_in_8_bits() {
    let folder = folder(2);
    let at = folder.path();
    let draw = |name: &str, more: &[&str]| {
        let words = ["live", "in.y4m", "-o", name, "--prompt", "a harbour", "--seed", "7", "--size", "64x64"];
        let output = succeed(at, &[&words[..], more].concat());
        (fs::read(at.join(name)).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let fp8 = ["--precision", "fp8", "--verbose"];
    let (f16, _) = draw("f16.y4m", &["--precision", "f16"]);
    let file = at.join("model/fp8.json");
    assert!(!file.exists());
    let (first, said) = draw("first.y4m", &fp8);
    assert!(said.contains("measuring activations"), "{said}");
    let known = fs::read(&file).unwrap();
    let (second, said) = draw("second.y4m", &fp8);
    assert!(!said.contains("measuring activations"), "{said}");
    assert!(first == second && first != f16);
    succeed(at, &["image", "--prompt", "a harbour", "-o", "picture.png", "--precision", "fp8"]);
    assert_eq!(fs::read(&file).unwrap(), known);
    fs::write(&file, "{}").unwrap();
    let failed = run(at, &["image", "--prompt", "a harbour", "-o", "other.png", "--precision", "fp8"]);
    assert_eq!(failed.status.code(), Some(1));
    let said = stderr(&failed);
    assert!(said.contains("fp8.json: missing field") && said.contains("remove it"), "{said}");
}

#[test]
fn a_prompt_becomes_a_video() {
    let folder = folder(1);
    let at = folder.path();
    let words =
        ["generate", "--prompt", "a lighthouse", "--draw-model", "model", "--draw-autoencoder", "model/tiny"];
    let clip = ["--size", "64x64", "--frames", "2", "--steps", "1", "--seed", "3", "--device", "cpu", "-o"];
    for name in ["one.y4m", "two.y4m"] {
        let output = kinora(at).args(words).args(clip).arg(name).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read(at.join("one.y4m")).unwrap(), fs::read(at.join("two.y4m")).unwrap());
    assert_eq!(frames(&at.join("one.y4m")).len(), 2);
    // The photo is drawn in f16, and the clip multiplies in 8 bits.
    let fp8 = kinora(at).args(words).args(clip).args(["fp8.y4m", "--precision", "fp8"]).output().unwrap();
    assert!(fp8.status.success(), "{}", String::from_utf8_lossy(&fp8.stderr));
    let both = kinora(at).args(words).args(clip).args(["three.y4m", "photo.png"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "a photo or a prompt");
}

/// In a file every frame keeps its place: a stream batch draws what steps one after the other would.
#[test]
fn a_stream_batch_draws_a_file_frame_by_frame() {
    let folder = folder(6);
    let at = folder.path();
    fs::write(at.join("changes"), "{\"frame\": 3, \"strength\": 0.9}\n").unwrap();
    let words = ["--prompt", "a harbour", "--seed", "7", "--steps", "3", "--json"];
    for more in [&[][..], &["--changes", "changes", "--original-size"], &["--similar", "0.5"]] {
        let draw = |name: &str, batch: &[&str]| -> serde_json::Value {
            let output =
                succeed(at, &[&["live", "in.y4m", "-f", "-o", name][..], &words, more, batch].concat());
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let alone = draw("one.y4m", &[]);
        assert_eq!(alone["repeated"] != 0, more.contains(&"--similar"), "{alone}");
        let report = draw("batch.y4m", &["--stream-batch"]);
        assert_eq!((&report["frames"], &report["frames_late"]), (&6.into(), &0.into()), "{report}");
        assert_eq!(
            fs::read(at.join("one.y4m")).unwrap(),
            fs::read(at.join("batch.y4m")).unwrap(),
            "{more:?}"
        );
    }
    // A pipe is not waited for: what comes is late, and the report says so.
    let input = fs::File::open(at.join("in.y4m")).unwrap();
    let mut command = kinora(at);
    command.args(["live", "-", "-o", "late.y4m", "--stream-batch"]).args(words).args(MODEL);
    let output = command.stdin(input).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["frames"], &report["frames_late"]), (&6.into(), &2.into()), "{report}");
    succeed(at, &[&["live", "in.y4m", "-f", "-o", "one.y4m"][..], &words].concat());
    let (one, late) = (frames(&at.join("one.y4m")), frames(&at.join("late.y4m")));
    assert!(late[2..] == one[..4]);
}

/// Blending in a stream batch is that of steps one after the other, through changes and cuts.
#[test]
fn a_stream_batch_blends_a_file_frame_by_frame() {
    let folder = folder(1);
    let at = folder.path();
    let options = VideoOptions::new(FrameRate::new(10.0).unwrap());
    let mut video = VideoFile::create(at.join("calm.y4m"), &options).unwrap();
    for number in 0..9 {
        // It drifts, and from the seventh frame on it is another scene.
        let pixel = |i: usize| ((i / 3 % 80 + number * 3) as u8, (200 - i / 240 * 4) as u8);
        let bytes = (0..80 * 48 * 3).map(|i| if number < 7 { pixel(i).0 } else { pixel(i).1 }).collect();
        video.write_frame(&RgbImage::new(80, 48, bytes).unwrap()).unwrap();
    }
    video.finish().unwrap();
    let changes = [
        "{\"frame\": 3, \"strength\": 0.9}\n",
        "{\"frame\": 3, \"prompt\": \"snow\"}\n",
        "{\"frame\": 1, \"seed\": 9}\n{\"frame\": 5, \"blend\": 0.2}\n{\"frame\": 8, \"steps\": 2}\n",
    ];
    for changes in changes {
        fs::write(at.join("changes"), changes).unwrap();
        let words = ["--prompt", "a harbour", "--seed", "7", "--steps", "3", "--changes", "changes"];
        let draw = |name: &str, more: &[&str]| {
            succeed(at, &[&["live", "calm.y4m", "-f", "-o", name][..], &words, more].concat());
            frames(&at.join(name))
        };
        let plain = draw("plain.y4m", &[]);
        let one_by_one = draw("one.y4m", &["--blend", "0.6"]);
        assert!(one_by_one[1..3].iter().zip(&plain[1..3]).all(|(a, b)| a != b), "it is blended");
        let batched = draw("batch.y4m", &["--blend", "0.6", "--stream-batch"]);
        let apart = |(a, b): (&RgbImage, &RgbImage)| {
            a.bytes().iter().zip(b.bytes()).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
        };
        let apart: Vec<u8> = one_by_one.iter().zip(&batched).map(apart).collect();
        assert_eq!(apart, [0; 9], "{changes}");
    }
}

#[test]
fn a_change_that_does_not_fit_is_left_out() {
    let folder = folder(4);
    let at = folder.path();
    let limit = |limit: &str| {
        let words =
            ["live", "in.y4m", "-f", "-o", "out.y4m", "--seed", "7", "--json", "--memory-limit", limit];
        let output = run(at, &[&words[..], &["--changes", "changes"]].concat());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    fs::write(at.join("changes"), "{\"frame\": 2, \"width\": 1024, \"height\": 1024}\n").unwrap();
    let (code, report) = limit("64MB");
    assert_eq!((code, &report["frames"], &report["changes"]), (Some(0), &4.into(), &0.into()), "{report}");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("a change is left out: the live network needs"), "{warnings}");
    let (code, report) = limit("1MB");
    assert_eq!((code, &report["error"]["kind"]), (Some(1), &"memory".into()), "{report}");
    // What helps is what this command has: neither frames nor a decoder in chunks.
    let help = report["error"]["help"].as_str().unwrap();
    assert!(help.contains("a smaller --size") && help.ends_with("or raise --memory-limit"), "{help}");
    assert!(!help.contains("--frames") && !help.contains("--decode-chunk"), "{help}");
}

/// A picture of its own is numbered as well, and is called by the name that it has.
#[test]
fn the_file_that_is_there_is_named() {
    let folder = folder(1);
    let at = folder.path();
    let said = stderr(&succeed(at, &["live", "in.y4m", "-o", "al.png"]));
    assert!(said.contains("wrote al-0001.png (1 frame"), "{said}");
    assert!(at.join("al-0001.png").exists() && !at.join("al.png").exists());
    let report = succeed(at, &["live", "in.y4m", "-f", "-o", "al.png", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["files"], serde_json::json!(["al-0001.png"]));
}

/// Pictures of a folder may have other sizes than the first.
#[test]
fn a_later_frame_that_loses_much_is_warned_of() {
    let folder = folder(1);
    let at = folder.path();
    fs::create_dir(at.join("pictures")).unwrap();
    for (number, [width, height]) in [[64, 64], [64, 128], [64, 128]].into_iter().enumerate() {
        let picture = RgbImage::new(width, height, vec![90; width * height * 3]).unwrap();
        fs::write(at.join(format!("pictures/{number}.bmp")), bmp(&picture)).unwrap();
    }
    let said = stderr(&succeed(at, &["live", "pictures", "-o", "out.y4m"]));
    let warning =
        "50 % of each frame of 64×128 is not drawn, because the model's picture, 64×64, has another shape";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
    // 64×128 would have twice the pixels: no size is a better one.
    assert!(!said.contains("--size") && said.contains("--fit pad keeps all of it"), "{said}");
    let from = ["image", "--from", "pictures/1.bmp", "-o", "out.png"];
    assert!(stderr(&succeed(at, &from)).contains(warning));
}

/// The bytes of a LoRA file with one of the UNet's numbers replaced by an f16.
fn with_number(file: &[u8], number: [u8; 2]) -> Vec<u8> {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&file[8..8 + header]).unwrap();
    let tensors = tensors.as_object().unwrap();
    let (_, tensor) = tensors.iter().find(|(name, _)| name.starts_with("unet.")).unwrap();
    assert_eq!(tensor["dtype"], "F16");
    let at = 8 + header + tensor["data_offsets"][0].as_u64().unwrap() as usize;
    let mut file = file.to_vec();
    file[at..at + 2].copy_from_slice(&number);
    file
}

#[test]
fn a_bad_lora_is_named_and_not_the_model() {
    let folder = folder(1);
    let at = folder.path();
    lora(at, "peft", "style.safetensors");
    let file = fs::read(at.join("style.safetensors")).unwrap();
    let nan = [0x00, 0x7e];
    fs::write(at.join("nan.safetensors"), with_number(&file, nan)).unwrap();
    fs::write(at.join("changes"), "{\"frame\": 0, \"lora\": {\"nan\": 1}}\n").unwrap();
    let wrong: [(&[&str], &str); 3] = [
        (&["--lora", "nan.safetensors"], "error: nan.safetensors: unet."),
        // Merged on the device, when the strength is turned.
        (&["--lora", "nan.safetensors", "--changes", "changes"], "error: nan.safetensors: unet."),
        (
            &["--lora", "style.safetensors:1e9", "--precision", "f16"],
            "error: style.safetensors: with this LoRA the weight",
        ),
    ];
    for (words, said) in wrong {
        let output = run(at, &[&["live", "in.y4m", "-o", "out.y4m"][..], words].concat());
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with(said) || error.contains(&format!(" {said}")), "{error}");
        assert!(!error.contains("model's files"), "{error}");
    }
}

#[test]
fn changes_after_the_last_frame_are_counted() {
    let folder = folder(3);
    let at = folder.path();
    let changes = "{\"frame\": 2, \"steps\": 2}\n{\"frame\": 3, \"seed\": 1}\n{\"frame\": 9, \"seed\": 2}\n";
    fs::write(at.join("changes"), changes).unwrap();
    let said = stderr(&succeed(at, &["live", "in.y4m", "-o", "out.y4m", "--changes", "changes"]));
    let warning =
        "2 changes never took effect: the last frame is number 2, and the next change is for frame 3";
    assert!(said.contains(warning), "{said}");
    fs::write(at.join("changes"), "{\"frame\": 2, \"steps\": 2}\n").unwrap();
    let said = stderr(&succeed(at, &["live", "in.y4m", "-f", "-o", "out.y4m", "--changes", "changes"]));
    assert!(!said.contains("never took effect"), "{said}");
    // Several lines of a frame take effect together, and are refused together.
    fs::write(at.join("changes"), "\n{\"frame\": 1, \"blend\": 2}\n{\"frame\": 1, \"seed\": 2}\n").unwrap();
    let refused = run(at, &["live", "in.y4m", "-f", "-o", "out.y4m", "--changes", "changes"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("changes:2-3: blend is 2"), "{}", stderr(&refused));
}

#[test]
fn options_without_effect_are_said() {
    let folder = folder(2);
    let at = folder.path();
    lora(at, "peft", "style.safetensors");
    fs::write(at.join("guided"), "{\"frame\": 1, \"guidance\": \"full\", \"prompt\": \"x\"}\n").unwrap();
    let idle: [(&[&str], &str); 14] = [
        (&["live", "--negative-prompt", "a dog"], "--negative-prompt has no effect"),
        (&["live", "--guidance-scale", "2"], "--guidance-scale has no effect without --guidance"),
        (&["live", "--guidance", "full"], "the prompt and the negative prompt are the same"),
        (&["live", "--guidance", "self", "--guidance-scale", "1"], "a --guidance-scale of 1 pushes nowhere"),
        (&["live", "--guidance", "initialize", "--prompt", "x"], "is the same as full with 1 step"),
        (&["live", "--stream-batch"], "--stream-batch has no effect with 1 step"),
        (&["live", "--glide", "3"], "--glide has no effect"),
        (&["live", "--control-scale", "2"], "--control-scale has no effect without --controlnet"),
        (&["live", "--background", "white"], "--background has no effect"),
        (&["live", "--quality", "50"], "--quality has no effect"),
        (&["live", "--input-fps", "30"], "--input-fps has no effect"),
        (&["live", "--tuning", "off"], "the CPU draws, so GPU options have no effect: --tuning"),
        (&["live", "--lora", "style.safetensors:0"], "style.safetensors has no effect: its strength is 0"),
        (&["live", "--strength", "0", "--steps", "2"], "--strength 0 leaves every frame as it is"),
    ];
    for (words, said) in idle {
        let output = succeed(at, &[&words[..1], &["in.y4m", "-f", "-o", "out.y4m"], &words[1..]].concat());
        let warned = stderr(&output);
        assert!(warned.contains(&format!("warning: {said}")) || warned.contains(said), "{words:?}: {warned}");
    }
    // A change makes the difference.
    let words = ["live", "in.y4m", "-f", "-o", "out.y4m", "--changes", "guided", "--glide", "1"];
    let effective = ["--negative-prompt", "a dog", "--guidance-scale", "2"];
    let said = stderr(&succeed(at, &[&words[..], &effective].concat()));
    assert!(!said.contains("no effect"), "{said}");
    let image: [(&[&str], &str); 4] = [
        (&["--negative-prompt", "a dog"], "--negative-prompt has no effect"),
        (&["--fit", "pad"], "--fit has no effect without --from"),
        (&["--background", "white"], "--background has no effect without --from"),
        (&["--from", "out-0001.png", "--background", "white"], "nothing of the picture is transparent"),
    ];
    succeed(at, &["live", "in.y4m", "-o", "out.png"]);
    for (words, said) in image {
        let warned = stderr(&succeed(at, &[&["image", "-f", "-o", "picture.png"][..], words].concat()));
        assert!(warned.contains(said), "{words:?}: {warned}");
    }
}

/// `kinora live … -o - | ffplay -`, when the window is closed.
#[test]
#[cfg(unix)]
fn a_player_that_is_closed_ends_the_video_quietly() {
    let folder = folder(3);
    let at = folder.path();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = kinora(at);
    command.args(["live", "in.y4m", "-o", "-", "--record", "log"]).args(MODEL);
    let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("error") && said.contains("wrote to standard output (0 frames"), "{said}");
    assert!(said.contains("its reader has ended"), "{said}");
    assert_eq!(fs::read_to_string(at.join("log")).unwrap().lines().count(), 1);
}

/// What overflows is said, once, and the video goes on.
#[test]
fn a_lora_that_overflows_is_warned_about() {
    let folder = folder(4);
    lora(folder.path(), "peft", "huge.safetensors");
    let path = folder.path().join("huge.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let data = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    // Its numbers are f16: each becomes 61440, with the sign that it has.
    for number in bytes[data..].as_chunks_mut::<2>().0 {
        *number = [0x80, number[1] & 0x80 | 0x7B];
    }
    fs::write(&path, &bytes).unwrap();
    let changes = "{\"frame\": 1, \"lora\": {\"huge\": 1}}\n{\"frame\": 3, \"lora\": {\"huge\": 0}}\n";
    fs::write(folder.path().join("changes.jsonl"), changes).unwrap();
    let words = ["live", "in.y4m", "-o", "out.png", "--precision", "f16", "--lora", "huge.safetensors:0"];
    let output = succeed(folder.path(), &[&words[..], &["--changes", "changes.jsonl", "--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings: Vec<&str> =
        json["warnings"].as_array().unwrap().iter().filter_map(|w| w.as_str()).collect();
    let black: Vec<&&str> = warnings.iter().filter(|warning| warning.contains("all black")).collect();
    assert!(matches!(black[..], [warning] if warning.starts_with("frame 1 ")), "{warnings:?}");
}

/// The files under a folder that begin as PNG files do, hidden ones too.
#[cfg(unix)]
fn pngs(folder: &Path) -> usize {
    let found = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_png = |path: &Path| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x89PNG"));
    found.map(|path| if path.is_dir() { pngs(&path) } else { usize::from(is_png(&path)) }).sum()
}

/// A frame of the second size takes minutes. Ctrl-C does not wait for it, and the video ends with the frame before.
#[test]
#[cfg(unix)]
fn one_request_ends_a_long_frame_and_keeps_those_before() {
    let folder = folder(3);
    let change = "{\"frame\": 1, \"width\": 2048, \"height\": 2048}\n";
    fs::write(folder.path().join("changes.jsonl"), change).unwrap();
    let mut command = kinora(folder.path());
    command.args(["live", "in.y4m", "-o", "out.png", "--changes", "changes.jsonl", "--json"]).args(MODEL);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    while pngs(folder.path()) == 0 {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended without a frame");
        thread::sleep(Duration::from_millis(20));
    }
    // So that the second frame has begun.
    thread::sleep(Duration::from_millis(1000));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["stopped"], &json["frames"]), (&true.into(), &1.into()), "{json}");
    assert_eq!(pngs(folder.path()), 1);
    assert!(folder.path().join("out-0001.png").exists());
}
