//! Whole clips equal to those of diffusers' pipeline, from a model's folder to bytes. `golden/make_pipeline.py` made them.
#![allow(clippy::unwrap_used)]

use std::{collections::HashMap, ops::ControlFlow, path::Path};

use kinora::{
    RgbImage,
    image_to_video::{Clip, Configs, ImageToVideo, LoadOptions, Precision, Settings, Stage},
    photo::Fit,
};
use kinora_models::{
    folder::ModelFolder,
    synthetic::{SyntheticModel, uniform},
};
use safetensors::SafeTensors;
use serde::Deserialize;
use tempfile::TempDir;

#[derive(Deserialize)]
struct Fixture {
    models: HashMap<String, SyntheticModel>,
    runs: Vec<Run>,
}

/// What diffusers was asked for.
#[derive(Clone, Deserialize)]
struct Run {
    name: String,
    model: String,
    photo: [usize; 2],
    frames: usize,
    steps: usize,
    height: usize,
    width: usize,
    fps: usize,
    motion_bucket: usize,
    noise_augmentation: f64,
    min_guidance: f64,
    max_guidance: f64,
    decode_chunk: usize,
    seed: u64,
    scheduler: Option<String>,
    precision: String,
}

impl Run {
    fn settings(&self) -> Settings {
        Settings::for_configs(&Configs::svd())
            .frames(self.frames)
            .steps(self.steps)
            .height(self.height)
            .width(self.width)
            .fps(self.fps)
            .motion_bucket(self.motion_bucket)
            .noise_augmentation(self.noise_augmentation)
            .min_guidance(self.min_guidance)
            .max_guidance(self.max_guidance)
            .decode_chunk(self.decode_chunk)
            .seed(self.seed)
            .scheduler(self.scheduler.as_ref().map(|name| name.parse().unwrap()))
            .fit(Fit::Stretch)
    }

    /// A photo of noise, as the script makes it.
    fn photo(&self) -> RgbImage {
        let [width, height] = self.photo;
        let numbers = uniform(&format!("photo {width}×{height}")).take(width * height * 3);
        let bytes = numbers.map(|u| ((u + 1.0) * 128.0).floor() as u8).collect();
        RgbImage::new(width, height, bytes).unwrap()
    }

    fn generate(&self, model: &Path, precision: Precision) -> Clip {
        let options = LoadOptions::default().precision(precision);
        let pipeline = ImageToVideo::new(ModelFolder::open(model).unwrap(), options).unwrap();
        pipeline.generate(&self.photo(), &self.settings()).unwrap()
    }
}

fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pipeline").join(name)
}

fn fixture() -> Fixture {
    serde_json::from_str(&std::fs::read_to_string(file("clips.json")).unwrap()).unwrap()
}

/// The run of a name, with its model written to a folder.
fn written(name: &str) -> (Run, TempDir) {
    let fixture = fixture();
    let run = fixture.runs.iter().find(|run| run.name == name).unwrap().clone();
    let folder = tempfile::tempdir().unwrap();
    fixture.models[&run.model].write(folder.path()).unwrap();
    (run, folder)
}

fn bytes_of(clip: &Clip) -> Vec<u8> {
    clip.frames.iter().flat_map(|frame| frame.bytes()).copied().collect()
}

