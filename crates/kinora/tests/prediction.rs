//! Predictions of clips and frames on chips that are not here.
//!
//! Without NVRTC the tests say so and do nothing, unless `KINORA_REQUIRE_NVRTC` is set.
#![cfg(all(feature = "cuda", feature = "simulator"))]
#![allow(clippy::unwrap_used, missing_docs)]

use std::{io::Write, ops::ControlFlow, sync::Mutex};

use kinora::{
    ModelFolder, Settings,
    image_to_video::{Configs, GenerateError, Precision, Stage},
    prediction::{
        ClipPrediction, ClipRequest, FrameRequest, PredictionProgress, PredictionStage, predict_clip,
        predict_frame,
    },
    simulator::{Calibration, ChipSpec},
};
use kinora_cuda::{
    Architecture, CodeForm,
    compiler::{CompileTarget, Compiler, CompilerOptions},
};
use kinora_models::presets::{ImagePreset, Preset};

fn there_is_nvrtc(test: &str) -> bool {
    let target = CompileTarget { architecture: Architecture::TURING, form: CodeForm::Ptx };
    let Err(error) = Compiler::new(target, CompilerOptions::plain()).unwrap().version() else { return true };
    assert!(std::env::var_os("KINORA_REQUIRE_NVRTC").is_none(), "{error}");
    let _ = writeln!(std::io::stderr(), "{test} not run: no NVRTC");
    false
}

fn go_on(_: &PredictionProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn tiny() -> (tempfile::TempDir, Configs, Settings) {
    let folder = tempfile::tempdir().unwrap();
    let preset = Preset::tiny();
    preset.model.write(folder.path()).unwrap();
    let configs = Configs::read(&ModelFolder::open(folder.path()).unwrap()).unwrap();
    let clip = preset.clip;
    let settings = Settings::for_configs(&configs).frames(clip.frames).height(clip.height).width(clip.width);
    (folder, configs, settings.decode_chunk(3))
}

#[test]
fn a_clip_is_the_sum_of_its_launches() {
    if !there_is_nvrtc("a_clip_is_the_sum_of_its_launches") {
        return;
    }
    let (_folder, configs, settings) = tiny();
    let predict = |steps: usize, calibration: Option<&Calibration>| -> ClipPrediction {
        let settings = settings.clone().steps(steps);
        let request = ClipRequest { configs: &configs, settings: &settings, precision: Precision::F16 };
        predict_clip(&request, &ChipSpec::t4(), calibration, &go_on).unwrap()
    };
    let two = predict(2, None);
    let names: Vec<&str> = two.networks.iter().map(|network| network.name).collect();
    // Four frames are a chunk of three and one of one.
    let decoder = "autoencoder's decoder";
    assert_eq!(names, ["image encoder", "autoencoder's encoder", "UNet", decoder, decoder]);
    let all: f64 = two.networks.iter().map(|network| network.seconds).sum();
    assert!((two.seconds / all - 1.0).abs() < 1e-12);
    assert!((two.frames_per_second * two.seconds - 4.0).abs() < 1e-9);
    for network in &two.networks {
        let parts = network.once_seconds + network.run_seconds * network.runs as f64;
        assert!((network.seconds / parts - 1.0).abs() < 1e-12, "{}", network.name);
        let kinds: f64 = network.kinds.iter().map(|kind| kind.seconds).sum();
        // The first launch of a run costs more than those that follow it.
        assert!(kinds <= network.seconds && kinds > 0.9 * network.seconds - 1e-5, "{}", network.name);
        assert!(network.launches > 10);
        for kind in &network.kinds {
            let limits: f64 = kind.limits.iter().map(|limit| limit.share).sum();
            assert!((limits - 1.0).abs() < 1e-9, "{} of {}", kind.kind, network.name);
        }
    }
    let unet = |clip: &ClipPrediction| {
        clip.networks.iter().find(|network| network.stage == Stage::Denoise).unwrap().clone()
    };
    // The arithmetic at the peak: 65 TFLOP/s, as it is published.
    assert!((two.peak_flops_per_second / 65e12 - 1.0).abs() < 0.01);
    assert!(two.floor_seconds > 0.0 && two.floor_seconds < two.seconds);
    assert!(two.most_frames_per_second > two.frames_per_second);
    assert!(two.peak_bytes > 1_000_000);
    assert_eq!(two.calibration, "none");

    let four = predict(4, None);
    assert_eq!(unet(&four).runs, 4);
    assert!((unet(&four).run_seconds / unet(&two).run_seconds - 1.0).abs() < 1e-9);
    // With other constants it takes another time: launches alone bound it here.
    let slow = Calibration { following_seconds: Some(1e-3), device: "slow".into(), ..Calibration::default() };
    let slow = predict(2, Some(&slow));
    assert!(slow.seconds > 1e-3 * unet(&slow).launches as f64 && slow.calibration == "slow");
}

#[test]
fn a_frame_of_live_video_has_a_rate() {
    if !there_is_nvrtc("a_frame_of_live_video_has_a_rate") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let preset = ImagePreset::live();
    preset.model.write(folder.path()).unwrap();
    let model = kinora::LiveModel::new(ModelFolder::open(folder.path()).unwrap());
    let configs = kinora::live::LiveConfigs::read(&model).unwrap();
    let settings = kinora::LiveSettings::for_configs(&configs).width(64).height(64);
    let request = FrameRequest { configs: &configs, settings: &settings, precision: Precision::F16 };
    let frame = predict_frame(&request, &ChipSpec::t4(), None, &go_on).unwrap();
    assert!((frame.frames_per_second * frame.frame_seconds - 1.0).abs() < 1e-9);
    assert!(frame.most_frames_per_second > frame.frames_per_second && frame.prompt_seconds > 0.0);
    assert_eq!(frame.networks.last().unwrap().stage, Stage::Draw);
}

#[test]
fn a_prediction_can_be_stopped() {
    if !there_is_nvrtc("a_prediction_can_be_stopped") {
        return;
    }
    let (_folder, configs, settings) = tiny();
    let settings = settings.steps(1);
    let request = ClipRequest { configs: &configs, settings: &settings, precision: Precision::F16 };
    let seen = Mutex::new(Vec::new());
    let stop = |progress: &PredictionProgress| {
        seen.lock().unwrap().push(*progress);
        match progress.stage {
            PredictionStage::Simulate if progress.done > 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let stopped = predict_clip(&request, &ChipSpec::t4(), None, &stop).unwrap_err();
    assert!(matches!(stopped, GenerateError::Cancelled), "{stopped}");
    let seen = seen.into_inner().unwrap();
    let compiled = seen.iter().rfind(|progress| progress.stage == PredictionStage::Compile);
    assert!(compiled.is_some_and(|last| last.done == last.total));
    assert!(seen.iter().all(|progress| progress.done <= progress.total));
}
