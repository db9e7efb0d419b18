//! What a clip may be asked for, what it costs, and what is said where it cannot be made.
#![allow(clippy::unwrap_used)]

use std::{collections::HashMap, fs, ops::ControlFlow, path::Path};

use kinora::{
    RgbImage,
    image_to_video::{
        Configs, GenerateError, ImageToVideo, LoadOptions, MemoryBudget, Precision, Settings, Stage,
        Suggestion, estimate_configs,
    },
    photo::{Colour, Fit},
};
use kinora_models::{folder::ModelFolder, schedulers::SchedulerKind, synthetic::SyntheticModel};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::json;
use tempfile::TempDir;

fn tiny() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    SyntheticModel::preset("tiny").unwrap().write(folder.path()).unwrap();
    folder
}

fn pipeline(folder: &Path, options: LoadOptions) -> ImageToVideo {
    ImageToVideo::new(ModelFolder::open(folder).unwrap(), options).unwrap()
}

/// A short clip of the tiny model.
fn short(folder: &Path) -> Settings {
    Settings::for_model(&ModelFolder::open(folder).unwrap()).unwrap().steps(2).frames(2).decode_chunk(2)
}

fn photo() -> RgbImage {
    RgbImage::new(2, 1, vec![0, 50, 100, 150, 200, 250]).unwrap()
}

fn generate(pipeline: &ImageToVideo, settings: &Settings) -> Result<usize, GenerateError> {
    let clip = pipeline.generate(&photo(), settings)?;
    Ok(clip.frames.len())
}

