//! What a model for live video brings: configurations, a tokenizer, and LoRA files.

use std::cell::OnceCell;

use kinora_graph::{DType, Parameters, TensorType};
use kinora_models::{
    lora::{Adapted, Adjustable, Lora, LoraPart},
    networks::{
        clip_text::{self, ClipTextConfig, TextEncode},
        controlnet::ControlNetConfig,
        denoise::SamplerNeeds,
        frame::{Autoencoder, FrameConfig, Start},
        tiny_vae::TinyVaeConfig,
        unet2d::Unet2dConfig,
    },
    tokenizer::ClipTokenizer,
    weights::Weights,
};

use crate::scratch::Scratch;

/// Channels of all levels together, and layers of a level, with which a graph is built in milliseconds.
const SMALL_CHANNELS: usize = 1 << 12;
const SMALL_LEVELS: usize = 3;
const SMALL_LAYERS: usize = 2;

thread_local! {
    static FILES: OnceCell<Files> = const { OnceCell::new() };
}

/// A LoRA file, and the weights that it may change.
struct Files {
    folder: Scratch,
    base: Weights,
}

/// Any bytes as the configuration of a UNet for images.
pub fn unet2d(bytes: &[u8]) {
    let Ok(unet) = Unet2dConfig::from_json(&String::from_utf8_lossy(bytes)) else { return };
    build(unet, None);
}

/// Any bytes as the configuration of a ControlNet, which steers the UNet that it says it is for.
pub fn controlnet(bytes: &[u8]) {
    let Ok(control) = ControlNetConfig::from_json(&String::from_utf8_lossy(bytes)) else { return };
    if control.conditioning_embedding_out_channels.iter().sum::<usize>() <= SMALL_CHANNELS {
        let unet = Unet2dConfig { out_channels: control.unet.in_channels, ..control.unet.clone() };
        build(unet, Some(control));
    }
}

fn build(unet: Unet2dConfig, control: Option<ControlNetConfig>) {
    let small = unet.block_out_channels.len() <= SMALL_LEVELS
        && unet.block_out_channels.iter().sum::<usize>() <= SMALL_CHANNELS
        && (0..SMALL_LEVELS).all(|level| unet.layers_per_block.get(level).is_none_or(|&n| n <= SMALL_LAYERS));
    if !small {
        return;
    }
    let autoencoder = TinyVaeConfig { latent_channels: unet.in_channels.min(64), ..TinyVaeConfig::default() };
    let frame = FrameConfig {
        unet,
        autoencoder: Autoencoder::Tiny(autoencoder),
        height: 64,
        width: 64,
        input: None,
        start: Start::Picture,
        steps: 1,
        guided: true,
        tokens: 3,
        sampler: SamplerNeeds::default(),
        blended: false,
        control,
        memory: 1,
        dtype: DType::F16,
    };
    let _ = frame.build();
}

/// Any bytes as the configuration of a text encoder.
pub fn text_encoder(bytes: &[u8]) {
    let Ok(config) = ClipTextConfig::from_json(&String::from_utf8_lossy(bytes)) else { return };
    assert_eq!(config.ends(&[1, 2, 3, 4], 2).len(), 2);
    if config.num_hidden_layers <= SMALL_LAYERS {
        let dtype = DType::F16;
        let request = TextEncode { prompts: 2, tokens: 2, dtype, skip: 0, final_norm: true, pooled: true };
        let _ = clip_text::encoder(&config, &request);
    }
}

/// Any bytes as `tokenizer.json`, and as a prompt.
pub fn tokenizer(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(tokenizer) = ClipTokenizer::from_json(&text) else { return };
    assert_eq!(tokenizer.prompt(&text, 77).tokens.len(), 77);
}

/// Any bytes as a LoRA file.
pub fn lora(bytes: &[u8]) {
    FILES.with(|files| {
        let files = files.get_or_init(Files::new);
        files.folder.write("lora.safetensors", bytes);
        let Ok(lora) = Lora::open(&files.folder.path().join("lora.safetensors")) else { return };
        for part in LoraPart::ALL {
            let Ok(adapted) = Adapted::new(&files.base, part, &[(&lora, 0.5), (&lora, -1.0)]) else {
                continue;
            };
            let _ = adapted.parameter("mid_block.to_q.weight", &TensorType::new(DType::F32, [2, 2]));
            let _ = adapted.parameter("conv_in.weight", &TensorType::new(DType::F16, [2, 1, 1, 1, 2]));
            let Ok(adjustable) = Adjustable::new(adapted, &[&lora, &lora]) else { continue };
            for factor in ["mid_block.to_q.weight.lora_up", "conv_in.weight.lora_down"] {
                let _ = adjustable.parameter(factor, &TensorType::new(DType::F16, [2, 8]));
            }
        }
    });
}

impl Files {
    fn new() -> Files {
        let folder = Scratch::new();
        let header = r#"{"mid_block.to_q.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"conv_in.weight":{"dtype":"F32","shape":[2,2,1,1],"data_offsets":[16,32]}}"#;
        let mut base = (header.len() as u64).to_le_bytes().to_vec();
        base.extend_from_slice(header.as_bytes());
        base.extend_from_slice(&[0; 32]);
        folder.write("base.safetensors", &base);
        let base = Weights::open_file(&folder.path().join("base.safetensors")).unwrap();
        Files { folder, base }
    }
}
