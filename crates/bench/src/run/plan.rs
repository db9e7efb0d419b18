//! What can be asked for.

use std::{fmt, str::FromStr};

use super::suite::Options;

/// Cases that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// Layers of Stable Video Diffusion and Stable Diffusion, on a GPU.
    Kernels,
    /// The networks before the decoder: the image encoder, the autoencoder's encoder, a step of the UNet.
    Svd,
    /// The autoencoder's decoder.
    Vae,
    /// Layers on the processor.
    Cpu,
}

impl Suite {
    /// All of them.
    pub const ALL: [Suite; 4] = [Suite::Cpu, Suite::Kernels, Suite::Svd, Suite::Vae];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Kernels => "kernels",
            Suite::Svd => "svd",
            Suite::Vae => "vae",
            Suite::Cpu => "cpu",
        }
    }
}

/// The size of a model, and of what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Stable Video Diffusion: 14 frames of 1024×576.
    Full,
    /// 8 frames of 320×192 by a model of seventy million parameters.
    Small,
    /// 4 frames of 64×64 by a model of four million parameters.
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
}

/// The size that networks have, where it is not given: that which the device runs in a second or so.
pub(super) fn size(options: &Options, on_gpu: bool) -> Size {
    options.size.unwrap_or(if on_gpu { Size::Full } else { Size::Small })
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

named!(Suite, "it must be cpu, kernels, svd or vae");
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
