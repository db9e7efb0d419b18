//! `kinora info`, `completions`, `man`, `demo-model` and the help.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use support::{answer, kinora, model, run};

#[test]
fn a_published_model_needs_no_weights() {
    let text = run(&["info", "--config", "svd-xt", "--frames", "25", "--size", "1024x576"]);
    assert_eq!((text.code, &*text.stderr), (Some(0), ""), "{text:?}");
    let text = text.text();
    for words in ["1,524,623,082", "25 frames", "1024×576", "TFLOP", "GB"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
}

/// The README shows what the command prints. The CPU's row depends on the instruction set that weights are packed for.
#[cfg(feature = "cuda")]
#[test]
fn the_readmes_table_of_hardware_is_current() {
    let printed = run(&["info", "--config", "svd", "--hardware"]).text();
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let (_, table) = readme.split_once("<!-- hardware:begin -->\n").unwrap();
    let (table, _) = table.split_once("<!-- hardware:end -->").unwrap();
    let gpus = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("| CPU")).map(str::to_owned).collect()
    };
    assert_eq!(gpus(table), gpus(&printed));
    assert!(gpus(table).len() > 8, "{table}");
    let listed = run(&["info", "--config", "svd", "--hardware", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), table.lines().count() - 2);
}

#[test]
fn json_has_the_same_figures() {
    let words = ["info", "--config", "svd", "--precision", "f16", "--decode-chunk", "2", "--json"];
    let info = run(&words).json();
    assert_eq!((&info["config"], &info["precision"]), (&"svd".into(), &"f16".into()));
    assert_eq!((&info["settings"]["frames"], &info["settings"]["decode_chunk"]), (&14.into(), &2.into()));
    let parts = info["estimate"]["parts"].as_array().unwrap();
    let unet = parts.iter().find(|part| part["stage"] == "denoise").unwrap();
    assert_eq!(unet["parameters"], 1_524_623_082u64);
    // PyTorch's count less what is done once a clip, as the library's tests derive it.
    assert_eq!(unet["flops"], 83_773_156_884_480u64);
    // What the clip needs is also the table's figure for its size.
    let peak = &info["estimate"]["peak_bytes"];
    let row = info["memory"]["rows"].as_array().unwrap().iter().find(|row| row["width"] == 1024).unwrap();
    let columns = info["memory"]["columns"].as_array().unwrap();
    let column = columns.iter().position(|column| column["frames"] == 14 && column["decode_chunk"] == 2);
    assert_eq!(&row["peak_bytes"][column.unwrap()], peak);
    // Less memory for smaller clips, and room for the whole of it on a card of 12 GB.
    assert!(peak.as_u64().unwrap() < 12_000_000_000, "{peak}");
    let column = |row: &serde_json::Value| row["peak_bytes"][0].as_u64().unwrap();
    assert!(info["memory"]["rows"].as_array().unwrap().iter().map(column).is_sorted());
}

#[test]
fn a_clip_whose_steps_are_cached_has_two_denoising_networks() {
    let words = ["info", "--config", "svd", "--precision", "f16", "--decode-chunk", "2", "--json"];
    let (plain, info) = (run(&words).json(), run(&[&words[..], &["--cache", "3"]].concat()).json());
    let settings = &info["settings"];
    assert_eq!((&settings["cache"], &settings["cache_blocks"]), (&3.into(), &2.into()));
    let parts = info["estimate"]["parts"].as_array().unwrap();
    let steps = parts.iter().filter(|part| part["stage"] == "denoise");
    let steps: Vec<_> = steps.map(|part| (part["name"].as_str().unwrap(), part["runs"].as_u64())).collect();
    assert_eq!(steps, [("UNet", Some(9)), ("UNet, shallow", Some(16))]);
    let of = |info: &serde_json::Value, name| info["estimate"][name].as_u64().unwrap();
    assert!(of(&info, "flops") * 17 < of(&plain, "flops") * 10);
    assert!(of(&info, "peak_bytes") > of(&plain, "peak_bytes"));
    assert_eq!(of(&info, "parameters"), of(&plain, "parameters"));
    let said = run(&["info", "--config", "svd", "--cache", "2", "--cache-blocks", "1"]);
    assert!(said.text().contains("UNet, shallow") && said.text().contains("one stage at a time"), "{said:?}");
    run(&["info", "--config", "svd", "--cache-blocks", "13"])
        .must_fail(2, &["cache blocks is 13", "1 to 12"]);
}