/// Compares a clip with that of diffusers.
fn equals_diffusers(name: &str) {
    let (run, folder) = written(name);
    let clip = run.generate(folder.path(), Precision::F32);
    let stored = std::fs::read(file("clips.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&stored).unwrap();

    let latents = stored.tensor(&format!("{name}.latents")).unwrap();
    assert_eq!(latents.shape(), clip.latents.shape().to_vec());
    let expected = latents.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let difference = |(a, b): (f32, f32)| if (a - b).is_finite() { (a - b).abs() } else { f32::INFINITY };
    let worst = expected.zip(clip.latents.to_f32()).map(difference).fold(0.0, f32::max);
    println!("{name}: latents at most {worst:.1e} off");
    assert!(worst <= 1e-4, "{name}: latents are {worst:e} off");

    assert_eq!(clip.frames.len(), run.frames);
    for frame in &clip.frames {
        assert_eq!((frame.width(), frame.height()), (run.width, run.height));
    }
    let Ok(frames) = stored.tensor(&format!("{name}.frames")) else { return };
    assert_eq!(frames.shape(), [run.frames, run.height, run.width, 3]);
    let got = bytes_of(&clip);
    assert_eq!(frames.data().len(), got.len());
    let differences = || frames.data().iter().zip(&got).map(|(a, b)| a.abs_diff(*b));
    let unequal = differences().filter(|&difference| difference > 0).count();
    println!("{name}: {unequal} of {} bytes differ", got.len());
    assert!(differences().all(|difference| difference <= 1), "{name}: a byte is more than 1 off");
    assert!(unequal * 1000 <= got.len(), "{name}: {unequal} of {} bytes differ", got.len());
}

#[test]
fn euler() {
    equals_diffusers("euler");
}

#[test]
fn ddim() {
    equals_diffusers("ddim");
}

#[test]
fn dpm_solver() {
    equals_diffusers("dpm");
}

#[test]
fn lcm() {
    equals_diffusers("lcm");
}

#[test]
fn chunks_with_a_shorter_last() {
    equals_diffusers("chunks");
}

#[test]
fn guidance_that_falls() {
    equals_diffusers("falling");
}

#[test]
fn one_frame() {
    equals_diffusers("one_frame");
}

#[test]
fn without_guidance_or_noise() {
    equals_diffusers("unguided");
}

#[test]
fn every_golden_run_has_a_test() {
    let names: Vec<String> = fixture().runs.into_iter().map(|run| run.name).collect();
    assert_eq!(names, ["euler", "ddim", "lcm", "chunks", "falling", "one_frame", "dpm", "unguided", "half"]);
}

/// Half precision rounds every layer, and diffusers the latents too, so that the two are near each other and no more.
/// The noise of another type, or of another order, would be another clip.
#[test]
fn half_precision_is_near_that_of_diffusers() {
    let (run, folder) = written("half");
    assert_eq!(run.precision, "f16");
    let stored = std::fs::read(file("clips.safetensors")).unwrap();
    let stored = SafeTensors::deserialize(&stored).unwrap();
    let expected = stored.tensor("half.frames").unwrap();
    let far = |precision| {
        let bytes = bytes_of(&run.generate(folder.path(), precision));
        assert_eq!(bytes.len(), expected.data().len());
        let sum: u64 = bytes.iter().zip(expected.data()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        sum as f64 / bytes.len() as f64
    };
    let [half, brain, single] = [Precision::F16, Precision::BF16, Precision::F32].map(far);
    println!("bytes are {half:.3} off in the mean; in bf16 {brain:.1}, in f32 {single:.1}");
    assert!(half < 0.5, "{half}");
    assert!(brain > 10.0 && single > 10.0);
}

#[test]
fn a_caller_sees_every_step_and_every_chunk() {
    let (run, folder) = written("chunks");
    let pipeline =
        ImageToVideo::new(ModelFolder::open(folder.path()).unwrap(), LoadOptions::default()).unwrap();
    let mut seen = Vec::new();
    let clip = pipeline
        .generate_with(&run.photo(), &run.settings(), |progress| {
            seen.push((progress.stage, progress.done, progress.total));
            let step = progress.stage == Stage::Denoise && progress.done > 0;
            assert_eq!(progress.preview.is_some(), step);
            ControlFlow::Continue(())
        })
        .unwrap();
    let of = |stage| seen.iter().filter(|s| s.0 == stage).map(|s| (s.1, s.2)).collect::<Vec<_>>();
    assert_eq!(of(Stage::EncodeImage), [(0, 1), (1, 1)]);
    assert_eq!(of(Stage::EncodeLatents), [(0, 1), (1, 1)]);
    assert_eq!(of(Stage::Denoise), [(0, 3), (1, 3), (2, 3), (3, 3)]);
    // Two whole chunks, then the decoder of the last frame.
    assert_eq!(of(Stage::Decode), [(0, 5), (2, 5), (4, 5), (4, 5), (5, 5)]);
    assert_eq!(of(Stage::Load).last(), Some(&(5, 5)));

    let report = serde_json::to_value(&clip.report).unwrap();
    assert_eq!(report["settings"]["seed"], run.seed);
    assert_eq!(report["step_seconds"].as_array().unwrap().len(), 3);
    assert_eq!(report["scheduler"], "euler");
    let stages: Vec<&str> =
        report["stages"].as_array().unwrap().iter().map(|time| time["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["load", "encode_image", "encode_latents", "denoise", "decode"]);
    // The photo is larger than the clip.
    let (plan, estimate) = (&clip.report.plan, pipeline.estimate(&run.settings()).unwrap());
    assert_eq!(plan.parts, estimate.parts);
    assert!(plan.working_bytes > estimate.working_bytes, "{plan:?}");
    assert!(
        report["plan"]["peak_bytes"].as_u64().unwrap() > 0 && report["plan"]["flops"].as_u64().unwrap() > 0
    );
}
