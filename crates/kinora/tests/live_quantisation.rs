//! Live video in 8 bits: a model is measured before its first frame, and what was measured holds for every other one.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use kinora::{
    Device, Live, LiveModel, LiveSettings, LoadOptions, ModelFolder, RgbImage,
    image_to_video::{GenerateError, Precision, Stage},
    live::{Guidance, LiveConfigs, LiveEstimate, Stream, estimate_live},
    quantisation::QuantisationError,
    runtime::KernelSet,
};
use kinora_models::{lora::Lora, synthetic::SyntheticImageModel};
use tempfile::TempDir;

/// A model of random weights with its tiny autoencoder, in a folder of its own.
struct Case(TempDir);

impl Case {
    fn new(preset: &str) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let model = SyntheticImageModel::preset(preset).unwrap();
        model.write(&folder.path().join("model")).unwrap();
        model.write_tiny_vae(&folder.path().join("tiny")).unwrap();
        Case(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("model/fp8.json")
    }

    fn model(&self) -> LiveModel {
        let open = |name| ModelFolder::open(self.0.path().join(name)).unwrap();
        LiveModel::new(open("model")).tiny_autoencoder(open("tiny"))
    }

    fn live(&self, precision: Precision) -> Live {
        open(self.model(), precision)
    }
}

fn open(model: LiveModel, precision: Precision) -> Live {
    Live::new(model, LoadOptions::default().device(Device::Cpu).precision(precision)).unwrap()
}

fn settings(live: &Live) -> LiveSettings {
    live.settings().prompt("a harbour").seed(7).strength(0.5).width(128).height(128)
}

fn picture(width: usize, height: usize) -> RgbImage {
    let byte = |i: usize| {
        let (x, y, c) = (i / 3 % width, i / 3 / width, i % 3);
        (128.0 + 100.0 * ((x as f64) / 17.0 + c as f64).sin() * ((y as f64) / 23.0).cos()) as u8
    };
    RgbImage::new(width, height, (0..width * height * 3).map(byte).collect()).unwrap()
}

/// Frames in 8 bits are at least as close to those in f16. What an untrained network draws is noise, and what it predicts, its error
/// with it, is multiplied by the level of that noise and by guidance. With another seed a frame is 8 dB away.
const CLOSE: f64 = 20.0;

fn psnr(a: &RgbImage, b: &RgbImage) -> f64 {
    let squares = a.bytes().iter().zip(b.bytes()).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
    let mean = squares.sum::<f64>() / a.bytes().len() as f64;
    20.0 * 255f64.log10() - 10.0 * mean.log10()
}

/// Settings that need other networks, and other numbers alone.
fn changes(first: &LiveSettings) -> Vec<LiveSettings> {
    vec![
        first.clone(),
        first.clone().strength(1.0),
        first.clone().strength(0.1),
        first.clone().prompt("snow at night").seed(11),
        first.clone().width(192).height(64),
        first.clone().steps(3),
        first.clone().steps(3).stream_batch(true),
        first.clone().guidance(Guidance::Full).guidance_scale(2.0).negative_prompt("fog"),
        first.clone().memory_frames(2).blend(0.3),
    ]
}