#[test]
fn the_defaults_are_the_models() {
    let svd = Settings::for_configs(&Configs::preset("svd").unwrap());
    assert_eq!((svd.frames, svd.height, svd.width, svd.decode_chunk), (14, 576, 1024, 14));
    let xt = Settings::for_configs(&Configs::preset("svd-xt").unwrap());
    assert_eq!((xt.frames, xt.steps, xt.fps, xt.motion_bucket), (25, 25, 7, 127));
    let folder = tiny();
    let tiny = Settings::for_model(&ModelFolder::open(folder.path()).unwrap()).unwrap();
    assert_eq!((tiny.frames, tiny.height, tiny.width), (4, 64, 64));
    fs::write(folder.path().join("defaults.json"), r#"{"steps": 9, "frames": 3, "max_guidance": 1.5}"#)
        .unwrap();
    let model = ModelFolder::open(folder.path()).unwrap();
    let own = Settings::for_model(&model).unwrap();
    assert_eq!((own.steps, own.frames, own.decode_chunk, own.max_guidance), (9, 3, 3, 1.5));
    assert_eq!((own.height, own.fps, own.min_guidance), (tiny.height, tiny.fps, tiny.min_guidance));
    for wrong in ["", "7", r#"{"stpes": 9}"#, r#"{"steps": "nine"}"#, r#"{"steps": -1}"#] {
        fs::write(folder.path().join("defaults.json"), wrong).unwrap();
        let error = Settings::for_model(&model).unwrap_err().to_string();
        assert!(error.contains("defaults.json"), "{wrong}: {error}");
    }
    assert!(Configs::preset("svd-xxl").is_none());
    assert!(Configs::PRESETS.iter().all(|name| Configs::preset(name).is_some()));
}

#[test]
fn every_setting_is_checked_and_named() {
    let configs = Configs::preset("svd").unwrap();
    let refused = |change: fn(&mut Settings)| {
        let mut settings = Settings::for_configs(&configs);
        change(&mut settings);
        estimate_configs(&configs, &settings, Precision::F32).unwrap_err().to_string()
    };
    assert_eq!(refused(|s| s.frames = 0), "frames is 0, but it must be from 1 to 1024");
    assert!(refused(|s| s.frames = usize::MAX).starts_with("frames is "));
    assert_eq!(refused(|s| s.steps = 0), "steps is 0, but it must be from 1 to 10000");
    assert!(refused(|s| s.steps = 1001).contains("1001"));
    assert_eq!(refused(|s| s.height = 72), "height is 72, but it must be a multiple of 64, from 64 to 8192");
    assert!(refused(|s| s.height = 0).starts_with("height is 0, but"));
    assert!(refused(|s| s.width = usize::MAX & !63).starts_with("width is "));
    assert!(refused(|s| s.fps = 0).starts_with("fps is 0, but"));
    assert!(refused(|s| s.motion_bucket = usize::MAX).starts_with("motion bucket is "));
    assert_eq!(
        refused(|s| s.noise_augmentation = -0.5),
        "noise augmentation is -0.5, but it must be 0 or more, and at most 3.4e38"
    );
    assert!(refused(|s| s.noise_augmentation = f64::NAN).starts_with("noise augmentation is NaN"));
    // What an f32 cannot hold would be infinite in the network.
    assert!(refused(|s| s.noise_augmentation = 1e39).starts_with("noise augmentation is 1"));
    assert!(refused(|s| s.max_guidance = 1e39).ends_with("it must be finite, and at most 3.4e38"));
    assert!(refused(|s| s.min_guidance = f64::INFINITY).starts_with("min guidance is inf"));
    assert!(refused(|s| s.max_guidance = f64::NAN).starts_with("max guidance is NaN"));
    assert_eq!(refused(|s| s.decode_chunk = 0), "decode chunk is 0, but it must be at least 1");
    let error = "f8".parse::<Precision>().unwrap_err().to_string();
    assert_eq!(error, "precision is f8, but it must be f32, f16, bf16 or fp8");
}

#[test]
fn conditions_must_fit_the_precision_of_the_network() {
    let configs = Configs::preset("svd").unwrap();
    let checked = |change: fn(&mut Settings), precision| {
        let mut settings = Settings::for_configs(&configs);
        change(&mut settings);
        settings.check(&configs, precision).map_err(|error| error.to_string())
    };
    type Change = (&'static str, fn(&mut Settings));
    let changes: [Change; 5] = [
        ("fps", |s| s.fps = 70_000),
        ("motion bucket", |s| s.motion_bucket = 70_000),
        ("noise augmentation", |s| s.noise_augmentation = 1e5),
        ("min guidance", |s| s.min_guidance = -1e5),
        ("max guidance", |s| s.max_guidance = 1e5),
    ];
    for (setting, change) in changes {
        let message = checked(change, Precision::F16).unwrap_err();
        assert!(message.starts_with(setting) && message.contains("f16 cannot represent it"), "{message}");
        assert_eq!(checked(change, Precision::BF16), Ok(()));
        assert_eq!(checked(change, Precision::F32), Ok(()));
    }
}

/// A tiny model with every number of one tensor replaced.
fn with_tensor(file: &str, tensor: &str, value: f32) -> TempDir {
    let folder = tiny();
    let path = folder.path().join(file);
    let bytes = fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert!(tensors.names().contains(&tensor));
    let changed: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, view)| {
            let data = match name == tensor {
                true => value.to_le_bytes().repeat(view.data().len() / 4),
                false => view.data().to_vec(),
            };
            (name.to_owned(), view.shape().to_vec(), data)
        })
        .collect();
    let views = changed
        .iter()
        .map(|(name, shape, data)| (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    let written = safetensors::serialize(views, None::<HashMap<String, String>>).unwrap();
    fs::write(&path, written).unwrap();
    folder
}

#[test]
fn a_clip_that_is_not_finite_is_no_black_video() {
    for (file, tensor, value, expected) in [
        ("image_encoder/model.safetensors", "visual_projection.weight", 3e38, Stage::EncodeImage),
        ("vae/diffusion_pytorch_model.safetensors", "quant_conv.weight", 3e38, Stage::EncodeLatents),
        ("unet/diffusion_pytorch_model.safetensors", "conv_out.weight", 3e38, Stage::Denoise),
    ] {
        let folder = with_tensor(file, tensor, value);
        let exact = pipeline(folder.path(), LoadOptions::default().precision(Precision::F32));
        let error = generate(&exact, &short(folder.path())).unwrap_err();
        let GenerateError::NotFinite { stage, precision } = &error else { panic!("{tensor}: {error}") };
        assert_eq!((*stage, *precision), (expected, Precision::F32), "{tensor}");
    }
    // Latents that only f32 holds: the difference that the photo makes, amplified.
    let folder = with_tensor("unet/diffusion_pytorch_model.safetensors", "conv_out.weight", 10.0);
    let options = LoadOptions::default().precision(Precision::F16);
    let settings = short(folder.path()).steps(1).max_guidance(6e4);
    let error = generate(&pipeline(folder.path(), options), &settings).unwrap_err();
    assert!(matches!(error, GenerateError::NotFinite { stage: Stage::Decode, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("not finite in f16") && text.contains("try bf16 or f32"), "{text}");
}

/// The default size is one that the model can make, whatever its levels and its file's numbers are.
#[test]
fn default_sizes_are_multiples_of_the_models_unit() {
    let sized = |levels: usize, sample_size: serde_json::Value| {
        let mut model = SyntheticModel::preset("tiny").unwrap();
        model.unet["block_out_channels"] = json!(vec![32; levels]);
        model.unet["num_attention_heads"] = json!(1);
        model.unet["down_block_types"] = json!(vec!["DownBlockSpatioTemporal"; levels]);
        model.unet["up_block_types"] = json!(vec!["UpBlockSpatioTemporal"; levels]);
        model.unet["sample_size"] = sample_size;
        let folder = tempfile::tempdir().unwrap();
        model.write(folder.path()).unwrap();
        let configs = Configs::read(&ModelFolder::open(folder.path()).unwrap()).unwrap();
        let settings = Settings::for_configs(&configs);
        settings.check(&configs, Precision::F32).unwrap();
        (configs.side_unit(), [settings.height, settings.width])
    };
    assert_eq!(sized(4, json!(96)), (64, [576, 1024]));
    assert_eq!(sized(5, json!(96)), (128, [640, 1024]));
    assert_eq!(sized(5, json!([72, 100])), (128, [640, 768]));
    assert_eq!(sized(4, json!(u64::MAX)), (64, [6144, 8192]));
    assert_eq!(sized(4, json!([1, u64::MAX])), (64, [64, 8192]));
}

/// As diffusers does: the index says of which class the scheduler is, its own file how it is set.
#[test]
fn the_index_decides_the_class_of_the_scheduler() {
    let folder = tiny();
    let index = folder.path().join("model_index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("EulerDiscreteScheduler", "DDIMScheduler")).unwrap();
    let pipeline = pipeline(folder.path(), LoadOptions::default());
    let clip = pipeline.generate(&photo(), &short(folder.path())).unwrap();
    assert_eq!(clip.report.scheduler, SchedulerKind::Ddim);
}

#[test]
fn a_scheduler_without_continuous_timesteps_is_warned_of() {
    let mut configs = Configs::preset("svd").unwrap();
    assert_eq!(configs.scheduler_warning(SchedulerKind::Euler), None);
    let warning = configs.scheduler_warning(SchedulerKind::Ddim).unwrap();
    assert!(
        warning.contains("continuous") && warning.contains("ddim") && warning.contains("euler"),
        "{warning}"
    );
    configs.scheduler["timestep_type"] = json!("discrete");
    assert_eq!(configs.scheduler_warning(SchedulerKind::Ddim), None);
}

#[test]
fn stable_video_diffusion_is_planned_without_weights() {
    let configs = Configs::preset("svd-xt").unwrap();
    let settings = Settings::for_configs(&configs);
    let estimate = estimate_configs(&configs, &settings, Precision::F16).unwrap();
    let unet = estimate.unet().unwrap();
    assert_eq!(unet.parameters, 1_524_623_082);
    // The cross-attention's norms, queries and keys are gone.
    assert!(unet.weight_bytes < 2 * 1_450_000_000, "{}", unet.weight_bytes);
    assert_eq!(unet.runs, 25);
    let total: u64 = estimate.parts.iter().map(|p| p.flops * p.runs as u64 + p.flops_once).sum();
    assert_eq!(estimate.flops(), total);
    let largest = estimate.parts.iter().map(|p| p.peak_bytes()).max().unwrap();
    assert_eq!(estimate.peak_bytes(), largest + estimate.working_bytes);
    println!("{}", serde_json::to_string_pretty(&estimate).unwrap());
}

/// PyTorch's own count (`golden/make_flops.py`), less what the passes take out of a run.
#[test]
fn the_arithmetic_is_what_pytorch_counts() {
    let counted = include_str!("fixtures/flops/flops.json");
    let counted: Vec<serde_json::Value> = serde_json::from_str(counted).unwrap();
    let configs = Configs::preset("svd").unwrap();
    let settings = Settings::for_configs(&configs).decode_chunk(2);
    let estimate = estimate_configs(&configs, &settings, Precision::F16).unwrap();
    assert_eq!(estimate.parts.len(), counted.len());
    for (part, counted) in estimate.parts.iter().zip(&counted) {
        assert_eq!(part.name, counted["name"]);
        let once: u64 = counted["once"].as_object().unwrap().values().filter_map(|n| n.as_u64()).sum();
        let unread = match part.stage {
            // After the last attention's keys and values only the class token of 257 goes on: queries, their attention,
            // its projection and the feed-forward.
            Stage::EncodeImage => 2 * 256 * (2 * 1280 * 1280 + 2 * 1280 * 5120) + 4 * 256 * 257 * 1280,
            // Of eight latent channels the four of the mean are computed.
            Stage::EncodeLatents => 2 * 4 * 8 * 72 * 128,
            // Five of the nine products of an upsampler's convolution, of 28 images, or of two frames.
            Stage::Denoise => 5 * 2 * 28 * ((18 * 32 + 36 * 64) * 1280 * 1280 + 72 * 128 * 640 * 640),
            Stage::Decode => 5 * 2 * 2 * ((144 * 256 + 288 * 512) * 512 * 512 + 576 * 1024 * 256 * 256),
            _ => 0,
        };
        assert_eq!(part.flops, counted["all"].as_u64().unwrap() - once - unread, "{}", part.name);
    }
    let clip: u64 = estimate.parts.iter().map(|part| part.flops * part.runs as u64).sum();
    assert!(estimate.flops() > clip && estimate.flops() < clip + clip / 1000, "what is done once is little");
}

#[test]
fn fourteen_frames_fit_in_twelve_gigabytes() {
    let configs = Configs::preset("svd").unwrap();
    let settings = Settings::for_configs(&configs).decode_chunk(2);
    assert!(settings.guided());
    assert_eq!((settings.frames, settings.height, settings.width), (14, 576, 1024));
    let estimate = estimate_configs(&configs, &settings, Precision::F16).unwrap();
    for part in &estimate.parts {
        println!(
            "{}: {:.2} GB of weights, {:.2} GB of activations",
            part.name,
            part.weight_bytes as f64 / 1e9,
            part.arena_bytes as f64 / 1e9
        );
    }
    assert!(estimate.peak_bytes() < 12_000_000_000, "{}", estimate.peak_bytes());
}

#[test]
fn the_photo_is_encoded_in_f32_if_the_autoencoder_asks_for_it() {
    let weights = |force_upcast, precision| {
        let mut configs = Configs::preset("svd").unwrap();
        configs.vae.force_upcast = force_upcast;
        let settings = Settings::for_configs(&configs).frames(1).height(64).width(64);
        let estimate = estimate_configs(&configs, &settings, precision).unwrap();
        estimate.parts.iter().find(|part| part.stage == Stage::EncodeLatents).unwrap().weight_bytes
    };
    assert_eq!(weights(true, Precision::F16), weights(true, Precision::F32));
    assert!(weights(false, Precision::F16) < weights(true, Precision::F16));
    // bf16 has the range of f32.
    assert!(weights(true, Precision::BF16) < weights(true, Precision::F32));
}

#[test]
fn a_decoder_for_the_rest_is_counted_but_has_no_weights_of_its_own() {
    let folder = tiny();
    let pipeline = pipeline(folder.path(), LoadOptions::default());
    let settings = |frames, decode_chunk| short(folder.path()).frames(frames).decode_chunk(decode_chunk);
    let even = pipeline.estimate(&settings(4, 2)).unwrap();
    let uneven = pipeline.estimate(&settings(5, 2)).unwrap();
    let runs = |e: &kinora::image_to_video::Estimate| {
        e.parts.iter().filter(|p| p.stage == Stage::Decode).map(|p| p.runs).collect::<Vec<_>>()
    };
    assert_eq!((runs(&even), runs(&uneven)), (vec![2], vec![2, 1]));
    assert_eq!(even.parameters(), uneven.parameters());
    // A chunk of more frames than there are is all of them.
    assert_eq!(runs(&pipeline.estimate(&settings(3, 8)).unwrap()), [1]);
}

#[test]
fn a_budget_that_does_not_suffice_is_said_before_any_work() {
    let folder = tiny();
    let settings = short(folder.path()).frames(8).decode_chunk(8);
    let free = pipeline(folder.path(), LoadOptions::default());
    let needs = |settings: &Settings| free.estimate(settings).unwrap().peak_bytes();
    let within = |budget| {
        let options = LoadOptions::default().memory_budget(budget);
        let mut begun = false;
        let result = pipeline(folder.path(), options).generate_with(&photo(), &settings, |_| {
            begun = true;
            ControlFlow::Break(())
        });
        (result.unwrap_err(), begun)
    };
    let (error, begun) = within(needs(&settings));
    assert!(matches!(error, GenerateError::Cancelled) && begun, "{error}");

    let chunked = needs(&settings.clone().decode_chunk(4));
    assert!(chunked < needs(&settings));
    let (error, begun) = within(chunked);
    let text = error.to_string();
    assert!(!begun && text.contains("decoding in chunks of 4 would fit in "), "{text}");
    assert!(text.starts_with("the autoencoder's decoder needs "), "{text}");
    let GenerateError::OverBudget { over, suggestion: Some(suggestion) } = error else { panic!("{text}") };
    assert_eq!((over.need, over.budget), (over.weights + over.activations + over.working, chunked));
    let expected = Suggestion { decode_chunk: Some(4), peak_bytes: chunked, ..Suggestion::default() };
    assert_eq!(*suggestion, expected);

    let (error, begun) = within(1000);
    let text = error.to_string();
    assert!(!begun && text.contains("but only 1.00 kB may be used"), "{text}");
    assert!(text.ends_with("no smaller clip that was tried would fit"), "{text}");
}

/// Smaller chunks change the pixels a little, so they are chosen only if nothing else fits.
#[test]
fn the_decode_chunk_is_fitted_to_the_memory() {
    let folder = tiny();
    let settings = short(folder.path()).frames(8).decode_chunk(8).seed(1);
    let free = pipeline(folder.path(), LoadOptions::default().memory_budget(MemoryBudget::Unlimited));
    assert_eq!(free.memory_limit(), None);
    assert_eq!(free.fit(&photo(), &settings).unwrap(), settings);
    let needs = |chunk| free.estimate(&settings.clone().decode_chunk(chunk)).unwrap().peak_bytes();
    // With fewer than four frames at a time, the UNet is what needs most.
    for (budget, chunk) in [(needs(8), 8), (needs(8) - 1, 4), (needs(4), 4)] {
        let tight = pipeline(folder.path(), LoadOptions::default().memory_budget(budget));
        let fitted = tight.fit(&photo(), &settings).unwrap();
        assert_eq!(fitted, settings.clone().decode_chunk(chunk), "{budget}");
        assert_eq!(tight.generate(&photo(), &fitted).unwrap().frames.len(), 8);
    }
    let tight = pipeline(folder.path(), LoadOptions::default().memory_budget(needs(1) - 1));
    assert!(matches!(tight.fit(&photo(), &settings), Err(GenerateError::OverBudget { .. })));
}

/// The photo is in memory as well, beside the networks.
#[test]
fn a_large_photo_counts() {
    let folder = tiny();
    let settings = short(folder.path());
    let limited = |budget| pipeline(folder.path(), LoadOptions::default().memory_budget(budget));
    let need = limited(usize::MAX).estimate(&settings).unwrap().peak_bytes();
    let pipeline = limited(need + 1_000_000);
    assert_eq!(generate(&pipeline, &settings).unwrap(), 2);
    let large = RgbImage::new(3000, 1000, vec![7; 9_000_000]).unwrap();
    // The networks of the clip before are there, but there is no room for this photo beside them.
    let error = pipeline.generate(&large, &settings).unwrap_err();
    let GenerateError::OverBudget { over, .. } = &error else { panic!("{error}") };
    assert!(over.working > 9_000_000 && error.to_string().contains("photo, frames and the rest"), "{error}");
    assert_eq!(limited(need + 20_000_000).generate(&large, &settings).unwrap().frames.len(), 2);
}

#[test]
fn a_caller_can_stop_at_any_point() {
    let folder = tiny();
    let pipeline = pipeline(folder.path(), LoadOptions::default());
    let settings = short(folder.path());
    let calls = |stop: Option<usize>| {
        let mut calls = 0;
        let result = pipeline.generate_with(&photo(), &settings, |_| {
            calls += 1;
            if Some(calls) == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (result.map(|clip| clip.frames.len()), calls)
    };
    let (finished, all) = calls(None);
    assert_eq!(finished.unwrap(), 2);
    for stop in 1..=all {
        let (result, calls) = calls(Some(stop));
        assert!(matches!(result, Err(GenerateError::Cancelled)), "{stop}");
        assert_eq!(calls, stop);
    }
}

#[test]
fn a_seed_is_a_clip() {
    let folder = tiny();
    let pipeline = pipeline(folder.path(), LoadOptions::default());
    let clip = |seed, scheduler| {
        let settings = short(folder.path()).seed(seed).scheduler(scheduler);
        pipeline.generate(&photo(), &settings).unwrap().frames
    };
    assert!(clip(1, None) == clip(1, Some(SchedulerKind::Euler)));
    assert!(clip(1, None) != clip(2, None));
    assert!(clip(1, None) != clip(1, Some(SchedulerKind::Ddim)));
}

/// A photo of another shape gives the clip of the photo that someone cropped or padded by hand: both encoders see the same.
#[test]
fn a_photo_of_another_shape_is_fitted_before_anything_sees_it() {
    let folder = tiny();
    let pipeline = pipeline(folder.path(), LoadOptions::default());
    let clip = |photo: &RgbImage, fit: Fit| {
        let settings = short(folder.path()).steps(1).seed(1).fit(fit).background(Colour::WHITE);
        pipeline.generate(photo, &settings).unwrap().latents.to_f32()
    };
    // Three squares: red, green and blue.
    let colours = [[200, 0, 0], [0, 200, 0], [0, 0, 200]];
    let row: Vec<u8> = colours.iter().flat_map(|colour| colour.repeat(64)).collect();
    let wide = RgbImage::new(192, 64, row.repeat(64)).unwrap();
    let middle = RgbImage::new(64, 64, colours[1].repeat(64 * 64)).unwrap();
    let mut padded = RgbImage::new(64, 64, vec![255; 64 * 64 * 3]).unwrap();
    let inner = wide.resize_lanczos(64, 21).unwrap();
    padded.pixels_mut()[21 * 64..42 * 64].copy_from_slice(inner.pixels());
    assert_eq!(clip(&wide, Fit::Crop), clip(&middle, Fit::Stretch));
    assert_eq!(clip(&wide, Fit::Pad), clip(&padded, Fit::Stretch));
    assert_ne!(clip(&wide, Fit::Crop), clip(&wide, Fit::Stretch));
    assert_eq!(Settings::for_configs(&Configs::svd()).fit, Fit::Crop);
}

#[test]
fn a_model_whose_parts_do_not_fit_is_refused_at_once() {
    type Change = (&'static str, &'static str, serde_json::Value);
    let error = |(part, field, value): Change| {
        let folder = tempfile::tempdir().unwrap();
        let mut model = SyntheticModel::preset("tiny").unwrap();
        let config = match part {
            "unet" => &mut model.unet,
            "vae" => &mut model.vae,
            "image_encoder" => &mut model.image_encoder,
            _ => &mut model.feature_extractor,
        };
        config[field] = value;
        model.write(folder.path()).unwrap();
        let folder = ModelFolder::open(folder.path()).unwrap();
        ImageToVideo::new(folder, LoadOptions::default()).unwrap_err().to_string()
    };
    let image_size = error(("image_encoder", "image_size", json!(112)));
    assert!(image_size.contains("image_encoder/config.json: the model's parts do not fit each other: image_size is 112, but must be 224"), "{image_size}");
    let latents = error(("vae", "latent_channels", json!(8)));
    assert!(
        latents.contains(
            "unet/config.json: the model's parts do not fit each other: out_channels is 4, but must be 8"
        ),
        "{latents}"
    );
    let embedding = error(("image_encoder", "projection_dim", json!(48)));
    assert!(embedding.contains("projection_dim is 48, but must be 32"), "{embedding}");
    let ids = error(("unet", "addition_time_embed_dim", json!(48)));
    assert!(ids.contains("addition_time_embed_dim is 2, but must be 3, one for each"), "{ids}");
    let mean = error(("feature_extractor", "image_mean", json!([1, 2])));
    assert!(mean.contains("feature_extractor/preprocessor_config.json: `image_mean`"), "{mean}");
}

/// A mapped file would end the process here.
#[test]
fn weights_that_are_cut_short_under_a_pipeline_are_an_error_of_their_file() {
    let folder = tiny();
    let pipeline = pipeline(folder.path(), LoadOptions::default());
    let file = folder.path().join("unet/diffusion_pytorch_model.safetensors");
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(4000).unwrap();
    let text = generate(&pipeline, &short(folder.path())).unwrap_err().to_string();
    assert!(text.contains("unet/diffusion_pytorch_model.safetensors: the file is cut short"), "{text}");
}

#[test]
fn weights_that_do_not_fit_are_said_before_any_work() {
    let folder = tiny();
    let unet = folder.path().join("unet/diffusion_pytorch_model.safetensors");
    let whole = fs::read(&unet).unwrap();
    fs::write(&unet, &whole[..whole.len() - 1]).unwrap();
    let opened = ImageToVideo::new(ModelFolder::open(folder.path()).unwrap(), LoadOptions::default());
    let text = opened.unwrap_err().to_string();
    assert!(text.contains("diffusion_pytorch_model.safetensors"), "{text}");

    // Another model's weights: there, and of other shapes.
    let other = tempfile::tempdir().unwrap();
    let mut wider = SyntheticModel::preset("tiny").unwrap();
    wider.unet["block_out_channels"] = json!([64, 32, 64, 64]);
    wider.write(other.path()).unwrap();
    fs::copy(other.path().join("unet/diffusion_pytorch_model.safetensors"), &unet).unwrap();
    let pipeline = pipeline(folder.path(), LoadOptions::default());
    let mut begun = false;
    let refused = pipeline.generate_with(&photo(), &short(folder.path()), |_| {
        begun = true;
        ControlFlow::Continue(())
    });
    let error = refused.unwrap_err();
    assert!(!begun);
    let GenerateError::Weights { more, .. } = &error else { panic!("{error}") };
    let text = error.to_string();
    assert!(text.starts_with("unet: ") && text.ends_with(&format!(", and {more} more problems")), "{text}");
    let all = pipeline.weights_problems(&short(folder.path())).unwrap();
    assert_eq!(all.len(), more + 1);
}
