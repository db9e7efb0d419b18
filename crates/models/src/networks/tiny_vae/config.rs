//! The small autoencoder's `config.json`.

use serde::Deserialize;

use crate::{
    json::finite,
    networks::error::{MAX_EXTENT, MAX_LAYERS, NetworkError, Settings},
};

pub(super) const SETTINGS: Settings = Settings { network: "tiny autoencoder", class: "AutoencoderTiny" };

/// What a small autoencoder is built of, under the names and with the defaults of diffusers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct TinyVaeConfig {
    /// Channels of an image.
    pub in_channels: usize,
    /// Channels of a decoded image.
    pub out_channels: usize,
    /// Channels of each of the encoder's levels, which are all equal.
    pub encoder_block_out_channels: Vec<usize>,
    /// Channels of each of the decoder's levels, which are all equal.
    pub decoder_block_out_channels: Vec<usize>,
    /// The activation; only ReLU is known.
    pub act_fn: String,
    /// How the decoder doubles an image; only the nearest pixel is known.
    pub upsample_fn: String,
    /// Channels of a latent.
    pub latent_channels: usize,
    /// How much larger each of the decoder's levels is than the one before.
    pub upsampling_scaling_factor: usize,
    /// Residual blocks of each of the encoder's levels, from the full resolution down.
    pub num_encoder_blocks: Vec<usize>,
    /// Residual blocks of each of the decoder's levels, up to the full resolution.
    pub num_decoder_blocks: Vec<usize>,
    /// Latents are multiplied by it for the diffusion model.
    #[serde(deserialize_with = "finite")]
    pub scaling_factor: f32,
}

impl Default for TinyVaeConfig {
    fn default() -> Self {
        TinyVaeConfig {
            in_channels: 3,
            out_channels: 3,
            encoder_block_out_channels: vec![64; 4],
            decoder_block_out_channels: vec![64; 4],
            act_fn: "relu".to_owned(),
            upsample_fn: "nearest".to_owned(),
            latent_channels: 4,
            upsampling_scaling_factor: 2,
            num_encoder_blocks: vec![1, 3, 3, 3],
            num_decoder_blocks: vec![3, 3, 3, 1],
            scaling_factor: 1.0,
        }
    }
}

impl TinyVaeConfig {
    /// Reads and checks a `config.json`. Fields that it does not know are ignored, as diffusers ignores them.
    ///
    /// # Errors
    /// If the text is not such JSON, is the configuration of another class, or [`TinyVaeConfig::check`] refuses it.
    pub fn from_json(text: &str) -> Result<Self, NetworkError> {
        let config: TinyVaeConfig = SETTINGS.read(text)?;
        config.check()?;
        Ok(config)
    }

    /// How many pixels a latent stands for, along each axis.
    pub fn pixels_per_latent(&self) -> usize {
        1 << self.num_encoder_blocks.len().saturating_sub(1).min(usize::BITS as usize - 1)
    }

    /// Channels of all of the encoder's levels, of a configuration that has been checked.
    pub(super) fn encoder_width(&self) -> usize {
        self.encoder_block_out_channels.first().copied().unwrap_or_default()
    }

    /// Channels of all of the decoder's levels, of a configuration that has been checked.
    pub(super) fn decoder_width(&self) -> usize {
        self.decoder_block_out_channels.first().copied().unwrap_or_default()
    }

    /// Whether a network can be built from it.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), NetworkError> {
        let halves = [
            [
                ("num_encoder_blocks", &self.num_encoder_blocks),
                ("encoder_block_out_channels", &self.encoder_block_out_channels),
            ],
            [
                ("num_decoder_blocks", &self.num_decoder_blocks),
                ("decoder_block_out_channels", &self.decoder_block_out_channels),
            ],
        ];
        for [(blocks_setting, blocks), (widths_setting, widths)] in halves {
            SETTINGS.some_levels(blocks_setting, blocks)?;
            for &count in blocks {
                SETTINGS.within(blocks_setting, count, 0..=MAX_LAYERS)?;
            }
            SETTINGS.few_layers(blocks_setting, blocks.iter().sum())?;
            // diffusers builds no layer between levels of different widths.
            let equal = widths.len() == blocks.len() && widths.windows(2).all(|pair| pair[0] == pair[1]);
            SETTINGS.require(equal, widths_setting, format_args!("{widths:?}"), || {
                format!("it must have {} equal entries, as many as {blocks_setting} has", blocks.len())
            })?;
        }
        let levels = self.num_encoder_blocks.len();
        SETTINGS.require(
            self.num_decoder_blocks.len() == levels,
            "num_decoder_blocks",
            format_args!("a list of {}", self.num_decoder_blocks.len()),
            || format!("num_encoder_blocks has {levels} entries, and they must agree"),
        )?;
        for (setting, channels) in [
            ("encoder_block_out_channels", self.encoder_width()),
            ("decoder_block_out_channels", self.decoder_width()),
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("latent_channels", self.latent_channels),
        ] {
            SETTINGS.within(setting, channels, 1..=MAX_EXTENT)?;
        }
        SETTINGS
            .require(self.act_fn == "relu", "act_fn", &self.act_fn, || "only relu is known".to_owned())?;
        SETTINGS.require(self.upsample_fn == "nearest", "upsample_fn", &self.upsample_fn, || {
            "only nearest is known".to_owned()
        })?;
        let factor = self.upsampling_scaling_factor;
        SETTINGS.require(factor == 2, "upsampling_scaling_factor", factor, || {
            "it must be 2, because each of the encoder's levels halves the image".to_owned()
        })?;
        let factor = self.scaling_factor;
        SETTINGS.require(factor.is_normal() && factor > 0.0, "scaling_factor", factor, || {
            "it must be a positive number".to_owned()
        })
    }
}
