//! The text encoder's `config.json`.

use kinora_graph::op::Activation;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    json::finite,
    networks::{
        clip_vision::activation,
        error::{MAX_EXTENT, MAX_LAYERS, NetworkError, Settings},
    },
};

pub(super) const SETTINGS: Settings = Settings { network: "CLIP text encoder", class: "CLIPTextModel" };
const WITH_PROJECTION: Settings =
    Settings { network: SETTINGS.network, class: "CLIPTextModelWithProjection" };
/// More tokens than any vocabulary has: CLIP's has 49,408.
const MAX_TOKENS: usize = 1 << 20;
/// The end of a text in configurations from before transformers 4.32, which is not the one that the tokenizer writes.
const OLD_END: u32 = 2;

/// What a text encoder is built of, under the names and with the defaults of transformers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClipTextConfig {
    /// Tokens that exist.
    pub vocab_size: usize,
    /// Channels of a token.
    pub hidden_size: usize,
    /// Channels between the two products of a feed-forward.
    pub intermediate_size: usize,
    /// Channels of a projected prompt.
    pub projection_dim: usize,
    /// Layers of the encoder.
    pub num_hidden_layers: usize,
    /// Heads of an attention.
    pub num_attention_heads: usize,
    /// Tokens of the longest prompt.
    pub max_position_embeddings: usize,
    /// The activation of a feed-forward.
    #[serde(deserialize_with = "activation")]
    pub hidden_act: Activation,
    /// Added to the variances of the norms.
    #[serde(deserialize_with = "finite")]
    pub layer_norm_eps: f32,
    /// The token that ends a prompt; see [`ClipTextConfig::ends`].
    pub eos_token_id: u32,
    /// Whether the pooled prompt is projected, which the class says.
    #[serde(skip)]
    pub with_projection: bool,
}

impl Default for ClipTextConfig {
    fn default() -> Self {
        ClipTextConfig {
            vocab_size: 49_408,
            hidden_size: 512,
            intermediate_size: 2048,
            projection_dim: 512,
            num_hidden_layers: 12,
            num_attention_heads: 8,
            max_position_embeddings: 77,
            hidden_act: Activation::QuickGelu,
            layer_norm_eps: 1e-5,
            eos_token_id: 49_407,
            with_projection: false,
        }
    }
}

impl ClipTextConfig {
    /// Reads and checks a `config.json` of either class.
    ///
    /// # Errors
    /// If the text is not such JSON, is the configuration of another class, names an activation that is not known, or
    /// [`ClipTextConfig::check`] refuses it.
    pub fn from_json(text: &str) -> Result<Self, NetworkError> {
        let object = SETTINGS.object(text)?;
        let class = object.get("architectures").and_then(|classes| classes.get(0)).and_then(Value::as_str);
        let with_projection = class == Some(WITH_PROJECTION.class);
        let settings = if with_projection { WITH_PROJECTION } else { SETTINGS };
        let config = ClipTextConfig { with_projection, ..settings.read_object(object)? };
        config.check()?;
        Ok(config)
    }

    /// Channels of a pooled prompt.
    pub fn pooled_channels(&self) -> usize {
        if self.with_projection { self.projection_dim } else { self.hidden_size }
    }

    /// Where each prompt of `length` tokens ends, as the encoder's input `ends` has it: the row of the token whose result
    /// stands for the prompt, counted through all prompts.
    ///
    /// It is the first `eos_token_id`, or the first token if the prompt has no such id. Configurations with the old id 2 mean the
    /// first of the largest ids. Both as transformers does it.
    pub fn ends(&self, tokens: &[i32], length: usize) -> Vec<i32> {
        let end = |prompt: &[i32]| {
            let wanted = match self.eos_token_id {
                OLD_END => prompt.iter().max().copied(),
                id => i32::try_from(id).ok(),
            };
            prompt.iter().position(|&token| Some(token) == wanted).unwrap_or(0)
        };
        let prompts = tokens.chunks(length.max(1)).enumerate();
        prompts.map(|(i, prompt)| i32::try_from(i * length + end(prompt)).unwrap_or(i32::MAX)).collect()
    }

