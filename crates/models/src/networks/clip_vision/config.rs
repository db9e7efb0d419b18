//! The image encoder's `config.json`.

use kinora_graph::op::Activation;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

use crate::{
    json::finite,
    networks::error::{MAX_EXTENT, MAX_LAYERS, NetworkError, Settings},
    presets::Preset,
};

pub(super) const SETTINGS: Settings =
    Settings { network: "CLIP image encoder", class: "CLIPVisionModelWithProjection" };

/// What an image encoder is built of, under the names and with the defaults of transformers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClipVisionConfig {
    /// Channels of a token.
    pub hidden_size: usize,
    /// Channels between the two products of a feed-forward.
    pub intermediate_size: usize,
    /// Channels of the result.
    pub projection_dim: usize,
    /// Layers of the encoder.
    pub num_hidden_layers: usize,
    /// Heads of an attention.
    pub num_attention_heads: usize,
    /// Channels of an image.
    pub num_channels: usize,
    /// Pixels of an image along each axis.
    pub image_size: usize,
    /// Pixels of a patch along each axis; what is left over at the edges is not seen.
    pub patch_size: usize,
    /// The activation of a feed-forward.
    #[serde(deserialize_with = "activation")]
    pub hidden_act: Activation,
    /// Added to the variances of the norms.
    #[serde(deserialize_with = "finite")]
    pub layer_norm_eps: f32,
}

impl Default for ClipVisionConfig {
    fn default() -> Self {
        ClipVisionConfig {
            hidden_size: 768,
            intermediate_size: 3072,
            projection_dim: 512,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            num_channels: 3,
            image_size: 224,
            patch_size: 32,
            hidden_act: Activation::QuickGelu,
            layer_norm_eps: 1e-5,
        }
    }
}

impl ClipVisionConfig {
    /// ViT-H/14, the image encoder of Stable Video Diffusion.
    pub fn svd() -> Self {
        let config = Preset::svd().model.image_encoder;
        Self::from_json(&config.to_string()).expect("the published configuration is valid")
    }

    /// Reads and checks a `config.json`: that of the image encoder, or one of a whole CLIP model with the image encoder's
    /// under `vision_config`.
    ///
    /// # Errors
    /// If the text is not such JSON, is the configuration of another class, names an activation that is not known, or
    /// [`ClipVisionConfig::check`] refuses it.
    pub fn from_json(text: &str) -> Result<Self, NetworkError> {
        let mut settings = SETTINGS.object(text)?;
        let config: ClipVisionConfig = match settings.remove("vision_config") {
            None => SETTINGS.read_object(settings)?,
            Some(Value::Object(nested)) => SETTINGS.parse(nested)?,
            Some(_) => return Err(SETTINGS.unreadable("its vision_config is not an object")),
        };
        config.check()?;
        Ok(config)
    }

    /// Patches along each axis, of a configuration that has been checked.
    pub(super) fn patches(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// Whether a network can be built from it.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), NetworkError> {
        SETTINGS.within("hidden_size", self.hidden_size, 1..=MAX_EXTENT)?;
        SETTINGS.within("intermediate_size", self.intermediate_size, 1..=MAX_EXTENT)?;
        SETTINGS.within("projection_dim", self.projection_dim, 1..=MAX_EXTENT)?;
        SETTINGS.within("num_hidden_layers", self.num_hidden_layers, 1..=MAX_LAYERS)?;
        SETTINGS.within("num_attention_heads", self.num_attention_heads, 1..=MAX_EXTENT)?;
        SETTINGS.within("num_channels", self.num_channels, 1..=MAX_EXTENT)?;
        SETTINGS.within("image_size", self.image_size, 1..=MAX_EXTENT)?;
        SETTINGS.within("patch_size", self.patch_size, 1..=self.image_size)?;
        let epsilon = self.layer_norm_eps;
        SETTINGS.require(epsilon > 0.0 && epsilon <= 1.0, "layer_norm_eps", epsilon, || {
            "it must be above 0 and at most 1".to_owned()
        })?;
        let divides = self.hidden_size.is_multiple_of(self.num_attention_heads);
        SETTINGS.require(divides, "num_attention_heads", self.num_attention_heads, || {
            format!("it must divide hidden_size, {}", self.hidden_size)
        })
    }
}

