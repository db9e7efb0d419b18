//! Whatever is wrong, the program says so in words and leaves nothing half-written.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    collections::HashMap,
    env, fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use safetensors::{SafeTensors, tensor::TensorView};
use support::{Answer, Studio, answer, kinora, model, model_copy, photo, run};

const UNET: &str = "unet/diffusion_pytorch_model.safetensors";
const VAE: &str = "vae/diffusion_pytorch_model.safetensors";
const IMAGE_ENCODER: &str = "image_encoder/model.safetensors";

/// The answer to a model; nothing may be left of the video.
fn with_model(model: &Path) -> Answer {
    let studio = Studio::new();
    let refused = answer(&mut studio.generate_from(&photo("rgb.png"), model, "clip.mp4"));
    assert_eq!(studio.names(), [""; 0]);
    refused
}

/// The answer to a model with one of its files changed.
fn with_file(name: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Answer {
    let copy = model_copy();
    let path = copy.path().join(name);
    let changed = change(fs::read(&path).unwrap());
    fs::write(&path, changed).unwrap();
    with_model(copy.path())
}

/// A weights file with its tensors renamed, reshaped or left out.
fn with_tensors(name: &str, change: impl Fn(&str, Vec<usize>) -> Option<Vec<usize>>) -> Answer {
    with_file(name, |bytes| changed_tensors(&bytes, &change))
}

fn changed_tensors(bytes: &[u8], change: impl Fn(&str, Vec<usize>) -> Option<Vec<usize>>) -> Vec<u8> {
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let changed = tensors.iter().filter_map(|(name, tensor)| {
        let shape = change(name, tensor.shape().to_vec())?;
        Some((name.to_owned(), TensorView::new(tensor.dtype(), shape, tensor.data()).unwrap()))
    });
    safetensors::serialize(changed.collect::<Vec<_>>(), None::<HashMap<_, _>>).unwrap()
}

#[test]
fn weights_that_are_cut_short() {
    for name in [UNET, VAE, IMAGE_ENCODER] {
        let cut = with_file(name, |bytes| bytes[..bytes.len() - 100].to_vec());
        cut.must_fail(1, &[name, "cut short", "again"]);
        with_file(name, |bytes| bytes[..5].to_vec()).must_fail(1, &[name, "cut short", "again"]);
        with_file(name, |_| Vec::new()).must_fail(1, &[name, "again"]);
    }
}

#[test]
fn weights_that_are_damaged() {
    let garbage = with_file(UNET, |bytes| bytes.iter().map(|byte| byte.wrapping_mul(31) ^ 0x5a).collect());
    garbage.must_fail(1, &[UNET, "not a safetensors file, or it is damaged"]);
    let header = with_file(UNET, |mut bytes| {
        bytes[8..40].fill(b'?');
        bytes
    });
    header.must_fail(1, &[UNET, "damaged"]);
}

#[test]
fn a_tensor_that_is_missing() {
    for (name, part, missing) in [
        (UNET, "unet", "conv_in.weight"),
        (VAE, "vae", "decoder.conv_in.bias"),
        (IMAGE_ENCODER, "image_encoder", "visual_projection.weight"),
    ] {
        let answer = with_tensors(name, |tensor, shape| (tensor != missing).then_some(shape));
        answer.must_fail(1, &[part, missing, "have no tensor", "kinora info"]);
    }
}

#[test]
fn info_says_what_a_models_weights_lack() {
    let copy = model_copy();
    let path = copy.path().join(VAE);
    let changed = changed_tensors(&fs::read(&path).unwrap(), |tensor, shape| {
        (tensor != "decoder.conv_in.bias").then_some(shape)
    });
    fs::write(&path, changed).unwrap();
    let folder = copy.path().to_str().unwrap();
    let text = run(&["info", folder]).text();
    assert!(
        text.contains("No clip can be made") && text.contains("vae: the weights have no tensor"),
        "{text}"
    );
    let problems = run(&["info", folder, "--json"]).json()["problems"].clone();
    assert_eq!(problems, serde_json::json!(["vae: the weights have no tensor decoder.conv_in.bias"]));
    let whole = run(&["info", model().to_str().unwrap(), "--json"]).json();
    assert_eq!(whole["problems"], serde_json::json!([]));
}

#[test]
fn a_tensor_of_another_shape() {
    let answer = with_tensors(UNET, |tensor, shape| match tensor {
        "conv_in.weight" => Some(shape.into_iter().rev().collect()),
        _ => Some(shape),
    });
    answer.must_fail(1, &["conv_in.weight", "must be", "the file has"]);
}

#[test]
fn classes_that_are_unknown() {
    let index = |from: &'static str, to: &'static str| {
        with_file("model_index.json", |text| String::from_utf8(text).unwrap().replace(from, to).into())
    };
    index("StableVideoDiffusionPipeline", "FluxPipeline")
        .must_fail(1, &["model_index.json", "FluxPipeline", "StableVideoDiffusionPipeline"]);
    index("UNetSpatioTemporalConditionModel", "UNet3DConditionModel").must_fail(
        1,
        &["model_index.json", "unet", "UNet3DConditionModel", "UNetSpatioTemporalConditionModel"],
    );
    index("EulerDiscreteScheduler", "HeunDiscreteScheduler")
        .must_fail(1, &["model_index.json", "HeunDiscreteScheduler", "EulerDiscreteScheduler"]);
    with_file("model_index.json", |_| b"{".to_vec()).must_fail(1, &["model_index.json", "line 1"]);
}

#[test]
fn folders_that_are_no_models() {
    let empty = tempfile::tempdir().unwrap();
    with_model(empty.path()).must_fail(1, &["model_index.json", "diffusers"]);
    with_model(&photo("rgb.png")).must_fail(1, &["rgb.png", "this is a file", "folder"]);
    with_model("nothing here".as_ref()).must_fail(1, &["nothing here", "no such folder"]);
    with_file("unet/config.json", |_| b"[]".to_vec()).must_fail(1, &["config.json"]);
    let copy = model_copy();
    fs::rename(copy.path().join(UNET), copy.path().join("unet/diffusion_pytorch_model.bin")).unwrap();
    with_model(copy.path()).must_fail(1, &["pickle", ".safetensors"]);
    fs::remove_dir_all(copy.path().join("unet")).unwrap();
    with_model(copy.path()).must_fail(1, &["unet"]);
}

#[test]
fn no_network_for_a_model_of_the_hub() {
    let studio = Studio::new();
    let mut command = studio.generate_from(&photo("rgb.png"), "owner/name".as_ref(), "clip.mp4");
    let cache = tempfile::tempdir().unwrap();
    command.env("HF_HOME", cache.path());
    answer(&mut command).must_fail(1, &["owner/name", "http://127.0.0.1:1", "network", "--model"]);
    command.env("HF_HUB_OFFLINE", "1");
    answer(&mut command).must_fail(1, &["owner/name", "HF_HUB_OFFLINE"]);
    assert_eq!(studio.names(), [""; 0]);
}

#[test]
fn photos_that_cannot_be_read() {
    let studio = Studio::new();
    let text = studio.write("text.png", b"this is no picture");
    let empty = studio.write("empty.jpg", b"");
    let cut = studio.write("cut.jpg", &fs::read(photo("420.jpg")).unwrap()[..300]);
    let huge = studio.write("huge.bmp", &huge_bmp());
    for (path, words) in [
        (text.as_path(), &["text.png", "not an image", "convert"][..]),
        (&empty, &["empty.jpg", "empty"]),
        (&cut, &["cut.jpg", "truncated"]),
        (&huge, &["huge.bmp", "20000×20000", "smaller"]),
        ("missing.png".as_ref(), &["missing.png", "no photo"]),
        (studio.folder.path(), &["is a folder"]),
    ] {
        let before = studio.names();
        answer(&mut studio.generate_from(path, model(), "clip.mp4")).must_fail(1, words);
        assert_eq!(studio.names(), before);
    }
}

/// The header of a picture of 20,000×20,000 pixels.
fn huge_bmp() -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for number in [1_200_000_054u32, 0, 54, 40, 20_000, 20_000, 1 | 24 << 16, 0, 1_200_000_000, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

#[test]
fn photos_that_are_unusual_are_read() {
    let studio = Studio::new();
    for name in [
        "one_pixel.png",
        "rgba.png",
        "rgba_16_bit.png",
        "gray_16_bit.png",
        "cmyk.jpg",
        "cmyk.tif",
        "palette_transparent.png",
        "animated.gif",
    ] {
        let mut command = studio.generate_from(&photo(name), model(), "clip.y4m");
        let made = answer(command.args(["--force", "--json"]));
        assert_eq!(made.code, Some(0), "{name}: {made:?}");
    }
}

/// Turned by its EXIF orientation, the photo is higher than wide: only so does it fit a clip of that shape.
#[test]
fn a_photo_is_turned_as_its_camera_was() {
    let studio = Studio::new();
    for (name, size, cropped) in
        [("orientation_1.jpg", [24, 16], true), ("orientation_6.jpg", [16, 24], false)]
    {
        let mut command = studio.generate_from(&photo(name), model(), "clip.y4m");
        let made = answer(command.args(["--force", "--json", "--size", "64x128"]));
        assert_eq!(made.code, Some(0), "{name}: {made:?}");
        let json = made.json();
        assert_eq!([&json["photo"]["width"], &json["photo"]["height"]], size, "{name}");
        assert_eq!(json["warnings"].to_string().contains("24×16"), cropped, "{name}: {json}");
    }
}

#[test]
fn settings_that_make_no_clip() {
    let studio = Studio::new();
    for (words, said) in [
        (["--frames", "0"], &["--frames", "at least 1"][..]),
        (["--steps", "0"], &["--steps", "at least 1"]),
        (["--steps", "-3"], &["--steps", "whole number, at least 1"]),
        (["--frames", "many"], &["--frames", "whole number"]),
        (["--frames", "100000"], &["frames", "100000", "from 1 to"]),
        (["--size", "0x64"], &["--size", "1024x576"]),
        (["--size", "64"], &["--size", "1024x576"]),
        (["--size", "100x64"], &["width is 100", "multiple of 64"]),
        (["--size", "64x1000000000000"], &["height", "multiple of 64"]),
        (["--decode-chunk", "0"], &["--decode-chunk", "at least 1"]),
        (["--cache", "0"], &["--cache", "at least 1"]),
        (["--cache-blocks", "-1"], &["--cache-blocks", "at least 1"]),
        (["--scheduler", "magic"], &["--scheduler", "euler", "dpm++"]),
        (["--precision", "f8"], &["--precision", "bf16"]),
        (["--device", "abacus"], &["--device", "cpu"]),
        (["--device", "cuda:first"], &["--device", "cuda:N"]),
        (["--kernels", "slow"], &["--kernels", "baseline"]),
        (["--memory-limit", "much"], &["--memory-limit", "8GB"]),
        (["--noise-aug", "-1"], &["noise"]),
        (["--noise-aug", "NaN"], &["noise augmentation", "NaN"]),
        (["--max-guidance", "inf"], &["guidance", "finite"]),
        (["--max-guidance", "1e39"], &["guidance", "finite"]),
        (["--seed", "luck"], &["--seed"]),
        (["--fit", "zoom"], &["--fit", "crop", "pad", "stretch"]),
        (["--background", "mauve"], &["--background", "mauve", "#rrggbb"]),
    ] {
        // The model is not even looked for.
        let mut command = studio.generate_from(&photo("rgb.png"), "/nonexistent".as_ref(), "clip.mp4");
        command.args(["--json"]);
        // The last one counts where an option comes twice, so the small values of the others do not matter.
        let refused = answer(command.args(words));
        refused.must_fail(2, said);
        assert_eq!(refused.json()["error"]["exit_code"], 2, "{words:?}");
    }
    assert_eq!(studio.names(), [""; 0]);
}

/// Peers and predictions multiply in 16 bits at least, and so do GPUs before Ada.
#[test]
fn not_everything_multiplies_in_fp8() {
    run(&["bench", "kernels", "--precision", "fp8"]).must_fail(2, &["--precision", "'fp8'", "bf16"]);
    #[cfg(all(feature = "cuda", feature = "simulator"))]
    for config in ["svd", "sd-turbo"] {
        run(&["info", "--config", config, "--device-profile", "h200", "--precision", "fp8"])
            .must_fail(2, &["precision is fp8", "are predicted in 16 or 32 bits: ask for f16"]);
    }
    #[cfg(feature = "cuda")]
    for config in ["svd", "sd-turbo"] {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("kernels");
        let words = ["kernels", "build", "--arch", "sm_80", "--config", config, "--precision", "fp8", "-o"];
        run(&[&words[..], &[output.to_str().unwrap()]].concat())
            .must_fail(1, &["sm_80", "cannot multiply in fp8", "--precision f16"]);
        assert!(!output.exists());
    }
}

/// A GPU that no machine has: without a driver, and beside one that is there.
#[test]
fn a_gpu_that_is_not_there() {
    let studio = Studio::new();
    let mut command = studio.generate_from(&photo("rgb.png"), model(), "clip.mp4");
    let refused = answer(command.args(["--json", "--device", "cuda:77"]));
    refused.must_fail(1, &["use --device cpu to run on the CPU"]);
    assert_eq!(refused.json()["error"]["kind"], "device");
    assert_eq!(studio.names(), [""; 0]);
}

/// More steps than the model was trained with, and for a published one before it is downloaded.
#[test]
fn steps_that_the_scheduler_does_not_have() {
    let studio = Studio::new();
    let published = Path::new("stabilityai/stable-video-diffusion-img2vid-xt");
    for (model, words) in [
        (model(), &["--steps", "1001"][..]),
        (published, &["--steps", "1001"]),
        (published, &["--steps", "51", "--scheduler", "lcm"]),
    ] {
        let mut command = studio.generate_from(&photo("rgb.png"), model, "clip.mp4");
        let refused = answer(command.args(words).arg("--json"));
        refused.must_fail(2, &["asked for", "steps, but takes 1 to"]);
        assert_eq!(refused.json()["error"]["kind"], "usage");
    }
    assert_eq!(studio.names(), [""; 0]);
}

#[test]
fn rates_that_no_file_has() {
    let studio = Studio::new();
    for (output, rate, said) in [
        ("clip.mp4", "0", "not a frame rate"),
        ("clip.mp4", "-5", "frame rate"),
        ("clip.mp4", "1e9", "not a frame rate"),
        ("clip.gif", "60", "50 frames per second"),
    ] {
        let option = format!("--play-fps={rate}");
        let refused = answer(studio.generate(output).args([&option, "--json"]));
        refused.must_fail(2, &[said, "--play-fps"]);
        assert_eq!(refused.json()["error"]["kind"], "usage");
    }
    assert_eq!(studio.names(), [""; 0]);
}

#[test]
fn memory_that_does_not_suffice() {
    let studio = Studio::new();
    let refused = answer(studio.generate("clip.mp4").args(["--memory-limit", "1kB"]));
    refused.must_fail(
        1,
        &[
            "the image encoder needs",
            "1.00 kB may be used",
            "the limit is what was asked for",
            "raise --memory-limit",
        ],
    );
    // Two frames at a time need more than one.
    let need = |chunk: &str| {
        let words = ["--frames", "2", "--size", "512x512", "--decode-chunk", chunk, "--json"];
        let info = answer(kinora().arg("info").arg(model()).args(words)).json();
        info["estimate"]["peak_bytes"].as_u64().unwrap()
    };
    let (one, two) = (need("1"), need("2"));
    assert!(one < two);
    let memory = one.to_string();
    let generate = || {
        let mut command = studio.generate("clip.mp4");
        command.args(["--size", "512x512", "--memory-limit", &memory]);
        command
    };
    let refused = answer(generate().args(["--decode-chunk", "2"]));
    refused.must_fail(1, &["the autoencoder's decoder needs", "help: --decode-chunk 1 would fit"]);
    assert_eq!(studio.names(), [""; 0]);
    // Without a number of one's own, the one that fits is taken.
    let made = answer(generate().args(["-v", "--json"]));
    assert!(made.code == Some(0) && made.stderr.contains("decoding 1 frame at a time to fit"), "{made:?}");
    assert_eq!(made.json()["report"]["settings"]["decode_chunk"], 1);
    // The object alone says it, too.
    let made = answer(generate().args(["--json", "--force"]));
    let warnings = made.json()["warnings"].to_string();
    assert!(made.stderr.is_empty() && warnings.contains("decoding 1 frame at a time to fit"), "{made:?}");
    // Less than one frame at a time there is not.
    let less = (one - 1).to_string();
    let refused = answer(studio.generate("other.mp4").args(["--size", "512x512", "--memory-limit", &less]));
    refused.must_fail(1, &["the limit is what was asked for"]);
}

/// A file of a few bytes that promises half a gigabyte of pixels.
#[test]
fn a_photo_that_does_not_fit_the_memory() {
    let studio = Studio::new();
    // A bitmap's header alone: the pixels that it promises are not looked for.
    let mut header = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    header.extend([13_000u32.to_le_bytes(); 2].concat());
    header.extend([1, 0, 24, 0].into_iter().chain([0; 24]));
    let photo = studio.write("photo.bmp", &header);
    let refused =
        answer(studio.generate_from(&photo, model(), "clip.gif").args(["--memory-limit", "20MB", "--json"]));
    refused.must_fail(1, &["1.18 GB of memory to open", "only 20.0 MB may be used"]);
    assert_eq!(refused.json()["error"]["kind"], "memory");
}

/// Without --memory-limit the machine's own limits hold: this clip fits no machine.
#[test]
#[cfg(target_os = "linux")]
fn memory_that_the_machine_does_not_have() {
    let studio = Studio::new();
    let words = ["--size", "4096x4096", "--frames", "1024", "--json"];
    let refused = answer(studio.generate("clip.y4m").args(words));
    refused.must_fail(1, &["may be used", "the limit is what the", "--memory-limit sets a limit other"]);
    assert_eq!(refused.json()["error"]["kind"], "memory");
    let made = answer(studio.generate("clip.y4m").args(["--json", "-v"]));
    assert!(made.stderr.contains("of memory: what"), "{made:?}");
    let limit = &made.json()["memory_limit"];
    assert!(limit["bytes"].as_u64().unwrap() > 0, "{limit}");
    assert!(["machine", "control_group"].contains(&limit["source"].as_str().unwrap()), "{limit}");
    let made = answer(studio.generate("clip.y4m").args(["--json", "--force", "--memory", "1TB"]));
    let asked = serde_json::json!({ "bytes": 1_000_000_000_000u64, "source": "asked" });
    assert_eq!(made.json()["memory_limit"], asked);
}

#[test]
fn places_that_cannot_be_written_to() {
    let studio = Studio::new();
    fs::create_dir(studio.folder.path().join("folder.mp4")).unwrap();
    for (output, code, words) in [
        ("clip.avi", 2, &["clip.avi", ".mp4", ".gif", ".png", ".y4m"][..]),
        ("clip", 2, &["clip", ".mp4"]),
        ("missing/clip.mp4", 1, &["missing", "create it first"]),
        ("folder.mp4", 1, &["is a folder"]),
        ("new.mp4/", 1, &["is a folder"]),
        ("/sys/clip.mp4", 1, &["/sys/clip.mp4", "cannot write"]),
        ("/sys/clip.png", 1, &["/sys/clip", "cannot write"]),
    ] {
        // The model is not even looked for.
        let mut command = studio.generate_from(&photo("rgb.png"), "/nonexistent".as_ref(), output);
        answer(&mut command).must_fail(code, words);
    }
    assert_eq!(studio.names(), ["folder.mp4"]);
}

#[test]
fn a_size_that_the_format_cannot_hold_is_known_before_the_work() {
    let studio = Studio::new();
    let refused = answer(studio.generate("clip.mp4").args(["--size", "8192x8192", "-v"]));
    refused.must_fail(1, &["8192×8192", ".png and .y4m"]);
    assert!(!refused.stderr.contains("reading the photo"), "{}", refused.stderr);
    assert_eq!(studio.names(), [""; 0]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let studio = Studio::new();
    let refused = studio.generate("-").stdout(full).stderr(Stdio::piped()).output().unwrap();
    Answer::from(refused).must_fail(1, &["standard output", "No space left"]);
    // A disk of 8 kB, in a namespace of its own so that it needs no rights; not every system allows that.
    let small = |script: &str| {
        let mut command = Command::new("unshare");
        let mount = format!("mkdir -p disk && mount -t tmpfs -o size=8k none disk && {script}");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"]);
        command.current_dir(studio.folder.path());
        command
    };
    let made = answer(&mut small("true"));
    if made.code != Some(0) {
        // Not every system allows it: without rights, in some containers. Whoever means to run it says so.
        let reason = made.stderr.trim();
        assert!(env::var_os("KINORA_TEST_FULL_DISK").is_none(), "no disk of 8 kB could be made: {reason}");
        // Not by a macro, whose words are lost where a test passes.
        let text = format!("NOT RUN: files on a full disk, since no disk of 8 kB could be made: {reason}\n");
        let _ = std::io::stderr().write_all(text.as_bytes());
        return;
    }
    for output in ["disk/clip.mp4", "disk/clip.gif", "disk/clip.png", "disk/clip.y4m"] {
        let generate = studio.generate(output);
        let mut command = small(r#""$@"; code=$?; ls -A disk; exit $code"#);
        command.arg(generate.get_program()).args(generate.get_args()).args(["--frames", "5"]);
        let refused = answer(&mut command);
        refused.must_fail(1, &[output, "no space left", "free some space"]);
        assert_eq!(refused.text(), "", "{output} left something behind");
    }
}

/// The reader of standard output may go at any time: `kinora info … | head -1`.
#[test]
#[cfg(unix)]
fn a_reader_that_goes_away() {
    for words in [&["completions", "bash"][..], &["info", "--config", "svd"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = kinora().args(words).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((stderr.as_str(), output.status.code()), ("", Some(0)), "{words:?}");
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let studio = Studio::new();
    let output = studio.generate("-").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
    assert!(stderr.contains("wrote 0 of 2 frames to standard output, whose reader has ended"), "{stderr}");
}
