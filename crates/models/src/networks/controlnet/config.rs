//! The network's `config.json`.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::networks::{
    error::{MAX_EXTENT, MAX_LEVELS, NetworkError, Settings},
    fixed::{Fixed, check_fixed},
    unet2d::{FIXED_LAYERS, Unet2dConfig},
};

pub(super) const SETTINGS: Settings = Settings { network: "ControlNet", class: "ControlNetModel" };

/// What other models of the class have.
const FIXED: &[Fixed] =
    &[("controlnet_conditioning_channel_order", r#""rgb""#), ("global_pool_conditions", "false")];

/// `ControlNetModel`'s configuration, with diffusers' names and defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlNetConfig {
    /// What it shares with the UNet that it steers; its way up is not built.
    pub unet: Unet2dConfig,
    /// Channels of the picture.
    pub conditioning_channels: usize,
    /// Channels of the levels of the network that reads the picture, from the full resolution down.
    pub conditioning_embedding_out_channels: Vec<usize>,
}

/// The settings that a UNet does not have.
#[derive(Deserialize)]
#[serde(default)]
struct Own {
    conditioning_channels: usize,
    conditioning_embedding_out_channels: Vec<usize>,
}

impl Default for Own {
    fn default() -> Self {
        Own { conditioning_channels: 3, conditioning_embedding_out_channels: vec![16, 32, 96, 256] }
    }
}

impl ControlNetConfig {
    /// Reads and checks a `config.json`. Fields that it does not know are ignored, as diffusers ignores them.
    ///
    /// # Errors
    /// If the text is not such JSON, is the configuration of another class, asks for what is not built, or
    /// [`ControlNetConfig::check`] refuses it.
    pub fn from_json(text: &str) -> Result<Self, NetworkError> {
        let object = SETTINGS.object(text)?;
        let own: Own = SETTINGS.read_object(object.clone())?;
        check_fixed(&SETTINGS, &object, FIXED)?;
        check_fixed(&SETTINGS, &object, FIXED_LAYERS)?;
        let config = ControlNetConfig {
            unet: SETTINGS.parse(without_way_up(object))?,
            conditioning_channels: own.conditioning_channels,
            conditioning_embedding_out_channels: own.conditioning_embedding_out_channels,
        };
        config.check()?;
        Ok(config)
    }

    /// Whether a network can be built from it.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), NetworkError> {
        self.unet.check().map_err(own)?;
        let widths = &self.conditioning_embedding_out_channels;
        SETTINGS.some_levels("conditioning_embedding_out_channels", widths)?;
        SETTINGS.within("conditioning_channels", self.conditioning_channels, 1..=MAX_EXTENT)?;
        for &channels in widths {
            SETTINGS.within("conditioning_embedding_out_channels", channels, 1..=MAX_EXTENT)?;
        }
        Ok(())
    }

    /// How many pixels of the picture a latent stands for, along each axis.
    pub fn pixels_per_latent(&self) -> usize {
        1 << self.conditioning_embedding_out_channels.len().saturating_sub(1).min(MAX_LEVELS)
    }

    /// Refuses a setting that is not what the model has.
    pub(in crate::networks) fn agrees(
        &self,
        setting: &'static str,
        got: usize,
        expected: usize,
    ) -> Result<(), NetworkError> {
        // Each level of the network that reads the picture halves it.
        let halves = setting == "conditioning_embedding_out_channels";
        let value = if halves { format!("for {got} pixels a latent") } else { got.to_string() };
        SETTINGS.require(got == expected, setting, value, || {
            format!("the model has {expected}: this ControlNet is for a model of another shape")
        })
    }
}

/// The settings of a UNet with the same way down. That of its way up, which the file does not have, is the simplest.
fn without_way_up(mut object: Map<String, Value>) -> Map<String, Value> {
    let levels = object.get("block_out_channels").and_then(Value::as_array).map_or(4, Vec::len);
    object.remove("_class_name");
    object.insert("up_block_types".to_owned(), vec!["UpBlock2D"; levels.min(MAX_LEVELS + 1)].into());
    object
}

/// An error of the shared settings, as this network's own.
fn own(error: NetworkError) -> NetworkError {
    match error {
        NetworkError::Setting { setting, value, rule, .. } => {
            NetworkError::Setting { network: SETTINGS.network, setting, value, rule }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_file_is_read() {
        let text = r#"{"_class_name": "ControlNetModel", "act_fn": "silu", "attention_head_dim": 8,
            "block_out_channels": [320, 640, 1280, 1280], "class_embed_type": null,
            "conditioning_embedding_out_channels": [16, 32, 96, 256], "controlnet_conditioning_channel_order": "rgb",
            "cross_attention_dim": 768, "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
            "CrossAttnDownBlock2D", "DownBlock2D"], "downsample_padding": 1, "flip_sin_to_cos": true, "freq_shift": 0,
            "in_channels": 4, "layers_per_block": 2, "mid_block_scale_factor": 1, "norm_eps": 1e-05,
            "norm_num_groups": 32, "num_class_embeds": null, "only_cross_attention": false,
            "projection_class_embeddings_input_dim": null, "resnet_time_scale_shift": "default",
            "upcast_attention": false, "use_linear_projection": false}"#;
        let config = ControlNetConfig::from_json(text).unwrap();
        assert_eq!((config.pixels_per_latent(), config.conditioning_channels), (8, 3));
        assert_eq!(config.unet.context_channels().unwrap(), 768);
    }

    #[test]
    fn a_configuration_that_cannot_be_built_is_refused_by_name() {
        for (json, part) in [
            ("[]", "cannot be read"),
            (
                r#"{"_class_name": "UNet2DConditionModel"}"#,
                "ControlNet: its configuration names the class UNet2D",
            ),
            (r#"{"controlnet_conditioning_channel_order": "bgr"}"#, "controlnet_conditioning_channel_order"),
            (r#"{"global_pool_conditions": true}"#, "global_pool_conditions"),
            (r#"{"resnet_time_scale_shift": "scale_shift"}"#, "ControlNet: resnet_time_scale_shift"),
            (r#"{"block_out_channels": [33]}"#, "ControlNet: down_block_types is a list of 4"),
            (r#"{"block_out_channels": []}"#, "block_out_channels is a list of 0"),
            (
                r#"{"conditioning_embedding_out_channels": []}"#,
                "conditioning_embedding_out_channels is a list of 0",
            ),
            (
                r#"{"conditioning_embedding_out_channels": [16, 0]}"#,
                "conditioning_embedding_out_channels is 0",
            ),
            (r#"{"conditioning_channels": 0}"#, "conditioning_channels is 0"),
        ] {
            let message = ControlNetConfig::from_json(json).unwrap_err().to_string();
            assert!(message.contains(part), "{json}: {message}");
        }
    }
}
