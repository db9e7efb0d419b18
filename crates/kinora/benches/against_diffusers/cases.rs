//! The models and clips that are measured, from tiny to small.

use kinora::image_to_video::{Configs, Settings};
use kinora_models::{schedulers::Scheduler, synthetic::SyntheticModel};
use serde_json::{Value, json};

/// One model and one clip of it.
pub struct Case {
    /// For people, and for choosing.
    pub name: &'static str,
    /// The model, with random weights.
    pub model: SyntheticModel,
    /// The clip.
    pub settings: Settings,
}

/// Size and length of a clip.
struct Length {
    width: usize,
    height: usize,
    frames: usize,
    steps: usize,
}

/// All cases.
pub fn all() -> [Case; 3] {
    [
        Case {
            name: "tiny",
            model: model(
                unet(&[32, 64], &[1, 2], 1, 64),
                vae(&[32, 32, 32, 32]),
                image_encoder(64, 2, 2, 56),
            ),
            settings: settings(Length { width: 64, height: 64, frames: 4, steps: 4 }),
        },
        Case {
            name: "three levels",
            model: model(
                unet(&[64, 128, 256], &[1, 2, 4], 1, 128),
                vae(&[32, 64, 64, 64]),
                image_encoder(128, 4, 4, 28),
            ),
            settings: settings(Length { width: 192, height: 128, frames: 8, steps: 4 }),
        },
        // The blocks, layers and head sizes of the published model, a quarter or less of its widths.
        Case {
            name: "as SVD",
            model: model(
                unet(&[64, 128, 256, 256], &[1, 2, 4, 4], 2, 320),
                vae(&[32, 64, 128, 128]),
                image_encoder(320, 8, 4, 14),
            ),
            settings: settings(Length { width: 256, height: 192, frames: 8, steps: 4 }),
        },
    ]
}

fn model(unet: Value, vae: Value, image_encoder: Value) -> SyntheticModel {
    SyntheticModel {
        unet,
        vae,
        image_encoder,
        scheduler: Scheduler::svd_config(),
        feature_extractor: json!({"image_processor_type": "CLIPImageProcessor"}),
    }
}

/// All levels but the last have transformers, as in Stable Video Diffusion.
fn unet(widths: &[usize], heads: &[usize], layers: usize, context: usize) -> Value {
    let levels = widths.len();
    let mut down = vec!["CrossAttnDownBlockSpatioTemporal"; levels];
    let mut up = vec!["CrossAttnUpBlockSpatioTemporal"; levels];
    down[levels - 1] = "DownBlockSpatioTemporal";
    up[0] = "UpBlockSpatioTemporal";
    json!({
        "_class_name": "UNetSpatioTemporalConditionModel",
        "down_block_types": down,
        "up_block_types": up,
        "block_out_channels": widths,
        "num_attention_heads": heads,
        "layers_per_block": layers,
        "cross_attention_dim": context,
        "addition_time_embed_dim": 64,
        "projection_class_embeddings_input_dim": 192,
    })
}

fn vae(widths: &[usize]) -> Value {
    json!({
        "_class_name": "AutoencoderKLTemporalDecoder",
        "block_out_channels": widths,
        "down_block_types": vec!["DownEncoderBlock2D"; widths.len()],
        "layers_per_block": 2,
    })
}

/// An encoder whose result is as wide as its tokens.
fn image_encoder(width: usize, layers: usize, heads: usize, patch: usize) -> Value {
    json!({
        "architectures": ["CLIPVisionModelWithProjection"],
        "model_type": "clip_vision_model",
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "projection_dim": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "image_size": 224,
        "patch_size": patch,
        "hidden_act": "gelu",
    })
}

/// The defaults of diffusers' pipeline for everything but the length.
fn settings(Length { width, height, frames, steps }: Length) -> Settings {
    Settings::for_configs(&Configs::svd())
        .frames(frames)
        .steps(steps)
        .height(height)
        .width(width)
        .fps(7)
        .motion_bucket(127)
        .noise_augmentation(0.02)
        .min_guidance(1.0)
        .max_guidance(3.0)
        .decode_chunk(frames)
        .seed(42)
        .scheduler(None)
}