    /// Whether a network can be built from it.
    ///
    /// # Errors
    /// Names the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), NetworkError> {
        SETTINGS.within("vocab_size", self.vocab_size, 1..=MAX_TOKENS)?;
        SETTINGS.within("num_hidden_layers", self.num_hidden_layers, 1..=MAX_LAYERS)?;
        for (setting, extent) in [
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("projection_dim", self.projection_dim),
            ("max_position_embeddings", self.max_position_embeddings),
            ("num_attention_heads", self.num_attention_heads),
        ] {
            SETTINGS.within(setting, extent, 1..=MAX_EXTENT)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_file_is_read() {
        let text = r#"{"_name_or_path": "stabilityai/sd-turbo", "architectures": ["CLIPTextModel"],
            "attention_dropout": 0.0, "bos_token_id": 0, "dropout": 0.0, "eos_token_id": 2, "hidden_act": "gelu",
            "hidden_size": 1024, "initializer_factor": 1.0, "initializer_range": 0.02, "intermediate_size": 4096,
            "layer_norm_eps": 1e-05, "max_position_embeddings": 77, "model_type": "clip_text_model",
            "num_attention_heads": 16, "num_hidden_layers": 23, "pad_token_id": 1, "projection_dim": 512,
            "torch_dtype": "float16", "transformers_version": "4.34.0", "vocab_size": 49408}"#;
        let config = ClipTextConfig::from_json(text).unwrap();
        let expected = ClipTextConfig {
            hidden_size: 1024,
            intermediate_size: 4096,
            num_attention_heads: 16,
            num_hidden_layers: 23,
            hidden_act: Activation::Gelu,
            eos_token_id: 2,
            ..ClipTextConfig::default()
        };
        assert_eq!(config, expected);
        assert_eq!(config.pooled_channels(), 1024);
        assert_eq!(ClipTextConfig::from_json("{}").unwrap(), ClipTextConfig::default());

        let projected = text.replace("CLIPTextModel", "CLIPTextModelWithProjection");
        let projected = ClipTextConfig::from_json(&projected).unwrap();
        assert_eq!(projected, ClipTextConfig { with_projection: true, ..expected });
        assert_eq!(projected.pooled_channels(), 512);
    }

    #[test]
    fn a_prompt_ends_at_the_first_end_of_text() {
        let new = ClipTextConfig::default();
        let old = ClipTextConfig { eos_token_id: 2, ..ClipTextConfig::default() };
        let tokens = [49_406, 7, 49_407, 49_407, 49_406, 49_407, 0, 0];
        assert_eq!(new.ends(&tokens, 4), [2, 5]);
        assert_eq!(old.ends(&tokens, 4), [2, 5]);
        // A token that was added to the vocabulary is larger than the end.
        let tokens = [49_406, 49_408, 2, 49_407];
        assert_eq!((new.ends(&tokens, 4), old.ends(&tokens, 4)), (vec![3], vec![1]));
        assert_eq!(new.ends(&[1, 2, 3], 3), [0]);
        assert!(new.ends(&[], 77).is_empty());
    }

    #[test]
    fn a_configuration_that_cannot_be_built_is_refused_by_name() {
        for (json, part) in [
            ("[]", "cannot be read"),
            (r#"{"architectures": ["CLIPVisionModel"]}"#, "but CLIPTextModel is needed"),
            (r#"{"hidden_act": "mish"}"#, "mish"),
            (r#"{"eos_token_id": -1}"#, "cannot be read"),
            (
                r#"{"num_attention_heads": 7}"#,
                "num_attention_heads is 7, but it must divide hidden_size, 512",
            ),
            (r#"{"num_attention_heads": 0}"#, "num_attention_heads is 0"),
            (r#"{"num_hidden_layers": 65}"#, "num_hidden_layers is 65, but it must be from 1 to 64"),
            (r#"{"vocab_size": 0}"#, "vocab_size is 0"),
            (r#"{"max_position_embeddings": 0}"#, "max_position_embeddings is 0"),
            (r#"{"layer_norm_eps": -1}"#, "layer_norm_eps is -1"),
        ] {
            let message = ClipTextConfig::from_json(json).unwrap_err().to_string();
            assert!(message.contains(part), "{json}: {message}");
        }
    }
}
