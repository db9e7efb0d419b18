//! Models that are known by name: Stable Video Diffusion, and two small models of its shape.
//!
//! Each is one JSON file in `presets/`, with the configurations as diffusers and transformers write them. The Python
//! peers of the benchmarks read the same files, so that no network is spelled out twice.

use serde::{Deserialize, Serialize};

use crate::synthetic::SyntheticModel;

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

fn read(file: &str) -> Preset {
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
}