/// An activation by the name that transformers gives it.
pub(in crate::networks) fn activation<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Activation, D::Error> {
    let name = String::deserialize(deserializer)?;
    match name.as_str() {
        "gelu" | "gelu_python" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_fast" | "gelu_accurate" | "gelu_pytorch_tanh" | "gelu_python_tanh" => {
            Ok(Activation::GeluTanh)
        }
        "quick_gelu" => Ok(Activation::QuickGelu),
        "relu" => Ok(Activation::Relu),
        "silu" | "swish" => Ok(Activation::Silu),
        "sigmoid" => Ok(Activation::Sigmoid),
        "tanh" => Ok(Activation::Tanh),
        _ => Err(D::Error::custom(
            "it is not known; known are gelu, gelu_new, quick_gelu, relu, silu, sigmoid and tanh",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_file_is_read() {
        let text = r#"{"_name_or_path": "laion", "architectures": ["CLIPVisionModelWithProjection"],
            "attention_dropout": 0.0, "dropout": 0.0, "hidden_act": "gelu", "hidden_size": 1280, "image_size": 224,
            "initializer_factor": 1.0, "initializer_range": 0.02, "intermediate_size": 5120, "layer_norm_eps": 1e-05,
            "model_type": "clip_vision_model", "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 32,
            "patch_size": 14, "projection_dim": 1024, "torch_dtype": "float16", "transformers_version": "4.34.0"}"#;
        assert_eq!(ClipVisionConfig::from_json(text).unwrap(), ClipVisionConfig::svd());
        assert_eq!(ClipVisionConfig::svd().check(), Ok(()));
        let whole = format!(r#"{{"projection_dim": 7, "text_config": {{}}, "vision_config": {text}}}"#);
        assert_eq!(ClipVisionConfig::from_json(&whole).unwrap(), ClipVisionConfig::svd());
        assert_eq!(ClipVisionConfig::from_json("{}").unwrap(), ClipVisionConfig::default());
    }

    #[test]
    fn what_cannot_be_built_is_said_in_words() {
        let refused = |change: fn(&mut ClipVisionConfig)| {
            let mut config = ClipVisionConfig::svd();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert_eq!(
            refused(|c| c.num_attention_heads = 12),
            "CLIP image encoder: num_attention_heads is 12, but it must divide hidden_size, 1280"
        );
        assert_eq!(
            refused(|c| c.patch_size = 225),
            "CLIP image encoder: patch_size is 225, but it must be from 1 to 224"
        );
        assert_eq!(
            refused(|c| c.num_hidden_layers = usize::MAX),
            format!("CLIP image encoder: num_hidden_layers is {}, but it must be from 1 to 64", usize::MAX)
        );
        let error =
            ClipVisionConfig::from_json(r#"{"architectures": ["CLIPTextModel"]}"#).unwrap_err().to_string();
        assert!(
            error.contains("names the class CLIPTextModel, but CLIPVisionModelWithProjection is needed"),
            "{error}"
        );
        assert!(ClipVisionConfig::from_json(r#"{"patch_size": 0}"#).is_err(), "what is read is checked");
        let error = ClipVisionConfig::from_json(r#"{"hidden_act": "mish"}"#).unwrap_err().to_string();
        assert!(error.contains("hidden_act is \"mish\", but it is not known"), "{error}");
        for text in
            ["", "[]", r#"{"vision_config": null}"#, r#"{"vision_config": []}"#, r#"{"hidden_size": -1}"#]
        {
            assert!(matches!(ClipVisionConfig::from_json(text), Err(NetworkError::Json { .. })), "{text}");
        }
    }
}