#[test]
fn the_environment_may_name_the_model() {
    let info = |words: &[&str]| {
        let named = answer(kinora().env("KINORA_MODEL", model()).args(["info", "--json"]).args(words));
        assert_eq!(named.code, Some(0), "{named:?}");
        named.json()
    };
    assert_eq!(info(&[])["folder"], model().to_str().unwrap());
    // A configuration that is asked for is not in its way.
    assert_eq!(info(&["--config", "svd"])["config"], "svd");
    run(&["info", ""]).must_fail(2, &["the name is empty"]);
}

#[test]
fn a_folder_has_parts_with_weights() {
    let folder = model().to_str().unwrap();
    let text = run(&["info", folder]);
    assert_eq!((text.code, &*text.stderr), (Some(0), ""), "{text:?}");
    let text = text.text();
    for words in
        [folder, "StableVideoDiffusionPipeline", "unet", "AutoencoderKLTemporalDecoder", "plain (F32)"]
    {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    let info = run(&["info", folder, "--json"]).json();
    let parts = info["parts"].as_array().unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["unet", "vae", "image_encoder", "scheduler", "feature_extractor"]);
    let file = model().join("unet/diffusion_pytorch_model.safetensors");
    let bytes = std::fs::read(file).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let elements: usize = tensors.tensors().iter().map(|(_, t)| t.shape().iter().product::<usize>()).sum();
    assert_eq!(parts[0]["weights"][0]["parameters"], elements);
}

#[test]
fn info_says_what_is_wrong() {
    run(&["info", "folder", "--config", "svd"]).must_fail(2, &["cannot be used with"]);
    run(&["info", "--config", "svd-xxl"]).must_fail(2, &["svd-xt"]);
    run(&["info", "/nonexistent"]).must_fail(1, &["/nonexistent"]);
    run(&["info", "owner/name"]).must_fail(1, &["owner/name", "downloads nothing", "--config svd-xt"]);
    run(&["info", "--config", "svd", "--size", "100x100"]).must_fail(2, &["multiple of 64"]);
    let refused = run(&["info", "/nonexistent", "--json"]);
    assert_eq!((refused.code, &refused.json()["error"]["kind"]), (Some(1), &"model".into()));
}

#[test]
fn the_demonstration_model_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo");
    let made = answer(kinora().arg("demo-model").arg(&path));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.text().contains("noise"), "{made:?}");
    answer(kinora().arg("demo-model").arg(&path)).must_fail(1, &["demo", "not empty"]);
    std::fs::write(folder.path().join("file"), "mine").unwrap();
    answer(kinora().arg("demo-model").arg(folder.path().join("file"))).must_fail(1, &["file"]);
}

#[test]
fn every_command_gets_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    run(&["man", folder.path().to_str().unwrap()]).text();
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("kinora.1").contains("kinora\\-generate"), "{}", page("kinora.1"));
    assert!(page("kinora-generate.1").contains("\\-\\-seed"), "{}", page("kinora-generate.1"));
    assert!(!folder.path().join("kinora-man.1").exists());
    run(&["man", "no such folder"]).must_fail(1, &["no such folder"]);
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text = run(&["completions", shell]).text();
        assert!(text.contains("kinora") && text.contains("decode-chunk"), "{shell}");
    }
    run(&["completions", "abacus"]).must_fail(2, &["bash"]);
}

#[test]
fn the_help_has_examples_and_exit_codes() {
    for words in [&["--help"][..], &["generate", "--help"], &["info", "--help"], &["demo-model", "--help"]] {
        let help = run(words);
        assert_eq!((help.code, &*help.stderr), (Some(0), ""), "{words:?}");
        let text = help.text();
        assert!(text.contains("Example") && text.contains("\n  kinora "), "{text}");
        assert!(text.contains("Exit codes: 0 done, 1 failed, 2"), "{text}");
    }
    assert_eq!(run(&["--version"]).text(), concat!("kinora ", env!("CARGO_PKG_VERSION"), "\n"));
    run(&[]).must_fail(2, &["generate", "info"]);
}