/// Begins a stream; says whether it measured.
fn begin(live: &Live, settings: &LiveSettings) -> (Stream, bool) {
    let measured = AtomicBool::new(false);
    let stream = live.begin_with(settings.clone(), |progress| {
        measured.fetch_or(progress.stage == Stage::Calibrate, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    (stream.unwrap(), measured.into_inner())
}

fn first_frame(live: &Live, settings: &LiveSettings) -> RgbImage {
    live.begin(settings.clone()).unwrap().frame(&picture(settings.width, settings.height)).unwrap()
}

#[test]
fn a_model_is_measured_once_for_every_setting() {
    for preset in ["live", "live-xl"] {
        let case = Case::new(preset);
        let f16 = case.live(Precision::F16);
        let fp8 = case.live(Precision::Fp8);
        assert!(!case.file().exists());
        let first = settings(&fp8);
        let (mut stream, measured) = begin(&fp8, &first);
        assert!(measured);
        let document: serde_json::Value = serde_json::from_slice(&fs::read(case.file()).unwrap()).unwrap();
        let sizes = document["largest"]["frame"].as_object().unwrap();
        assert!(sizes.len() > 20 && sizes.keys().all(|name| name.starts_with("unet.")), "{document}");
        assert!(sizes.values().all(|size| size.as_f64().is_some_and(|size| size > 0.0)), "{document}");
        let written = fs::metadata(case.file()).unwrap().modified().unwrap();
        let again = case.live(Precision::Fp8);
        for change in changes(&first) {
            let frame = picture(change.width, change.height);
            stream.change(change.clone()).unwrap();
            stream.settle().unwrap();
            stream.forget_in_work();
            let drawn = stream.frame(&frame).unwrap();
            let (mut other, measured) = begin(&again, &change);
            assert!(!measured, "{change:?}");
            if change.blend == 0.0 {
                assert_eq!(other.frame(&frame).unwrap(), drawn, "{change:?}");
            }
            let expected = first_frame(&f16, &change);
            let close = psnr(&other.frame(&frame).unwrap(), &expected);
            assert!((CLOSE..60.0).contains(&close), "{preset}: {close:.1} dB, {change:?}");
        }
        assert_eq!(fs::metadata(case.file()).unwrap().modified().unwrap(), written);
    }
}

/// All of it is known when the clip phase runs.
#[test]
fn a_picture_from_noise_is_drawn_in_8_bits() {
    let case = Case::new("live");
    let draw = |precision| {
        let live = case.live(precision);
        live.draw_with(&settings(&live), |_| ControlFlow::Continue(())).unwrap()
    };
    let [f16, fp8] = [Precision::F16, Precision::Fp8].map(draw);
    assert!(case.file().exists());
    let close = psnr(&f16, &fp8);
    assert!(f16 != fp8 && close > CLOSE, "{close:.1} dB");
    assert_eq!(draw(Precision::Fp8), fp8);
}

/// A file of an older run may be of calmer pictures, and a LoRA makes activations larger.
#[test]
fn what_is_larger_than_was_measured_saturates() {
    let case = Case::new("live");
    let first = first_frame(&case.live(Precision::Fp8), &settings(&case.live(Precision::Fp8)));
    let mut document: serde_json::Value = serde_json::from_slice(&fs::read(case.file()).unwrap()).unwrap();
    for size in document["largest"]["frame"].as_object_mut().unwrap().values_mut() {
        *size = (size.as_f64().unwrap() / 4096.0).into();
    }
    fs::write(case.file(), document.to_string()).unwrap();
    let fp8 = case.live(Precision::Fp8);
    let cut = first_frame(&fp8, &settings(&fp8));
    // Numbers that are not finite would make it black.
    let far = psnr(&cut, &first);
    assert!(far < CLOSE && !cut.is_black(), "{far:.1} dB");
}

/// A LoRA file that fits the model `live`: see `golden/make_lora.py`.
fn lora(name: &str) -> Lora {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/lora");
    Lora::open(&folder.join(format!("{name}.safetensors"))).unwrap()
}

#[test]
fn weights_that_a_lora_changes_are_quantised_as_they_are_merged() {
    let case = Case::new("live");
    let plain = case.live(Precision::Fp8);
    let settings = settings(&plain);
    let without = first_frame(&plain, &settings);
    let known = fs::read(case.file()).unwrap();
    let merged = |precision| open(case.model().lora(lora("peft"), 0.7), precision);
    let [f16, fp8] =
        [Precision::F16, Precision::Fp8].map(|precision| first_frame(&merged(precision), &settings));
    let close = psnr(&f16, &fp8);
    assert!(f16 != fp8 && fp8 != without && close > CLOSE, "{close:.1} dB");
    // Turned, they are quantised when the clip phase merges them: without the LoRA to the same bits as when they are loaded.
    let live = open(case.model().adjustable_lora("a", lora("peft"), 0.0), Precision::Fp8);
    let (mut stream, measured) = begin(&live, &settings.clone().lora_strength("a", 0.0));
    assert!(!measured);
    let frame = picture(settings.width, settings.height);
    assert_eq!(stream.frame(&frame).unwrap(), without);
    let f16 = open(case.model().adjustable_lora("a", lora("peft"), 0.0), Precision::F16);
    let turned = settings.clone().lora_strength("a", 0.7);
    stream.change(turned.clone()).unwrap();
    stream.settle().unwrap();
    let (fp8, f16) = (stream.frame(&frame).unwrap(), first_frame(&f16, &turned));
    let close = psnr(&f16, &fp8);
    assert!(f16 != fp8 && fp8 != without && close > CLOSE, "{close:.1} dB");
    assert_eq!(fs::read(case.file()).unwrap(), known, "what is kept is the model's own");
}

#[test]
fn what_was_measured_of_another_model_is_measured_again() {
    let case = Case::new("live");
    let live = case.live(Precision::Fp8);
    let settings = settings(&live);
    let first = first_frame(&live, &settings);
    let mut document: serde_json::Value = serde_json::from_slice(&fs::read(case.file()).unwrap()).unwrap();
    document["model"] = "0123456789abcdef".into();
    document["largest"]["frame"] = serde_json::json!({});
    fs::write(case.file(), document.to_string()).unwrap();
    let live = case.live(Precision::Fp8);
    let (mut stream, measured) = begin(&live, &settings);
    assert!(measured);
    assert_eq!(stream.frame(&picture(settings.width, settings.height)).unwrap(), first);
}

#[test]
fn a_frame_that_would_be_in_f16_alone_is_refused() {
    let case = Case::new("live");
    let live = case.live(Precision::Fp8);
    let settings = settings(&live);
    first_frame(&live, &settings);
    let mut document: serde_json::Value = serde_json::from_slice(&fs::read(case.file()).unwrap()).unwrap();
    for largest in [serde_json::json!({}), serde_json::json!({"frame": {"unet.unknown.weight": 3.5}})] {
        document["largest"] = largest;
        fs::write(case.file(), document.to_string()).unwrap();
        let error = case.live(Precision::Fp8).begin(settings.clone()).unwrap_err();
        let GenerateError::Quantisation(QuantisationError::Nothing) = &error else { panic!("{error}") };
    }
}

#[test]
fn a_damaged_file_is_named() {
    let case = Case::new("live");
    fs::write(case.file(), "{\"version\": 1").unwrap();
    let options = LoadOptions::default().device(Device::Cpu).precision(Precision::Fp8);
    let error = Live::new(case.model(), options).unwrap_err();
    assert!(
        matches!(&error, GenerateError::Quantisation(QuantisationError::File { path, .. }) if *path == case.file()),
        "{error}"
    );
    // Nobody else reads it.
    first_frame(&case.live(Precision::F16), &settings(&case.live(Precision::F16)));
}

#[test]
fn what_cannot_multiply_in_8_bits_is_refused() {
    let case = Case::new("live");
    let options = LoadOptions::default().precision(Precision::Fp8);
    let error = Live::on(Arc::new(support::Older), case.model(), options.clone()).unwrap_err();
    assert!(error.to_string().starts_with("an older card cannot multiply in fp8"), "{error}");
    let error = Live::new(case.model(), options.kernels(KernelSet::Baseline)).unwrap_err().to_string();
    assert!(error.contains("the baseline kernels multiply in 16 or 32 bits"), "{error}");
}

/// The second stream waits for what the first one finds.
#[test]
fn streams_that_begin_at_once_are_measured_once() {
    let case = Case::new("live");
    let live = case.live(Precision::Fp8);
    let settings = settings(&live);
    let measured: usize = thread::scope(|scope| {
        let begun: Vec<_> = (0..3).map(|_| scope.spawn(|| usize::from(begin(&live, &settings).1))).collect();
        begun.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(measured, 1);
}

/// Nothing is kept of a measurement that was stopped.
#[test]
fn measuring_can_be_stopped() {
    let case = Case::new("live");
    let live = case.live(Precision::Fp8);
    let stopped = live.begin_with(settings(&live), |progress| match progress.stage {
        Stage::Calibrate if progress.done == 2 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert!(matches!(stopped, Err(GenerateError::Cancelled)));
    assert!(!case.file().exists());
    assert!(begin(&live, &settings(&live)).1);
}

/// Measuring takes what the UNet does in f16, and its limit is that of everything else.
#[test]
fn measuring_stays_within_the_memory() {
    let case = Case::new("live");
    let options = LoadOptions::default().device(Device::Cpu).precision(Precision::Fp8);
    let live = Live::new(case.model(), options.clone()).unwrap();
    let settings = settings(&live);
    let before = live.estimate(&settings).unwrap();
    let stream = live.begin(settings.clone()).unwrap();
    assert_eq!(live.estimate(&settings).unwrap(), before, "by shape it was known what it takes");
    assert_eq!(live.memory_bytes(), before.peak_bytes(), "what measured is gone");
    drop(stream);
    fs::remove_file(case.file()).unwrap();
    let text = before.peak_bytes() - before.parts.last().unwrap().peak_bytes();
    let limited = Live::new(case.model(), options.memory_budget(text + (64 << 10))).unwrap();
    let error = limited.begin(settings).unwrap_err();
    let GenerateError::OverLimit(over) = &error else { panic!("{error}") };
    assert!(over.part.contains("measured in f16"), "{error}");
}

#[test]
fn a_frame_in_8_bits_takes_less_memory() {
    let configs = LiveConfigs::preset("sd-turbo").unwrap().tiny_autoencoder().unwrap();
    let settings = LiveSettings::for_configs(&configs);
    let [f16, fp8] = [Precision::F16, Precision::Fp8]
        .map(|precision| estimate_live(&configs, &settings, precision).unwrap());
    let weights = |estimate: &LiveEstimate| estimate.parts.last().unwrap().weight_bytes as f64;
    // Nearly all of the UNet's are in e4m3.
    assert!((0.5..0.6).contains(&(weights(&fp8) / weights(&f16))), "{} of {}", weights(&fp8), weights(&f16));
    assert_eq!(fp8.flops_per_frame(), f16.flops_per_frame());
}
