//! The JSON files of a model's folder. One of them is hostile, and the others are those of a small model.

use std::cell::OnceCell;

use kinora::{
    ModelFolder, Settings,
    image_to_video::{Configs, Precision, estimate_configs},
};
use kinora_models::{
    schedulers::{Scheduler, SchedulerKind, parse_config},
    synthetic::SyntheticModel,
};
use serde_json::{Value, json};

use crate::scratch::Scratch;

thread_local! {
    static MODEL: OnceCell<Model> = const { OnceCell::new() };
}

/// A model's folder without weights.
struct Model {
    folder: Scratch,
    good: SyntheticModel,
}

/// Any bytes as `model_index.json`.
pub fn model_index(bytes: &[u8]) {
    read_with("model_index.json", bytes);
}

/// Any bytes as `defaults.json`.
pub fn defaults(bytes: &[u8]) {
    read_with("defaults.json", bytes);
}

/// Any bytes as the UNet's configuration.
pub fn unet(bytes: &[u8]) {
    read_with("unet/config.json", bytes);
}

/// Any bytes as the autoencoder's configuration.
pub fn vae(bytes: &[u8]) {
    read_with("vae/config.json", bytes);
}

/// Any bytes as the image encoder's configuration.
pub fn image_encoder(bytes: &[u8]) {
    read_with("image_encoder/config.json", bytes);
}

/// Any bytes as the image processor's configuration.
pub fn preprocessor(bytes: &[u8]) {
    read_with("feature_extractor/preprocessor_config.json", bytes);
}

/// Any bytes as the scheduler's configuration: its own class and all others, short and long runs.
pub fn scheduler(bytes: &[u8]) {
    let Ok(config) = parse_config(&String::from_utf8_lossy(bytes)) else { return };
    let own = Scheduler::from_config(&config);
    let others = SchedulerKind::ALL.map(|kind| Scheduler::from_config_as(&config, kind));
    for scheduler in others.into_iter().chain([own]).flatten() {
        for steps in [0, 1, 2, 25, 1000, usize::MAX] {
            let Ok(schedule) = scheduler.schedule(steps) else { continue };
            assert_eq!(schedule.table().len(), steps);
            assert!(schedule.table().iter().flatten().all(|number| number.is_finite()));
        }
    }
}

/// Reads the model with one of its files replaced, and plans a clip if it can be read.
fn read_with(file: &str, bytes: &[u8]) {
    MODEL.with(|model| {
        let model = model.get_or_init(Model::new);
        model.folder.write(file, bytes);
        model.plan();
        model.restore(file);
    });
}

impl Model {
    fn new() -> Model {
        let model = Model { folder: Scratch::new(), good: SyntheticModel::preset("tiny").unwrap() };
        for file in FILES {
            model.restore(file);
        }
        model
    }

    /// Puts the good file back, if there is one.
    fn restore(&self, file: &str) {
        let good = &self.good;
        let json = match file {
            "model_index.json" => index(),
            "unet/config.json" => good.unet.clone(),
            "vae/config.json" => good.vae.clone(),
            "image_encoder/config.json" => good.image_encoder.clone(),
            "scheduler/scheduler_config.json" => good.scheduler.clone(),
            "feature_extractor/preprocessor_config.json" => good.feature_extractor.clone(),
            _ => json!({}),
        };
        self.folder.write(file, json.to_string().as_bytes());
    }

    fn plan(&self) {
        let Ok(folder) = ModelFolder::open(self.folder.path()) else { return };
        let Ok(configs) = Configs::read(&folder) else { return };
        let settings = Settings::for_configs(&configs);
        for precision in [Precision::F32, Precision::F16] {
            if settings.check(&configs, precision).is_ok() {
                let estimate = estimate_configs(&configs, &settings, precision);
                let _ = estimate.map(|estimate| (estimate.peak_bytes(), estimate.flops()));
            }
        }
    }
}

const FILES: [&str; 7] = [
    "model_index.json",
    "defaults.json",
    "unet/config.json",
    "vae/config.json",
    "image_encoder/config.json",
    "scheduler/scheduler_config.json",
    "feature_extractor/preprocessor_config.json",
];

fn index() -> Value {
    json!({
        "_class_name": "StableVideoDiffusionPipeline",
        "feature_extractor": ["transformers", "CLIPImageProcessor"],
        "image_encoder": ["transformers", "CLIPVisionModelWithProjection"],
        "scheduler": ["diffusers", "EulerDiscreteScheduler"],
        "unet": ["diffusers", "UNetSpatioTemporalConditionModel"],
        "vae": ["diffusers", "AutoencoderKLTemporalDecoder"],
    })
}