#[test]
fn the_model_in_the_box_needs_no_name() {
    let json = run(&["info", "--json"]).json();
    assert_eq!(json["pipeline"], "StableVideoDiffusionPipeline");
    assert!(json["folder"].as_str().unwrap().contains("model-in-the-box"), "{json}");
    assert_eq!((&json["settings"]["frames"], &json["problems"]), (&14.into(), &serde_json::json!([])));
    let parts = json["parts"].as_array().unwrap().iter();
    let bytes: u64 = parts
        .flat_map(|part| part["weights"].as_array().unwrap())
        .map(|w| w["bytes"].as_u64().unwrap())
        .sum();
    assert!((1..=24 << 20).contains(&bytes), "{bytes} bytes of weights");
}

#[test]
fn the_help_tells_the_true_defaults() {
    let help = run(&["generate", "--help"]).text();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let settings = &run(&["info", "--config", "svd-xt", "--json"]).json()["settings"];
    for (option, setting) in [
        ("--motion", "motion_bucket"),
        ("--noise-aug", "noise_augmentation"),
        ("--min-guidance", "min_guidance"),
        ("--max-guidance", "max_guidance"),
        ("--motion-fps", "fps"),
        ("--steps", "steps"),
    ] {
        let text = help.split(&format!("{option} <")).nth(1).unwrap();
        let default = text.split("[default: ").nth(1).unwrap().split(']').next().unwrap();
        let default = default.trim_start_matches("the model's own, or ");
        assert_eq!(default.parse().ok(), settings[setting].as_f64(), "{option}");
    }
}

/// `-h` has what a newcomer needs, on a screen or two; `--help` has everything, in groups, with the true defaults.
#[test]
fn the_help_of_live_video_is_short_and_whole() {
    for command in ["live", "image"] {
        let short = run(&[command, "-h"]).text();
        assert!(short.lines().count() < 70, "{short}");
        let long = run(&[command, "--help"]).text();
        for option in ["--prompt", "--strength", "--steps", "--size", "--model", "--lora", "--device"] {
            assert!(short.contains(option) && long.contains(option), "{command} {option}");
        }
        for option in ["--timesteps", "--guidance-scale", "--tuning", "--control-scale"] {
            assert!(!short.contains(option) && long.contains(option), "{command} {option}");
        }
        let groups = ["Options:", "The picture:", "The models:", "The machine:", "Examples:"];
        let places: Vec<usize> = groups.iter().map(|group| long.find(group).unwrap()).collect();
        assert!(places.is_sorted(), "{command}: {places:?}");
    }
    let long = run(&["live", "--help"]).text();
    let general = long.split("Options:").nth(1).unwrap().split("The picture:").next().unwrap();
    assert!(
        ["--output", "--force", "--json", "--quiet"].iter().all(|option| general.contains(option)),
        "{long}"
    );
    let words = long.split_whitespace().collect::<Vec<_>>().join(" ");
    let settings = &run(&["info", "--config", "sd-turbo", "--json"]).json()["settings"];
    for option in ["strength", "steps", "guidance-scale", "control-scale", "blend", "memory-frames", "glide"]
    {
        let text = words.split(&format!("--{option} <")).nth(1).unwrap();
        let default = text.split("[default: ").nth(1).unwrap().split(']').next().unwrap();
        assert_eq!(default.parse().ok(), settings[option.replace('-', "_")].as_f64(), "{option}");
    }
}

