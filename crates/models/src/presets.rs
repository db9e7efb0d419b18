//! Models that are known by name: Stable Video Diffusion, Stable Diffusion, and small models of their shapes.
//!
//! Each is one JSON file in `presets/`, with the configurations as diffusers and transformers write them. The Python
//! peers of the benchmarks read the same files, so that no network is spelled out twice.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::synthetic::{SyntheticImageModel, SyntheticModel};

/// The configurations of a model, and the clip that it is benchmarked with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preset {
    /// The configurations.
    #[serde(flatten)]
    pub model: SyntheticModel,
    /// The clip.
    pub clip: ClipShape,
}

/// The size and length of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClipShape {
    /// Frames.
    pub frames: usize,
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Denoising steps.
    pub steps: usize,
}

impl Preset {
    /// Stable Video Diffusion as it is published: 14 frames of 1024×576.
    pub fn svd() -> Preset {
        read(include_str!("../presets/svd.json"))
    }

    /// 8 frames of 320×192 by a model of some seventy million parameters, for benchmarks.
    pub fn small() -> Preset {
        read(include_str!("../presets/small.json"))
    }

    /// 4 frames of 64×64 by a model of some four million parameters, for tests.
    pub fn tiny() -> Preset {
        read(include_str!("../presets/tiny.json"))
    }
}

/// The configurations of a model of images, and the frame that it is benchmarked with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImagePreset {
    /// The configurations.
    #[serde(flatten)]
    pub model: SyntheticImageModel,
    /// The frame.
    pub frame: FrameShape,
}

/// The size of a frame, and how it is denoised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameShape {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Denoising steps.
    pub steps: usize,
}

impl ImagePreset {
    /// Stable Diffusion Turbo as it is published: 512×512 in one step.
    pub fn sd_turbo() -> ImagePreset {
        read(include_str!("../presets/sd-turbo.json"))
    }

    /// Stable Diffusion 1.5 as it is published: 512×512.
    pub fn sd15() -> ImagePreset {
        read(include_str!("../presets/sd15.json"))
    }

    /// Stable Diffusion XL Turbo as it is published: 512×512 in one step.
    pub fn sdxl_turbo() -> ImagePreset {
        read(include_str!("../presets/sdxl-turbo.json"))
    }

    /// 64×64 by a model of Turbo's shape with some two million parameters, for tests.
    pub fn live() -> ImagePreset {
        read(include_str!("../presets/live.json"))
    }

    /// The same in the shape of XL.
    pub fn live_xl() -> ImagePreset {
        read(include_str!("../presets/live-xl.json"))
    }
}

fn read<T: DeserializeOwned>(file: &str) -> T {
    serde_json::from_str(file).expect("a preset is part of the program, and a test reads each of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be_read() {
        for preset in [Preset::svd(), Preset::small(), Preset::tiny()] {
            assert_eq!(preset.model.unet["num_frames"], preset.clip.frames);
            assert_eq!(preset.model.scheduler, Preset::svd().model.scheduler);
        }
    }

    #[test]
    fn every_image_preset_is_of_networks_that_can_be_built() {
        use crate::networks::{
            clip_text::ClipTextConfig, tiny_vae::TinyVaeConfig, unet2d::Unet2dConfig, vae::VaeConfig,
        };
        for preset in [
            ImagePreset::sd_turbo(),
            ImagePreset::sd15(),
            ImagePreset::sdxl_turbo(),
            ImagePreset::live(),
            ImagePreset::live_xl(),
        ] {
            let SyntheticImageModel { unet, vae, tiny_vae, text_encoder, text_encoder_2, .. } = preset.model;
            let unet = Unet2dConfig::from_json(&unet.to_string()).unwrap();
            let vae = VaeConfig::image_from_json(&vae.to_string()).unwrap();
            let tiny = TinyVaeConfig::from_json(&tiny_vae.to_string()).unwrap();
            let mut context = ClipTextConfig::from_json(&text_encoder.to_string()).unwrap().hidden_size;
            if let Some(second) = text_encoder_2 {
                let second = ClipTextConfig::from_json(&second.to_string()).unwrap();
                assert!(second.with_projection);
                context += second.hidden_size;
                assert_eq!(unet.pooled_channels(6).unwrap(), Some(second.projection_dim));
            }
            assert_eq!(unet.context_channels().unwrap(), context);
            assert_eq!(vae.pixels_per_latent(), tiny.pixels_per_latent());
            let FrameShape { height, width, steps } = preset.frame;
            assert!(height.is_multiple_of(8) && width.is_multiple_of(8) && steps > 0);
        }
    }
}
