//! The suites, and the sizes of models.

use std::{fmt, str::FromStr};

use kinora_models::presets::{ImagePreset, Preset};

use super::suite::Options;

/// Height and width of a small frame of live video: a CPU draws some in a second.
const SMALL_SIDE: usize = 256;

/// Cases that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// Layers of Stable Video Diffusion and Stable Diffusion, on a GPU.
    Kernels,
    /// The networks before the decoder: the image encoder, the autoencoder's encoder, a step of the UNet.
    Svd,
    /// The autoencoder's decoder.
    Vae,
    /// Layers on the CPU.
    Cpu,
    /// A whole clip of a small model.
    Pipeline,
    /// A frame of live video, its parts, and a row of frames.
    Live,
    /// The figures that were promised, each beside its goal.
    Targets,
}

impl Suite {
    /// All of them.
    pub const ALL: [Suite; 7] =
        [Suite::Cpu, Suite::Kernels, Suite::Svd, Suite::Vae, Suite::Pipeline, Suite::Live, Suite::Targets];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Kernels => "kernels",
            Suite::Svd => "svd",
            Suite::Vae => "vae",
            Suite::Cpu => "cpu",
            Suite::Pipeline => "pipeline",
            Suite::Live => "live",
            Suite::Targets => "targets",
        }
    }
}

/// The size of a model, and of its clips or frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Stable Video Diffusion: 14 frames of 1024×576. Live: Stable Diffusion Turbo, 512×512.
    Full,
    /// 8 frames of 320×192 by a model of seventy million parameters. Live: 256×256 by one of two million.
    Small,
    /// 4 frames of 64×64 by a model of four million parameters. Live: 64×64 by one of two million.
    Tiny,
}

impl Size {
    /// All of them.
    pub const ALL: [Size; 3] = [Size::Full, Size::Small, Size::Tiny];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Size::Full => "full",
            Size::Small => "small",
            Size::Tiny => "tiny",
        }
    }

    /// The model, and the clip that it makes.
    pub fn preset(self) -> Preset {
        match self {
            Size::Full => Preset::svd(),
            Size::Small => Preset::small(),
            Size::Tiny => Preset::tiny(),
        }
    }

    /// The model of live video, and the frame that it draws.
    pub fn image_preset(self) -> ImagePreset {
        match self {
            Size::Full => ImagePreset::sd_turbo(),
            Size::Small => {
                let mut preset = ImagePreset::live();
                (preset.frame.height, preset.frame.width) = (SMALL_SIDE, SMALL_SIDE);
                preset
            }
            Size::Tiny => ImagePreset::live(),
        }
    }
}

/// The size of the networks: unless it is given, the one that the device runs in a second or so.
pub(super) fn size(options: &Options, suite: Suite, on_gpu: bool) -> Size {
    let full = on_gpu && suite != Suite::Pipeline;
    options.size.unwrap_or(if full { Size::Full } else { Size::Small })
}

macro_rules! named {
    ($type:ty, $rule:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|one| one.name() == text).ok_or($rule)
            }
        }
    };
}

named!(Suite, "it must be cpu, kernels, svd, vae, pipeline, live or targets");
named!(Size, "it must be full, small or tiny");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for suite in Suite::ALL {
            assert_eq!(suite.to_string().parse(), Ok(suite));
        }
        for size in Size::ALL {
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        assert!("gpu".parse::<Suite>().is_err() && "large".parse::<Size>().is_err());
    }
}
