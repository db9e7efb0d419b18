//! Products in 8 bits: what a first clip measures is kept beside the model, and used by those that follow.
#![allow(clippy::unwrap_used)]

mod support;

use std::{fs, path::Path, sync::Arc};

use kinora::{
    Clip, Device, ImageToVideo, ModelFolder, RgbImage,
    image_to_video::{
        Configs, Estimate, GenerateError, LoadOptions, Precision, Settings, Stage, estimate_configs,
    },
    quantisation::QuantisationError,
    runtime::KernelSet,
};
use kinora_models::synthetic::SyntheticModel;

struct Case {
    folder: tempfile::TempDir,
    photo: RgbImage,
}

impl Case {
    fn new() -> Case {
        let folder = tempfile::tempdir().unwrap();
        SyntheticModel::preset("tiny").unwrap().write(&folder.path().join("model")).unwrap();
        let photo = RgbImage::new(64, 64, (0..64 * 64 * 3).map(|i| (i * 7 % 251) as u8).collect()).unwrap();
        Case { folder, photo }
    }

    fn model(&self) -> ModelFolder {
        ModelFolder::open(self.folder.path().join("model")).unwrap()
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("model/fp8.json")
    }

    fn clip(&self, precision: Precision) -> Result<Clip, GenerateError> {
        let options = LoadOptions::default().device(Device::Cpu).precision(precision);
        let settings = Settings::for_model(&self.model()).unwrap().steps(2).seed(3);
        ImageToVideo::new(self.model(), options)?.generate(&self.photo, &settings)
    }
}

fn bytes(clip: &Clip) -> Vec<u8> {
    clip.frames.iter().flat_map(|frame| frame.bytes()).copied().collect()
}

fn measured(file: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn a_first_clip_measures_and_the_next_ones_know() {
    let case = Case::new();
    let f16 = case.clip(Precision::F16).unwrap();
    let measured_for = |clip: &Clip| clip.report.stages.iter().any(|time| time.stage == Stage::Calibrate);
    assert!(!case.file().exists());
    let first = case.clip(Precision::Fp8).unwrap();
    assert_eq!(first.report.precision, Precision::Fp8);
    assert!(measured_for(&first) && !measured_for(&f16));
    assert_eq!(first.report.step_seconds.len(), 2);
    assert_ne!(bytes(&first), bytes(&f16), "nothing was done in 8 bits");
    let document = measured(&case.file());
    let sizes = document["largest"]["denoise"].as_object().unwrap();
    assert!(sizes.len() > 20, "{document}");
    assert!(sizes.values().all(|size| size.as_f64().is_some_and(|size| size > 0.0)), "{document}");
    // The same clip from what was kept.
    let written = fs::metadata(case.file()).unwrap().modified().unwrap();
    let second = case.clip(Precision::Fp8).unwrap();
    assert!(!measured_for(&second));
    assert_eq!(bytes(&second), bytes(&first));
    assert_eq!(fs::metadata(case.file()).unwrap().modified().unwrap(), written);
}

#[test]
fn what_was_measured_of_another_model_is_measured_again() {
    let case = Case::new();
    let first = case.clip(Precision::Fp8).unwrap();
    let mut document = measured(&case.file());
    document["model"] = "0123456789abcdef".into();
    document["largest"]["denoise"] = serde_json::json!({});
    fs::write(case.file(), document.to_string()).unwrap();
    assert_eq!(bytes(&case.clip(Precision::Fp8).unwrap()), bytes(&first));
    assert_ne!(measured(&case.file()), document);
}

#[test]
fn a_clip_that_would_be_in_f16_alone_is_refused() {
    let case = Case::new();
    case.clip(Precision::Fp8).unwrap();
    let mut document = measured(&case.file());
    for largest in [serde_json::json!({}), serde_json::json!({"denoise": {"unknown.weight": 3.5}})] {
        document["largest"] = largest;
        fs::write(case.file(), document.to_string()).unwrap();
        let error = case.clip(Precision::Fp8).unwrap_err();
        let GenerateError::Quantisation(QuantisationError::Nothing) = &error else { panic!("{error}") };
    }
    let options = LoadOptions::default().precision(Precision::Fp8).kernels(KernelSet::Baseline);
    let error = ImageToVideo::new(case.model(), options).unwrap_err().to_string();
    assert!(error.contains("the baseline kernels multiply in 16 or 32 bits"), "{error}");
}

#[test]
fn a_damaged_file_is_named() {
    let case = Case::new();
    fs::write(case.file(), "{\"version\": 1").unwrap();
    let error = case.clip(Precision::Fp8).unwrap_err();
    assert!(
        matches!(&error, GenerateError::Quantisation(QuantisationError::File { path, .. }) if *path == case.file()),
        "{error}"
    );
    // Nobody else reads it.
    case.clip(Precision::F16).unwrap();
}

#[test]
fn a_device_that_cannot_refuses() {
    let case = Case::new();
    let options = LoadOptions::default().precision(Precision::Fp8);
    let error = ImageToVideo::on(Arc::new(support::Older), case.model(), options).unwrap_err();
    assert!(error.to_string().starts_with("an older card cannot multiply in fp8"), "{error}");
}

#[test]
fn what_a_measured_clip_costs_is_known_by_its_configuration_alone() {
    let configs = Configs::preset("svd").unwrap();
    let settings = Settings::for_configs(&configs);
    let [f16, fp8] = [Precision::F16, Precision::Fp8]
        .map(|precision| estimate_configs(&configs, &settings, precision).unwrap());
    let weights = |estimate: &Estimate| estimate.unet().unwrap().weight_bytes as f64;
    // Nearly all of them are in e4m3.
    assert!((0.5..0.6).contains(&(weights(&fp8) / weights(&f16))), "{} of {}", weights(&fp8), weights(&f16));
    assert_eq!(fp8.flops(), f16.flops());
}