#[test]
fn colours_are_for_terminals() {
    assert!(!run(&["info", "/nonexistent"]).stderr.contains('\x1b'));
    let coloured = answer(kinora().args(["info", "/nonexistent"]).env("CLICOLOR_FORCE", "1"));
    assert!(coloured.stderr.contains("\x1b["), "{coloured:?}");
    let plain =
        answer(kinora().args(["info", "/nonexistent"]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1"));
    assert!(!plain.stderr.contains('\x1b'), "{plain:?}");
}

#[test]
fn a_published_model_of_live_video_needs_no_weights() {
    let text = run(&["info", "--config", "sd-turbo", "--tiny-autoencoder", "--precision", "f16"]);
    assert_eq!((text.code, &*text.stderr), (Some(0), ""), "{text:?}");
    let text = text.text();
    // The parameters that diffusers and transformers count.
    for words in ["sd-turbo", "868,355,787", "340,387,840", "512×512", "1 step", "a frame", "256×256"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    let words = ["info", "--config", "sd-turbo", "--tiny-autoencoder", "--precision", "f16", "--json"];
    let asked = [&words[..], &["--size", "640x384", "--steps", "2"]].concat();
    let (one, two) = (run(&words).json(), run(&asked).json());
    let settings = &two["settings"];
    assert_eq!(
        (&settings["width"], &settings["height"], &settings["steps"]),
        (&640.into(), &384.into(), &2.into())
    );
    assert_eq!(one["config"], "sd-turbo");
    let peak = one["estimate"]["peak_bytes"].as_u64().unwrap();
    assert!((2_400_000_000..4_000_000_000).contains(&peak), "{peak}");
    let row = one["sizes"].as_array().unwrap().iter().find(|row| row["width"] == 512).unwrap();
    assert_eq!(row["peak_bytes"], peak);
    let frame = |info: &serde_json::Value| info["estimate"]["flops_per_frame"].as_f64().unwrap();
    // Two steps of 15/16 of the pixels; the autoencoder runs once.
    assert!((1.5..1.8).contains(&(frame(&two) / frame(&one))), "{} {}", frame(&two), frame(&one));
    let fp8 = run(&[&words[..5], &["fp8", "--json"]].concat()).json();
    assert_eq!(fp8["precision"], "fp8");
    let weights = |info: &serde_json::Value| info["estimate"]["parts"][1]["weight_bytes"].as_f64().unwrap();
    // Nearly all of the UNet's are a byte each instead of two.
    assert!((0.5..0.6).contains(&(weights(&fp8) / weights(&one))), "{} {}", weights(&fp8), weights(&one));
    assert_eq!(fp8["sizes"].as_array().unwrap().len(), one["sizes"].as_array().unwrap().len());
}

/// The arithmetic of the README's live frame, 1.02 TFLOP, at the share of 989 TFLOP/s that an H200 reached: 4.03 ms.
#[cfg(feature = "cuda")]
#[test]
fn live_video_has_a_table_of_hardware() {
    let words = ["info", "--config", "sd-turbo", "--tiny-autoencoder", "--hardware"];
    let table = run(&words);
    assert_eq!((table.code, &*table.stderr), (Some(0), ""), "{table:?}");
    let table = table.text();
    assert!(
        table
            .starts_with("| machine | the frames that fit (1 step) | memory | estimated frames per second |")
    );
    assert!(table.contains("| H100, 80 GB | 512×512, f16 | 2.5") && table.contains("| 250 |"), "{table}");
    let listed = run(&[&words[..], &["--json"]].concat()).json();
    assert_eq!(listed.as_array().unwrap().len(), table.lines().count() - 2);
    // The plan of a GPU is not that of this machine's CPU, but has the same weights: 2.4 GB in f16.
    let bytes = listed.as_array().unwrap().last().unwrap()["frame"]["peak_bytes"].as_u64().unwrap();
    assert!((2_400_000_000..2_700_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_folder_of_live_video_has_parts_with_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    assert_eq!(answer(kinora().args(["demo-model", "--preset", "live"]).arg(&path)).code, Some(0));
    let shown = answer(kinora().arg("info").arg(&path));
    assert_eq!((shown.code, &*shown.stderr), (Some(0), ""), "{shown:?}");
    let text = shown.text();
    for words in ["StableDiffusionPipeline", "CLIPTextModel", "UNet2DConditionModel", "live network", "64×64"]
    {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    let json = answer(kinora().arg("info").arg(&path).arg("--json")).json();
    assert_eq!(json["problems"], serde_json::json!([]));
    // The weights of another model.
    let other = folder.path().join("other");
    assert_eq!(answer(kinora().args(["demo-model", "--preset", "live-xl"]).arg(&other)).code, Some(0));
    let unet = "unet/diffusion_pytorch_model.safetensors";
    std::fs::copy(other.join(unet), path.join(unet)).unwrap();
    let lacking = answer(kinora().arg("info").arg(&path));
    assert!(lacking.text().contains("No frame can be made with these weights"), "{lacking:?}");
    assert_eq!(lacking.code, Some(1), "{lacking:?}");
}

#[test]
fn clips_and_live_video_have_options_of_their_own() {
    for option in ["--frames", "--decode-chunk", "--cache", "--cache-blocks"] {
        let words = ["info", "--config", "sd-turbo", option, "2"];
        run(&words).must_fail(2, &[option, "is for clips"]);
    }
    run(&["info", "--config", "svd", "--tiny-autoencoder"]).must_fail(2, &["is for live video"]);
    run(&["info", "--config", "sd15", "--size", "100x100"]).must_fail(2, &["multiple of 64"]);
    run(&["info", "--config", "sd15", "--steps", "9"]).must_fail(2, &["from 1 to 8"]);
}

/// The smallest clip that the tiny model makes, on a chip that is not here.
#[cfg(all(feature = "cuda", feature = "simulator"))]
#[test]
fn a_clip_is_predicted_on_a_chip_that_is_not_here() {
    let unknown = run(&["info", "--config", "svd", "--device-profile", "abacus"]);
    unknown.must_fail(2, &["unknown chip; write t4, rtx3090, rtx4090, a100, h100, h200"]);
    let both = run(&["info", "--config", "svd", "--hardware", "--device-profile", "t4"]);
    both.must_fail(2, &["--hardware", "--device-profile"]);
    run(&["info", "--config", "svd", "--calibration", "x.json"]).must_fail(2, &["--device-profile"]);

    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel-cache");
    let predict = |words: &[&str]| {
        let mut command = kinora();
        command.env("KINORA_CACHE_DIR", &cache).arg("info").arg(model());
        command.args(["--device-profile", "T4", "--steps", "1", "--size", "64x64", "--frames", "2"]);
        answer(command.args(words))
    };
    let printed = predict(&["--json"]);
    if printed.stderr.contains("(NVRTC) was not found") && std::env::var_os("KINORA_REQUIRE_NVRTC").is_none()
    {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "the prediction of a clip not run: no NVRTC");
        return;
    }
    assert_eq!((printed.code, &*printed.stderr), (Some(0), ""), "{printed:?}");
    let answer = printed.json();
    assert_eq!(answer["chip"]["name"], "T4");
    let prediction = &answer["prediction"];
    let number = |name: &str| prediction[name].as_f64().unwrap();
    assert!(number("seconds") >= number("floor_seconds") && number("floor_seconds") > 0.0);
    assert!(number("frames_per_second") <= number("most_frames_per_second"));
    assert_eq!((&prediction["precision"], &prediction["calibration"]), (&"f16".into(), &"none".into()));
    let networks = prediction["networks"].as_array().unwrap();
    let unet = networks.iter().find(|network| network["stage"] == "denoise").unwrap();
    for field in ["run_seconds", "once_seconds", "seconds", "launches", "flops"] {
        assert!(unet[field].as_f64().unwrap() >= 0.0, "{field}");
    }
    let kind = &unet["kinds"][0];
    assert!(kind["kind"].is_string() && kind["share"].as_f64().unwrap() > 0.0);
    assert!(kind["limits"][0]["resource"].is_string());
    let reached = answer["reached"].as_array().unwrap();
    let rates: Vec<f64> = reached.iter().map(|one| one["frames_per_second"].as_f64().unwrap()).collect();
    assert_eq!(rates, [8.0, 12.0]);

    let text = predict(&[]).text();
    for words in ["predicted, not measured", "published figures alone", "limited by", "floor: ", "at most"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
