//! The JSON files of a model's folder. One of them is hostile, and the others are those of a small model.

use std::cell::OnceCell;

use kinora::{
    ModelFolder, Settings,
    image_to_video::{Configs, Precision, estimate_configs},
};
use kinora_graph::DType;
use kinora_models::{
    networks::{
        tiny_vae::{self, Batch, TinyVaeConfig},
        unet::PerBlock,
        vae::Pixels,
    },
    schedulers::{ImageToImage, Scheduler, SchedulerKind, parse_config},
};
use serde_json::{Value, json};

use crate::scratch::Scratch;

/// More residual blocks than this take too long to build, in an instrumented build.
const SMALL_BLOCKS: usize = 40;

thread_local! {
    static MODEL: OnceCell<Model> = const { OnceCell::new() };
}

/// A model's folder without weights.
struct Model {
    folder: Scratch,
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

/// Any bytes as the configuration of the small autoencoder for live video.
pub fn tiny_vae(bytes: &[u8]) {
    let Ok(config) = TinyVaeConfig::from_json(&String::from_utf8_lossy(bytes)) else { return };
    let blocks = config.num_encoder_blocks.iter().chain(&config.num_decoder_blocks).sum::<usize>();
    if blocks <= SMALL_BLOCKS {
        let side = 8 * config.pixels_per_latent();
        let batch = Batch { images: 1, height: side, width: side, dtype: DType::F16, pixels: Pixels::Bytes };
        let _ = (tiny_vae::encoder(&config, &batch), tiny_vae::decoder(&config, &batch));
    }
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
        for strength in [0.0, 0.3, 1.0, f64::NAN] {
            let _ = scheduler.image_to_image(ImageToImage::Strength { steps: 4, strength });
            let Ok(timesteps) = scheduler.trailing_timesteps(4, strength) else { continue };
            let Ok(schedule) = scheduler.image_to_image(ImageToImage::Timesteps(&timesteps)) else {
                continue;
            };
            assert_eq!(schedule.noise_table().len(), 4);
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
        let model = Model { folder: Scratch::new() };
        for file in FILES {
            model.restore(file);
        }
        model
    }

    /// Puts the good file back.
    fn restore(&self, file: &str) {
        self.folder.write(file, good(file).to_string().as_bytes());
    }

    fn plan(&self) {
        let Ok(folder) = ModelFolder::open(self.folder.path()) else { return };
        let Ok(configs) = Configs::read(&folder) else { return };
        let settings = Settings::for_configs(&configs);
        if settings.check(&configs, Precision::F16).is_ok() && is_small(&configs) {
            let estimate = estimate_configs(&configs, &settings, Precision::F16);
            let _ = estimate.map(|estimate| (estimate.peak_bytes(), estimate.flops()));
        }
    }
}

/// Whether planning takes milliseconds. A hundred layers are legal, and take seconds in an instrumented build.
fn is_small(configs: &Configs) -> bool {
    let Configs { unet, vae, image_encoder, .. } = configs;
    let layers =
        |level| match (unet.layers_per_block.get(level), unet.transformer_layers_per_block.get(level)) {
            (Some(&layers), Some(PerBlock::All(depth))) => layers * depth,
            (Some(&layers), Some(PerBlock::Each(depths))) => layers * depths.iter().max().unwrap_or(&0),
            _ => usize::MAX,
        };
    (0..unet.block_out_channels.len()).map(layers).fold(0, usize::saturating_add) <= 4
        && vae.block_out_channels.len().saturating_mul(vae.layers_per_block) <= 6
        && image_encoder.num_hidden_layers <= 4
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

/// The files of the smallest model that can be planned.
fn good(file: &str) -> Value {
    match file {
        "model_index.json" => json!({
            "_class_name": "StableVideoDiffusionPipeline",
            "feature_extractor": ["transformers", "CLIPImageProcessor"],
            "image_encoder": ["transformers", "CLIPVisionModelWithProjection"],
            "scheduler": ["diffusers", "EulerDiscreteScheduler"],
            "unet": ["diffusers", "UNetSpatioTemporalConditionModel"],
            "vae": ["diffusers", "AutoencoderKLTemporalDecoder"],
        }),
        "unet/config.json" => json!({
            "_class_name": "UNetSpatioTemporalConditionModel",
            "addition_time_embed_dim": 32,
            "block_out_channels": [32],
            "down_block_types": ["DownBlockSpatioTemporal"],
            "up_block_types": ["UpBlockSpatioTemporal"],
            "cross_attention_dim": 32,
            "layers_per_block": 1,
            "num_attention_heads": 1,
            "num_frames": 1,
            "projection_class_embeddings_input_dim": 96,
        }),
        "vae/config.json" => json!({
            "_class_name": "AutoencoderKLTemporalDecoder",
            "block_out_channels": [32],
            "down_block_types": ["DownEncoderBlock2D"],
            "layers_per_block": 1,
        }),
        "image_encoder/config.json" => json!({
            "architectures": ["CLIPVisionModelWithProjection"],
            "hidden_size": 32,
            "intermediate_size": 32,
            "projection_dim": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "image_size": 224,
            "patch_size": 112,
            "hidden_act": "gelu",
        }),
        "scheduler/scheduler_config.json" => Scheduler::svd_config(),
        _ => json!({}),
    }
}
