//! The autoencoder's `config.json`.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    json::finite,
    networks::{
        error::{MAX_EXTENT, MAX_LAYERS, MAX_LEVELS, NetworkError, Settings},
        fixed::{Fixed, check_fixed},
    },
    presets::Preset,
};

pub(super) const SETTINGS: Settings =
    Settings { network: "autoencoder", class: "AutoencoderKLTemporalDecoder" };
const IMAGE_SETTINGS: Settings = Settings { network: SETTINGS.network, class: "AutoencoderKL" };
/// What other autoencoders of images have.
const FIXED: &[Fixed] = &[
    ("up_block_types", r#""UpDecoderBlock2D""#),
    ("act_fn", r#""silu""#),
    ("norm_num_groups", "32"),
    ("mid_block_add_attention", "true"),
    ("use_quant_conv", "true"),
    ("use_post_quant_conv", "true"),
    ("shift_factor", "null"),
    ("latents_mean", "null"),
    ("latents_std", "null"),
];
/// The only kind of level that a published autoencoder has.
const LEVEL: &str = "DownEncoderBlock2D";

/// What an autoencoder is built of, under the names and with the defaults of diffusers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct VaeConfig {
    /// Channels of an image.
    pub in_channels: usize,
    /// Channels of a decoded frame.
    pub out_channels: usize,
    /// The kind of each of the encoder's levels.
    pub down_block_types: Vec<String>,
    /// Channels of each level, from the full resolution down.
    pub block_out_channels: Vec<usize>,
    /// Residual blocks of an encoder's level; the decoder's have one more.
    pub layers_per_block: usize,
    /// Channels of a latent.
    pub latent_channels: usize,
    /// Latents are multiplied by it for the diffusion model.
    #[serde(deserialize_with = "finite")]
    pub scaling_factor: f32,
    /// Whether images must be encoded in f32: f16 overflows.
    pub force_upcast: bool,
    /// Whether the decoder sees the frames of a clip together, which the class says.
    #[serde(skip)]
    pub temporal: bool,
}

impl Default for VaeConfig {
    fn default() -> Self {
        VaeConfig {
            in_channels: 3,
            out_channels: 3,
            down_block_types: vec![LEVEL.to_owned()],
            block_out_channels: vec![64],
            layers_per_block: 1,
            latent_channels: 4,
            scaling_factor: 0.18215,
            force_upcast: true,
            temporal: true,
        }
    }
}

impl VaeConfig {
    /// The autoencoder of Stable Video Diffusion.
    pub fn svd() -> Self {
        Self::from_json(&Preset::svd().model.vae.to_string()).expect("the published configuration is valid")
    }

    /// Reads and checks a `config.json`.
    ///
    /// # Errors
    /// If the text is not such JSON, is the configuration of another class, or [`VaeConfig::check`] refuses it.
    pub fn from_json(text: &str) -> Result<Self, NetworkError> {
        let config: VaeConfig = SETTINGS.read(text)?;
        config.check()?;
        Ok(config)
    }

    /// Reads and checks the `config.json` of an autoencoder of images, `AutoencoderKL`.
    ///
    /// # Errors
    /// If the text is not such JSON, is the configuration of another class, asks for what is not built, or
    /// [`VaeConfig::check`] refuses it.
    pub fn image_from_json(text: &str) -> Result<Self, NetworkError> {
        let object = IMAGE_SETTINGS.object(text)?;
        let config = VaeConfig { temporal: false, ..IMAGE_SETTINGS.read_object(object.clone())? };
        check_fixed(&IMAGE_SETTINGS, &object, FIXED)?;
        config.check()?;
        if let Some(Value::Array(kinds)) = object.get("up_block_types") {
            IMAGE_SETTINGS.one_a_level("up_block_types", kinds, config.block_out_channels.len())?;
        }
        Ok(config)
    }

    /// How many pixels a latent stands for, along each axis.
    pub fn pixels_per_latent(&self) -> usize {
        1 << self.block_out_channels.len().saturating_sub(1).min(MAX_LEVELS)
    }

    /// The channels of the deepest level, of a configuration that has been checked.
    pub(super) fn deepest(&self) -> usize {
        self.block_out_channels.last().copied().unwrap_or_default()
    }

    /// Whether a network can be built from it.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), NetworkError> {
        SETTINGS.some_levels("block_out_channels", &self.block_out_channels)?;
        let levels = self.block_out_channels.len();
        SETTINGS.one_a_level("down_block_types", &self.down_block_types, levels)?;
        for kind in &self.down_block_types {
            SETTINGS.require(kind == LEVEL, "down_block_types", kind, || format!("only {LEVEL} is known"))?;
        }
        SETTINGS.channels("block_out_channels", &self.block_out_channels)?;
        SETTINGS.within("layers_per_block", self.layers_per_block, 1..=MAX_LAYERS)?;
        // The decoder has the most: one more a level, and two in the middle.
        SETTINGS.few_layers("layers_per_block", levels * (self.layers_per_block + 1) + 2)?;
        SETTINGS.within("in_channels", self.in_channels, 1..=MAX_EXTENT)?;
        SETTINGS.within("out_channels", self.out_channels, 1..=MAX_EXTENT)?;
        SETTINGS.within("latent_channels", self.latent_channels, 1..=MAX_EXTENT)?;
        let factor = self.scaling_factor;
        SETTINGS.require(factor.is_normal() && factor > 0.0, "scaling_factor", factor, || {
            "it must be a positive number".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_file_is_read() {
        let text = r#"{"_class_name": "AutoencoderKLTemporalDecoder", "_diffusers_version": "0.24.0.dev0",
            "block_out_channels": [128, 256, 512, 512], "down_block_types": ["DownEncoderBlock2D",
            "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"], "force_upcast": true, "in_channels": 3,
            "latent_channels": 4, "layers_per_block": 2, "out_channels": 3, "sample_size": 768,
            "scaling_factor": 0.18215}"#;
        let config = VaeConfig::from_json(text).unwrap();
        assert_eq!(config, VaeConfig::svd());
        assert_eq!(config.pixels_per_latent(), 8);
        assert_eq!(config.check(), Ok(()));
        assert_eq!(VaeConfig::from_json("{}").unwrap(), VaeConfig::default());
    }

    #[test]
    fn a_published_file_of_an_autoencoder_of_images_is_read() {
        let text = r#"{"_class_name": "AutoencoderKL", "_diffusers_version": "0.24.0.dev0", "act_fn": "silu",
            "block_out_channels": [128, 256, 512, 512], "down_block_types": ["DownEncoderBlock2D",
            "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"], "force_upcast": true, "in_channels": 3,
            "latent_channels": 4, "layers_per_block": 2, "norm_num_groups": 32, "out_channels": 3, "sample_size": 768,
            "scaling_factor": 0.18215, "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D",
            "UpDecoderBlock2D", "UpDecoderBlock2D"]}"#;
        let expected = VaeConfig { temporal: false, ..VaeConfig::svd() };
        assert_eq!(VaeConfig::image_from_json(text).unwrap(), expected);
        assert!(VaeConfig::from_json(text).is_err(), "it is of another class");
        for (json, part) in [
            (r#"{"_class_name": "AutoencoderKLTemporalDecoder"}"#, "but AutoencoderKL is needed"),
            (r#"{"use_quant_conv": false}"#, "use_quant_conv is false, but only true is supported"),
            (r#"{"shift_factor": 0.1159}"#, "shift_factor is 0.1159, but only null is supported"),
            (r#"{"norm_num_groups": 16}"#, "norm_num_groups is 16"),
            (r#"{"up_block_types": ["AttnUpDecoderBlock2D"]}"#, "up_block_types"),
            (r#"{"up_block_types": []}"#, "up_block_types is a list of 0"),
        ] {
            let message = VaeConfig::image_from_json(json).unwrap_err().to_string();
            assert!(message.contains(part), "{json}: {message}");
        }
    }

    #[test]
    fn what_cannot_be_built_is_said_in_words() {
        let refused = |change: fn(&mut VaeConfig)| {
            let mut config = VaeConfig::svd();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert_eq!(
            refused(|c| c.down_block_types[1] = "AttnDownEncoderBlock2D".into()),
            "autoencoder: down_block_types is AttnDownEncoderBlock2D, but only DownEncoderBlock2D is known"
        );
        assert_eq!(
            refused(|c| c.block_out_channels.clear()),
            "autoencoder: block_out_channels is a list of 0, but it must have 1 to 16 entries"
        );
        assert_eq!(
            refused(|c| c.block_out_channels.truncate(2)),
            "autoencoder: down_block_types is a list of 4, but block_out_channels has 2 entries, and they must agree"
        );
        assert_eq!(
            refused(|c| c.latent_channels = usize::MAX),
            format!("autoencoder: latent_channels is {}, but it must be from 1 to 65536", usize::MAX)
        );
        assert_eq!(
            refused(|c| c.scaling_factor = 0.0),
            "autoencoder: scaling_factor is 0, but it must be a positive number"
        );
        assert!(refused(|c| c.layers_per_block = 0).contains("layers_per_block is 0"));
        let error = VaeConfig::from_json(r#"{"latent_channels": "four"}"#).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "autoencoder: its configuration cannot be read: latent_channels is \"four\", but it must be"
            ),
            "{error}"
        );
        let error = VaeConfig::from_json(r#"{"_class_name": "AutoencoderKL"}"#).unwrap_err().to_string();
        assert_eq!(
            error,
            "autoencoder: its configuration names the class AutoencoderKL, but AutoencoderKLTemporalDecoder is needed"
        );
        assert!(VaeConfig::from_json(r#"{"layers_per_block": 0}"#).is_err(), "what is read is checked");
        for text in ["", "[", "[]", "7"] {
            assert!(matches!(VaeConfig::from_json(text), Err(NetworkError::Json { .. })), "{text}");
        }
    }
}
