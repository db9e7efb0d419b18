//! The two kinds of autoencoder, between bytes and the latents of a diffusion model.

use kinora_graph::{DType, GraphBuilder, GraphError, ValueId};

use crate::networks::{
    NetworkError,
    layers::Layers,
    pixels,
    tiny_vae::{self, TinyVaeConfig},
    vae::{self, VaeConfig},
};

/// What turns pixels into latents, and latents into pixels.
#[derive(Clone, Debug, PartialEq)]
pub enum Autoencoder {
    /// `AutoencoderTiny`: a hundredth of the work, and a little less detail.
    Tiny(TinyVaeConfig),
    /// `AutoencoderKL`: the one that the model was trained with.
    Full(VaeConfig),
}

impl Autoencoder {
    /// Whether a network can be built from its configuration.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), NetworkError> {
        match self {
            Autoencoder::Tiny(config) => config.check(),
            Autoencoder::Full(config) => config.check(),
        }
    }

    /// How many pixels a latent stands for, along each axis.
    pub fn pixels_per_latent(&self) -> usize {
        match self {
            Autoencoder::Tiny(config) => config.pixels_per_latent(),
            Autoencoder::Full(config) => config.pixels_per_latent(),
        }
    }

    /// Channels of a latent.
    pub fn latent_channels(&self) -> usize {
        match self {
            Autoencoder::Tiny(config) => config.latent_channels,
            Autoencoder::Full(config) => config.latent_channels,
        }
    }

    /// Channels of a picture.
    pub fn colours(&self) -> usize {
        match self {
            Autoencoder::Tiny(config) => config.in_channels,
            Autoencoder::Full(config) => config.in_channels,
        }
    }

    /// From bytes to the diffusion model's latents, in f32.
    pub(super) fn encode(
        &self,
        g: &mut GraphBuilder,
        frame: ValueId,
        dtype: DType,
    ) -> Result<ValueId, GraphError> {
        let x = g.cast("frame.cast", frame, dtype)?;
        let (latents, factor) = match self {
            Autoencoder::Tiny(config) => {
                let x = g.scale("frame.range", x, 1.0 / 255.0, 0.0)?;
                (tiny_vae::encode(&mut Layers { g, dtype }, x, config)?, config.scaling_factor)
            }
            Autoencoder::Full(config) => {
                let x = g.scale("frame.range", x, 1.0 / 127.5, -1.0)?;
                (vae::encode(&mut Layers { g, dtype }, x, config)?, config.scaling_factor)
            }
        };
        let latents = g.cast("latents.f32", latents, DType::F32)?;
        g.scale("latents.scaled", latents, factor, 0.0)
    }

    /// From the diffusion model's latents, in f32, to bytes.
    pub(super) fn decode(
        &self,
        g: &mut GraphBuilder,
        latents: ValueId,
        dtype: DType,
    ) -> Result<ValueId, GraphError> {
        let factor = match self {
            Autoencoder::Tiny(config) => config.scaling_factor,
            Autoencoder::Full(config) => config.scaling_factor,
        };
        let x = g.scale("latents.unscaled", latents, 1.0 / factor, 0.0)?;
        let x = g.cast("latents.cast", x, dtype)?;
        match self {
            Autoencoder::Tiny(config) => {
                let x = tiny_vae::decode(&mut Layers { g, dtype }, x, config)?;
                pixels::bytes(g, x, 255.0, 0.0)
            }
            Autoencoder::Full(config) => {
                let x = vae::decode(&mut Layers { g, dtype }, x, config, 1)?;
                pixels::bytes(g, x, 127.5, 127.5)
            }
        }
    }
}
